"""Diagnoses are records, their sections show only numbers that verify recomputes."""

from __future__ import annotations

import json
import sqlite3
import sys
import types

import numpy as np
import pytest

import small_study
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence import Store
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.reports import verify_study, write_report

SUBJECT = {"model": "toy", "identity": "0" * 64}


@pytest.fixture
def toy_section(monkeypatch):
    module = types.ModuleType("dreamcheck.reports.diagnoses.toy")
    module.TITLE = "A toy diagnosis"
    module.ORDER = 20
    module.body = lambda reader: (
        f"<p>rate {reader.number('rate', '{:.1%}')} = {reader.number('rate', '{:.3f}')} of "
        f"{reader.statistic('length', id='cases', path='result.cases')} cases, again "
        f"{reader.number('rate', '{:.1%}')}; {reader.text('<b>')}</p>"
    )
    monkeypatch.setitem(sys.modules, "dreamcheck.reports.diagnoses.toy", module)
    return module


def keep(directory, rate=0.25, **more):
    return record_diagnosis(
        directory,
        name="toy",
        subject=SUBJECT,
        inputs={"seed": 1},
        result={"rate": rate, "cases": [1, 0, 0, 0]},
        **more,
    )


def test_a_directory_of_diagnoses_alone_becomes_a_page(tmp_path, toy_section):
    keep(tmp_path / "d", artifacts={"cases": {"x": np.arange(3)}})
    page = write_report(tmp_path / "d").read_text()
    assert "25.0%" in page and "0.250" in page and "A toy diagnosis" in page and "&lt;b&gt;" in page
    assert verify_study(tmp_path / "d").ok
    shown = json.loads((tmp_path / "d/report.json").read_text())["numbers"]
    assert [n["value"] for n in shown] == [0.25, 0.25, 4]


def test_the_same_diagnosis_is_no_news_and_another_result_is_refused(tmp_path):
    keep(tmp_path / "d")
    keep(tmp_path / "d", meta={"seconds": 3})
    with Store.read(tmp_path / "d") as store:
        assert store.count("diagnosis") == 1
    with pytest.raises(EvidenceError, match="toy-"):
        keep(tmp_path / "d", rate=0.5)


def test_an_altered_result_or_digit_is_named(tmp_path, toy_section):
    keep(tmp_path / "d")
    page = write_report(tmp_path / "d")
    text = page.read_text()
    page.write_text(text.replace(">25.0%<", ">35.0%<", 1))
    assert "35.0%" in "\n".join(map(str, verify_study(tmp_path / "d").problems))
    page.write_text(text)
    db = sqlite3.connect(tmp_path / "d/evidence.sqlite")
    db.execute("UPDATE records SET payload = replace(payload, '0.25', '0.75')")
    db.commit()
    db.close()
    assert "result" in "\n".join(map(str, verify_study(tmp_path / "d").problems))


def test_a_study_keeps_its_sections_beside_a_diagnosis(tmp_path, toy_section):
    small_study.run_at(tmp_path / "s")
    keep(tmp_path / "s")
    page = write_report(tmp_path / "s").read_text()
    assert page.index('class="hero"') < page.index('id="toy"')
    toy_section.ORDER = 0
    page = write_report(tmp_path / "s").read_text()
    assert page.index('id="toy"') < page.index('class="hero"')
    assert verify_study(tmp_path / "s").ok


def test_an_unknown_diagnosis_is_kept_and_not_shown(tmp_path):
    record_diagnosis(tmp_path / "d", name="later", subject={}, inputs={}, result={"a": 1})
    with pytest.raises(UsageError, match="measured nothing"):
        write_report(tmp_path / "d")
