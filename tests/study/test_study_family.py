"""Siblings, the third seed partition and basins of one small study."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.reports import write_report
from dreamcheck.study import Study
from dreamcheck.study.running import run
from small_study import bench, config
from toys import CentroidModel

FRESH = list(range(64, 80))


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    directory = tmp_path_factory.mktemp("family")
    seeds = {
        "search": [0, 1], "validation": list(range(16, 32)), "neighbourhood": [48, 49],
        "reselection": FRESH,
    }  # fmt: skip
    live = bench(CentroidModel(gain=0.2))
    live = dataclasses.replace(live, siblings={"right": bench(CentroidModel(gain=1.0))})
    with Study.at(directory, config(seeds=seeds, siblings=["right"]), live) as study:
        run(study)
    return directory


def test_every_judged_input_has_a_sibling_record_with_the_sibling_on_the_same_seeds(family):
    with Store.read(family) as store:
        rows = [r.payload for r in store.records("sibling")]
        judged = [r.payload for r in store.records("finding")]
    assert {(r["group"], r["input"]) for r in rows} == {(f["group"], f["input"]) for f in judged}
    for r in rows:
        assert r["num_siblings"] == 1 and r["checkpoints"][0]["name"] == "right"
        assert r["z"] is None and "2 are needed" in r["z_reason"]


def test_a_failure_that_the_sibling_does_not_share_is_this_checkpoints(family):
    with Store.read(family) as store:
        findings = [r.payload for r in store.records("finding", group="shortlist")]
        rows = {r.payload["input"]: r.payload for r in store.records("sibling", group="shortlist")}
    for f in findings:
        r = rows[f["input"]]
        assert r["mean_risk"] < f["risk"]
        assert f["sibling_label"] == r["label"]
        if f["headline"]:
            assert r["label"] == "this checkpoint"


def test_what_is_selected_again_is_measured_on_the_third_partition_only(family):
    with Store.read(family) as store:
        again = [r.payload for r in store.records("reselection")]
        confirmed = {
            r.payload["input"]
            for r in store.records("finding", group="shortlist", verdict="confirmed")
        }
    assert again and confirmed <= {r["input"] for r in again}
    assert all(r["seeds"] == FRESH for r in again)


def test_the_variance_split_adds_up(family):
    with Store.read(family) as store:
        split = store.get("variance", "start-goal-prefix").payload
    assert split["num_checkpoints"] == 2 and split["num_seeds"] == 16
    if split["shares"]:
        assert sum(split["shares"].values()) == pytest.approx(1, abs=0.05)


def test_the_report_says_all_of_it_and_every_number_is_recomputed(family):
    from dreamcheck.reports import verify_study

    page = write_report(family).read_text(encoding="utf-8")
    assert "Hard for everyone, or this checkpoint?" in page
    assert "a third set of seeds" in page
    assert "Loss variance of" in page
    assert verify_study(family).ok
    assert json.loads((family / "report.json").read_text())


def test_a_sibling_named_twice_or_equal_to_the_model_is_refused():
    with pytest.raises(UsageError, match="'toy' is named twice"):
        config(siblings=["toy"])


def test_too_small_a_third_partition_is_refused_with_the_number():
    seeds = {"search": [0, 1], "validation": list(range(16, 32)), "neighbourhood": [48, 49],
             "reselection": [64, 65]}  # fmt: skip
    with pytest.raises(UsageError, match="16"):
        config(seeds=seeds)


def test_the_smallest_change_is_recorded_step_by_step_or_says_why_there_is_none(family):
    with Store.read(family) as store:
        path = store.get("edit-path", "start-goal-prefix").payload
    assert path["evaluated"] <= path["budget"]
    if not path["found"]:
        assert path["reason"]
        return
    assert path["steps"][-1]["verdict"] == "confirmed"
    assert len(path["steps"]) == path["num_edits"] + 1


def test_the_page_counts_inputs_by_support_and_says_how_far_the_probes_are_apart(family):
    page = write_report(family).read_text(encoding="utf-8")
    shown = {n["id"]: n for n in json.loads((family / "report.json").read_text())["numbers"]}
    with Store.read(family) as store:
        evaluations = [r.payload["stratum"] for r in store.records("evaluation")]
        found = [r.payload for r in store.records("finding", group="shortlist")]
        names = next(iter(store.records("library"))).payload["names"]
    for stratum in ("in", "edge", "out"):
        at = f"start-goal-prefix.stratum-{stratum}"
        assert shown[f"{at}.evaluated"]["value"] == evaluations.count(stratum)
        own = [f for f in found if f["stratum"] == stratum]
        assert shown[at]["value"] == len(own)
        assert shown[f"{at}.confirmed"]["value"] == sum(f["verdict"] == "confirmed" for f in own)
    assert sum(evaluations.count(s) for s in ("in", "edge", "out")) == len(evaluations)
    assert "its two probes apart on imagined latents" in page
    # Every table names coordinates in the specification's order, not sorted.
    assert names != sorted(names) and f"{names[0]}=" in page
    assert f'<td class="mono input">{sorted(names)[0]}=' not in page


def test_one_checkpoint_is_given_no_share_of_the_variance(tmp_path):
    from small_study import run_at

    run_at(tmp_path / "s")
    page = write_report(tmp_path / "s").read_text(encoding="utf-8")
    assert "Loss variance of" in page
    assert "between checkpoints" not in page and "between inputs" in page


def test_a_library_whose_every_neighbour_is_invalid_names_the_first_anchor(tmp_path):
    from small_study import run_at

    spec = tmp_path / "apart.toml"
    grid = "[28, 48, 68, 88]"
    spec.write_text(
        'name = "apart"\ntask = "tworoom"\ntitle = "t"\nsource = "t"\n'
        f'[[coordinates]]\nname = "start_x"\nkind = "grid"\nvalues = {grid}\nunit = "px"\n'
        f'[[coordinates]]\nname = "goal_x"\nkind = "grid"\nvalues = {grid}\nunit = "px"\n'
        '[[rules]]\nrule = "min_distance"\na = ["start_x"]\nb = ["goal_x"]\nmin = 60\n',
        encoding="utf-8",
    )
    search = {"specification": str(spec), "methods": ["random", "basinlens"],
              "primary": "basinlens", "budget": 2, "restart_seeds": [1]}  # fmt: skip
    run_at(tmp_path / "s", searches=[search], floor_samples=0)
    with Store.read(tmp_path / "s") as store:
        default = store.get("persistence", str(spec)).payload["default"]
    # |start_x - goal_x| >= 60 leaves (28, 88) and (88, 28).
    assert "no valid neighbour at all, the first is start_x" in default["reason"]
    assert write_report(tmp_path / "s").is_file()
