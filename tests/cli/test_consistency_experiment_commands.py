"""`dreamcheck consistency --experiments`: its record, report and page; bad input refused."""

from __future__ import annotations

import json

import pytest
from test_consistency_commands import NOISE, SMALL, data, run, toys  # noqa: F401

from dreamcheck.cli.consistency import sized
from dreamcheck.cli.consistency_experiments import _success
from dreamcheck.errors import UsageError
from dreamcheck.models import load_model
from dreamcheck.progress import Progress
from dreamcheck.reports import verify_study
from dreamcheck.tasks.registry import get_task

FAST = [w if w != "8" else "6" for w in SMALL]


def test_all_experiments_end_in_a_record_whose_numbers_verify(data, tmp_path):  # noqa: F811
    place, page = tmp_path / "study", tmp_path / "page.md"
    done = run("noise_toys:other", "--reference", "noise_toys:plain", *FAST, *NOISE,
               "--experiments", "all", "--out", place, "--page", page, "--json", *data())  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    # Without a training record the reference is the plain one, everything else the augmented one.
    assert [c["role"] for c in found["checkpoints"]] == ["reference", "augmented"]
    assert [c["name"] for c in found["drift"]["cells"]] == ["plain"]
    assert found["drift"]["cells"][0]["num_rows"] == 4 * 1 * 2  # four episodes, one window each
    assert found["planner"]["regression"]["num_rows"] == 2 * 2 * 1
    assert {r["space"] for r in found["geometry"]["rows"]} == {"encoder", "rollout"}
    assert [r["name"] for r in found["collapse"]["rows"]] == ["plain"]
    assert "weight alone" in found["skipped"]["collapse"]
    assert {r["ratio"] for r in found["sensitivity"]["rows"] if r["name"] == "plain"} == {1.0}
    assert verify_study(place).ok
    text = (place / "report.html").read_text()
    assert "What does consistency predict?" in text
    written = page.read_text()
    assert "--experiments all" in written and "page.svg" in written
    assert page.with_suffix(".svg").read_text().startswith("<svg")


def test_the_console_names_each_finding_beside_the_papers(data):  # noqa: F811
    done = run("noise_toys:plain", *FAST, "--experiments", "geometry,sensitivity", *data())
    assert done.exit_code == 0, done.output
    assert "1.41 to 0.10" in done.output and "the reference stands alone" in done.output
    assert "Error drift" not in done.output


def test_unknown_experiments_and_a_page_without_any_are_refused(data):  # noqa: F811
    unknown = run("noise_toys:plain", *FAST, "--experiments", "drift,tides", *data())
    assert isinstance(unknown.exception, UsageError) and "sensitivity" in str(unknown.exception)
    lone = run("noise_toys:plain", *FAST, "--page", "x.md", *data())
    assert isinstance(lone.exception, UsageError)
    with pytest.raises(UsageError, match="--experiments"):
        raise lone.exception


def test_clean_success_of_the_ablation_is_planned_under_the_named_protocol():
    protocol = sized("fresh-25-50", 2, "8x2x1")
    clean = _success(get_task("tworoom"), protocol, None, ("a stamp",), Progress(quiet=True))
    rate = clean("small", load_model("tworoom-small"))
    assert 0 <= rate["low"] <= rate["value"] <= rate["high"] <= 1
