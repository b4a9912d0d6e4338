"""`dreamcheck compare` and `search-protocols` as typed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dreamcheck.cli.main import app
from dreamcheck.discovery import Library, get_specification

run = CliRunner().invoke
SMALL = ["--specification", "iris-prefix-36", "--methods", "random,beam", "--primary", "beam", "--restarts", "0-3",
         "--budgets", "4,6", "--workers", "1", "--quiet"]  # fmt: skip


@pytest.fixture
def tables(tmp_path):
    library = Library.build(get_specification("iris-prefix-36"))
    for k in range(2):
        scores = 2 + np.random.default_rng(k).random(36)
        np.savez(tmp_path / f"t{k}.npz", id=np.array(library.ids()), scores=scores)
    return [str(tmp_path / f"t{k}.npz") for k in range(2)]


def test_compare_prints_figures_and_what_they_are_conditional_on(tables, tmp_path):
    done = run(app, ["compare", tables[0], *SMALL, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    for said in ("budget 6", "best ± SEM", "W/L/T", "conditional on that table", "6 are needed"):
        assert said in done.output
    assert (tmp_path / "out/report.html").is_file()


def test_compare_json_holds_every_table(tables):
    done = run(app, ["compare", *tables, *SMALL, "--thresholds", "2.50,99", "--json"])
    found = json.loads(done.stdout)
    assert [t["label"] for t in found["tables"]] == ["t0", "t1"]
    assert found["tables"][0]["thresholds"] == [250, 9900]
    assert found["tables"][0]["budgets"][0]["never_crossed"] == [9900]
    assert found["across"][0]["needed"] == 6 and found["protocol"]["name"] == "default, changed"


def test_bad_options_say_what_is_wrong(tables):
    for option, value, message in (
        ("--thresholds", "1.555", "at most two decimals"),
        ("--budgets", "8-4", "backwards"),
        ("--endpoint", "luck", "not one of best"),
        ("--protocol", "pusht-12016", "is for the library"),
    ):
        done = run(app, ["compare", tables[0], *SMALL, option, value])
        assert done.exit_code != 0 and message in str(done.exception), option


def test_search_protocols_are_listed_and_shown():
    assert "pusht-3510-b" in run(app, ["search-protocols"]).output
    shown = run(app, ["search-protocols", "pusht-3510-b"]).output
    assert 'restart = "256-383"' in shown
