"""One altered loss, seed, artifact or digit is named (law 6)."""

from __future__ import annotations

import re
import shutil
import sqlite3

import pytest

import small_study
from dreamcheck.reports import verify_study, write_report


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s"
    small_study.run_at(path)
    write_report(path)
    assert verify_study(path).ok
    return path


@pytest.fixture
def study(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def alter(study, kind, old, new):
    """Replace text in the payload of the first record of a kind that holds it."""
    db = sqlite3.connect(study / "evidence.sqlite")
    rows = db.execute(
        "SELECT seq, key, payload FROM records WHERE kind = ? ORDER BY seq", (kind,)
    ).fetchall()
    for seq, key, payload in rows:
        changed, count = re.subn(old, new, payload, count=1)
        if count:
            db.execute("UPDATE records SET payload = ? WHERE seq = ?", (changed, seq))
            db.commit()
            db.close()
            return key
    raise AssertionError(f"nothing to alter in {kind}")


def problems(study):
    result = verify_study(study)
    assert not result.ok
    return "\n".join(str(p) for p in result.problems)


def test_one_altered_loss_is_named(study):
    key = alter(study, "measurement", r'"loss":[0-9.]+', '"loss":0.25')
    text = problems(study)
    assert key in text and "loss" in text


def test_one_altered_seed_is_named(study):
    key = alter(study, "validation", r'"seeds":\[16,', '"seeds":[116,')
    text = problems(study)
    assert key in text and "seeds" in text


def test_one_altered_artifact_byte_is_named(study):
    path = sorted((study / "artifacts").rglob("*.npz"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert path.name in problems(study)


def test_one_altered_digit_of_a_number_is_named(study):
    page = study / "report.html"
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<data class="num" id="n:([^"]+)" value="([0-9.]+)">([0-9.]+)</data>', text)
    start = found.start(3)
    digit = "1" if text[start] != "1" else "2"
    page.write_text(text[:start] + digit + text[start + 1 :], encoding="utf-8")
    assert found.group(1) in problems(study)


def test_one_altered_digit_of_a_sentence_is_named(study):
    page = study / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "4 forecast" in text
    page.write_text(text.replace("4 forecast", "9 forecast", 1), encoding="utf-8")
    assert "9 forecast" in problems(study)
