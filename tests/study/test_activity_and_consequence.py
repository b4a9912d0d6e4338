"""Task activity and the consequence's utility, on numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import small_study
from dreamcheck.errors import GuardRefused
from dreamcheck.study import Study
from dreamcheck.study.activity import ActivityFloors, FixedFloors
from dreamcheck.study.consequence import MPC, consequence_table, utility
from dreamcheck.study.searching import evaluate
from dreamcheck.tasks.tworoom import Zero

RESET = {"progress": 0.1, "contact": 20.0, "path": 60.0}


def test_floors_and_violations_by_hand():
    floors = ActivityFloors.of_reset(RESET, seeds=(0,))
    assert (floors.progress, floors.contact, floors.path) == (pytest.approx(-0.05), 10.0, 30.0)
    v = floors.violations({"progress": -0.15, "contact": 5.0, "path": 15.0})
    # 0.10 short over max(0.1, 0.05) = 1; 5 short over 10 = 0.5; 15 short over 30 = 0.5.
    assert [v[k] for k in ("progress", "contact", "path")] == pytest.approx([1.0, 0.5, 0.5])
    assert floors.penalty({"progress": -0.15, "contact": 5.0, "path": 15.0}) == pytest.approx(40)
    assert floors.penalty(RESET) == 0


def test_a_reset_far_from_its_goal_cannot_push_the_progress_floor_below_minus_one():
    floors = ActivityFloors.of_reset({**RESET, "progress": -2.0}, seeds=(0,))
    assert floors.progress == -1.0


@pytest.mark.parametrize("still", [{"contact": 0.0}, {"path": 0.0}])
def test_a_floor_from_a_reset_that_never_touches_the_block_is_refused(still):
    with pytest.raises(GuardRefused, match=r"seeds \[4, 5\] the default reset has"):
        ActivityFloors.of_reset({**RESET, **still}, seeds=(4, 5))


def test_a_study_whose_reset_never_touches_anything_refuses_before_it_scores(tmp_path):
    config = small_study.config(activity="pusht", policy={"name": "zero"})
    bench = replace(small_study.bench(), policy=Zero())  # the agent never moves
    with Study.at(tmp_path / "s", config, bench) as study:
        search = config.searches[0]
        with pytest.raises(GuardRefused, match="every input would pass"):
            evaluate(study, search, study.library(search).ids()[0])
        assert study.store.count("measurement") > 0  # what was measured is kept


@pytest.mark.parametrize(
    ("change", "penalty"),
    [({}, 0), ({"contact": 0.99}, 2), ({"path": 9.9}, 2), ({"progress": -1.01, "path": 0}, 2)],
)
def test_fixed_floors_cost_two_whatever_is_missing(change, penalty):
    # Exactly at every floor of the DINO-WM rule an input is task-active.
    at = {"contact": 1.0, "path": 10.0, "progress": -1.0}
    assert FixedFloors().penalty({**at, **change}) == penalty


def test_the_utility_of_one_straight_push_by_hand():
    # The block moves from 100 px to 40 px from its goal in two steps of 10 and 50 px, agent beside.
    block = np.array([[[0.0, 0], [10, 0], [60, 0]]])
    agent = block - [30, 0]
    goal = np.array([[100.0, 0]])
    # g = 0.4, p = 0.6, m = u = c = 1.
    assert utility(agent, block, goal, mpc=MPC())[0] == pytest.approx(-0.4 + 0.48 + 0.3 + 0.2 + 0.2)
    # The agent out of reach: u = c = 0.
    assert utility(agent - [500, 0], block, goal, mpc=MPC())[0] == pytest.approx(0.38)
    # Moving away: g = 1.6 over 2 steps, nothing falls, but the block moves beside the agent.
    back = utility(-agent, -block, goal, mpc=MPC())[0]
    assert back == pytest.approx(-1.6 + 0.8 * -0.6 + 0.2)


def test_the_consequence_table_counts_wins_and_sign_reversals():
    cases = [
        {"model": -0.1, "oracle": 0.4, "random": 0.0},
        {"model": 0.2, "oracle": 0.3, "random": 0.0},
        {"model": 0.2, "oracle": 0.2, "random": 0.0},
    ]
    table = consequence_table(cases)
    assert table["sign_reversals"] == 1 and table["gap"] == pytest.approx(0.2)
    test = table["oracle_against_model"]
    assert (test["wins"], test["losses"], test["ties"], test["p"]) == (2, 0, 1, 0.25)
