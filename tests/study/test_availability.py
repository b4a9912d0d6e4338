"""Capped validation: what was selected, what is complete, and what is said of the rest."""

import numpy as np
import pytest

import small_study
from dreamcheck.evidence import Store
from dreamcheck.reports import verify_study, write_report
from dreamcheck.study.availability import group_availability
from dreamcheck.study.measuring import Aggregate
from toys import CentroidModel


def aggregate(losses):
    return Aggregate(
        seeds=tuple(range(16, 16 + len(losses))), losses=tuple(losses), measurements=("m",) * 3,
        risk=None if None in losses else 1.0, frozen=None, floor=None, activity={}, support={},
        stratum=None, failure="nan: latent" if None in losses else None,
    )  # fmt: skip


def test_incomplete_inputs_are_counted_and_named_by_their_missing_seeds():
    members = {"a": aggregate([1.0, 2.0, 3.0]), "b": aggregate([None, 2.0, None])}
    found = group_availability("shortlist", members, {})
    assert (found["num_inputs"], found["num_complete"], found["num_undecided"]) == (2, 1, 0)
    assert found["incomplete"] == [
        {"input": "b", "num_missing": 2, "seeds_missing": [16, 18], "why": "nan: latent"}
    ]


class Flickers(CentroidModel):
    """Fails on some validation rollouts only: NaN where the position's last digits say so."""

    def encode(self, observation):
        z = super().encode(observation)
        bad = (z[:, 0] * 97.0).round() % 23 == 0
        z[bad] = float("nan")
        return z


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s"
    checks = {"top_k": 2, "references": 30, "anchors": 0, "strips": 0, "per_restart": 1,
              "shell_size": 0, "edit_budget": 0}  # fmt: skip
    small_study.run_at(path, model=Flickers(), checks=checks)
    return path


def test_a_capped_validation_says_what_it_selected_and_what_is_missing(study):
    with Store.read(study) as store:
        found = store.get("availability", "start-goal-prefix").payload
        traces = [r.payload for r in store.records("trace", method="basinlens")]
        validated = [r.payload for r in store.records("validation", partition="validation")]
        seeds = store.seeds
    # One input per restart: two restarts hand on their best.
    assert found["per_restart"] == 1 and found["restarts"] == 2
    bests = {t["top"][0] for t in traces}
    assert found["num_unique"] == len(bests)
    groups = {g["group"]: g for g in found["groups"]}
    assert {v["input"] for v in validated if v["group"] == "shortlist"} == bests
    assert sum(len(g["incomplete"]) for g in found["groups"]) > 0  # the model does flicker
    for group, told in groups.items():
        own = [v for v in validated if v["group"] == group]
        assert told["num_inputs"] == len(own)
        assert told["num_complete"] == sum(None not in v["losses"] for v in own)
        named = {r["input"] for r in told["incomplete"]}
        assert named == {v["input"] for v in own if None in v["losses"]}
        assert all("nan" in r["why"].lower() for r in told["incomplete"])
    # Never filled: every loss belongs to a validation seed.
    assert all(set(v["seeds"]) <= set(seeds["validation"]) for v in validated)


def test_the_report_says_it_and_verifies(study):
    page = write_report(study).read_text()
    assert "incomplete, and not filled in" in page and "Complete on every seed used" in page
    assert verify_study(study).ok


def test_without_a_cap_the_study_says_so(tmp_path):
    small_study.run_at(
        tmp_path / "s",
        checks={"top_k": 1, "references": 20, "anchors": 0, "strips": 0, "shell_size": 0,
                "edit_budget": 0},
    )  # fmt: skip
    with Store.read(tmp_path / "s") as store:
        found = store.get("availability", "start-goal-prefix").payload
    assert found["per_restart"] is None and found["cap_inputs"] == 1
    assert found["num_left_out"] == found["num_unique"] - 1 > 0
    assert all(g["num_complete"] == g["num_inputs"] for g in found["groups"])
    assert np.all([g["incomplete"] == [] for g in found["groups"]])
