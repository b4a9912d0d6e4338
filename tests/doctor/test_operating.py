"""No check whose false-alarm rate is unknown, and docs that say what was measured."""

import json
from importlib import resources
from pathlib import Path

from dreamcheck.doctor.operating import BEGIN, END, FILE, operating, operating_text, table
from dreamcheck.doctor.registry import all_checks

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"


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
