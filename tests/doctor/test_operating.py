"""No check whose false-alarm rate is unknown, and docs that say what was measured."""

import json
import runpy
from importlib import resources
from pathlib import Path

from dreamcheck.doctor.operating import BEGIN, END, FILE, operating, operating_text, table
from dreamcheck.doctor.registry import all_checks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "doctor.md"
BENCHMARK = ROOT / "benchmarks" / "doctor.py"


def test_every_check_has_operating_characteristics():
    for check in all_checks():
        found = operating(check.name)
        assert found is not None, f"{check.name}: run benchmarks/doctor.py --write"
        assert found["clean"] >= 8 and found["faulty"] >= 2
        assert found["found"] > 0 and found["smallest_found"] is not None
        assert f"{found['false_alarms']} false alarms" in operating_text(check.name)


def test_the_table_in_the_docs_is_the_one_that_ships():
    text = (resources.files("dreamcheck.doctor") / FILE).read_text(encoding="utf-8")
    document = json.loads(text)
    inside = DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert inside.strip() == table(document).strip()
    assert document["cases"] >= 200


def test_a_check_that_was_never_measured_says_so():
    assert operating("colour") is None
    assert "not measured" in operating_text("colour")


def test_measuring_one_check_again_leaves_the_others_as_they_were():
    kept = runpy.run_path(str(BENCHMARK))["kept"]
    before = {"made_by": "all", "cases": 30, "checks": {
        "a": {"clean": 8, "faulty": 2}, "b": {"clean": 16, "faulty": 4}}}  # fmt: skip
    after = kept(before, {"b": {"clean": 20, "faulty": 5}}, "only b")
    assert after["checks"]["a"] == before["checks"]["a"] and after["checks"]["b"]["clean"] == 20
    assert after["cases"] == 8 + 2 + 20 + 5 and after["made_by"] == "all"
    assert kept(None, {"b": {"clean": 20, "faulty": 5}}, "new")["made_by"] == "new"
