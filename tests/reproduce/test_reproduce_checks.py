"""Checks and reports: what agrees, what misses, and how a miss ends."""

import json
import math

import numpy as np
import pytest

from dreamcheck.errors import EvidenceError, ExitCode
from dreamcheck.reproduce import Report, Tolerance, compare


def test_a_float_agrees_within_its_tolerance_and_misses_beyond_it():
    reach = Tolerance(absolute=1e-3)
    assert compare("a", 0.5, 0.5009, tolerance=reach).ok
    assert not compare("a", 0.5, 0.5011, tolerance=reach).ok
    relative = Tolerance(relative=1e-6)
    assert compare("p", 3e-31, 3.0000001e-31, tolerance=relative).ok
    assert not compare("p", 3e-31, 3.1e-31, tolerance=relative).ok


def test_counts_are_exact_and_true_is_not_one():
    assert compare("n", 50, 50).ok and not compare("n", 50, 51).ok
    assert not compare("flag", True, 1).ok and compare("flag", True, True).ok
    assert not compare("x", 0.1 + 0.2, 0.3).ok


def test_nothing_is_not_a_number():
    assert compare("m", None, None).ok
    assert not compare("m", None, 0.0).ok and not compare("m", 1.0, None).ok
    assert compare("m", math.nan, math.nan).ok and not compare("m", 1.0, math.nan).ok


def test_lists_and_mappings_agree_in_every_part():
    reach = Tolerance(absolute=0.1)
    assert compare("l", [1.0, {"a": 2}], [1.05, {"a": 2.05, "more": 3}], tolerance=reach).ok
    assert not compare("l", [1.0, 2.0], [1.0], tolerance=reach).ok
    assert not compare("l", [1.0, {"a": 2}], [1.0, {}], tolerance=reach).ok
    assert not compare("l", ["x"], "x").ok


def test_one_miss_decides_the_exit_code_and_is_named():
    report = Report("table")
    report.checks = [compare("first", 1, 1), compare("second/rate", 0.84, 0.86)]
    assert not report.ok and report.exit_code == ExitCode.INTEGRITY == 5
    with pytest.raises(EvidenceError, match="second/rate") as caught:
        report.raise_for_misses()
    assert caught.value.exit_code == 5
    report.checks = report.checks[:1]
    report.raise_for_misses()
    assert report.exit_code == ExitCode.DONE


def test_a_report_without_a_check_is_not_a_success():
    report = Report("empty")
    assert report.exit_code == ExitCode.INTEGRITY
    with pytest.raises(EvidenceError, match="nothing was checked"):
        report.raise_for_misses()


def test_lines_show_verdict_values_and_tolerance():
    report = Report("table", notes=["mind the gap"])
    report.checks = [
        compare("a/rate", 0.84, 0.84, tolerance=Tolerance(absolute=1e-9)),
        compare("a/n", 50, 49),
    ]
    assert report.lines() == [
        "ok   a/rate: expected 0.84, got 0.84 (±1e-09)",
        "MISS a/n: expected 50, got 49 (exact)",
        "note mind the gap",
        "table: 1 of 2 agree",
    ]
    assert len(report.lines(only_misses=True)) == 3


def test_the_json_record_has_the_five_fields_and_no_nan(tmp_path):
    report = Report("table", values={"arms": [{"id": "x", "sd": math.nan, "n": np.int64(3)}]})
    report.checks = [compare("a", [1.0, math.inf], [1.0, math.inf])]
    path = tmp_path / "out.json"
    report.write_json(path)
    record = json.loads(path.read_text())
    assert set(record) == {"checks", "values"}
    assert set(record["checks"][0]) == {"id", "expected", "got", "tolerance", "ok"}
    assert record["values"]["arms"] == [{"id": "x", "sd": None, "n": 3}]
    assert list(tmp_path.iterdir()) == [path]
