"""What a larger budget alone brings, read off one run: hand-worked, and equal to a second run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_planning_compare import Evaluated, arm, realised
from test_planning_evaluate import protocol
from toy_planning_model import ToyModel

from dreamcheck.errors import UsageError
from dreamcheck.planning.budget_response import budget_response
from dreamcheck.planning.evaluate import plan
from dreamcheck.tasks.tworoom import TwoRoom


def slow(*, after, streams=1, **changes):
    """Ten cases, all won, the first ``after`` of them only in step 80; budget 100."""
    made = arm(np.ones((10, streams)))
    outcomes = tuple(replace(o, steps=80 if o.episode < after else 20) for o in made.outcomes)
    rules = {"budget_steps": 100, "rng_mode": "per_episode", "success": "native", **changes}
    out = Evaluated(replace(made, outcomes=outcomes), "m")
    out.realised = realised(protocol=rules)
    out.label = "offset 50 / budget 100"
    return out


def test_a_large_gain_is_running_out_of_time():
    # Seven of ten in time only with 100 steps: p = 2 / 2^7.
    made = budget_response(slow(after=7), 50, name="m")
    assert (made.success, made.success_longer, made.gained) == (0.3, 1.0, 7)
    assert made.gain == pytest.approx(0.7) and made.p == pytest.approx(2 / 128)
    assert made.goal == "offset 50" and "it runs out of time" in made.verdict


def test_five_gained_episodes_do_not_establish_a_gain():
    # 2 / 2^5 = 0.0625: a one-sided table needs six discordant cases.
    made = budget_response(slow(after=5), 50, name="m")
    assert made.p == pytest.approx(0.0625) and "not established" in made.verdict
    assert "wrong way" not in made.verdict  # nothing was missed


def test_streams_are_averaged_inside_a_case():
    made = budget_response(slow(after=7, streams=3), 50, name="m")
    assert made.gained is None and made.num_streams == 3 and made.test.startswith("sign-flip")
    assert made.gain == pytest.approx(0.7)


def test_a_run_read_at_a_smaller_budget_is_the_run_with_that_budget():
    rules = protocol(streams=2, budget_steps=50)
    long = plan(ToyModel(speed=2.5), TwoRoom(), rules, controls=("random",), log=False)
    short = plan(
        ToyModel(speed=2.5), TwoRoom(), rules.replace(budget_steps=12), controls=("random",),
        log=False,
    )  # fmt: skip
    _, table = short.planner.table()
    kept = short.planner.table("trivial")[1][:, 0] == 0
    made = budget_response(long, 12, name="m")
    assert made.success == pytest.approx(table[kept].mean())
    assert made.success_longer == pytest.approx(long.planner.success.value)
    assert made.success_longer > made.success  # the budgets differ in what they reach


@pytest.mark.parametrize(
    ("changes", "budget", "said"),
    [
        ({}, 100, "not between 1 and 99"),
        ({"rng_mode": "shared"}, 50, "rng_mode"),
        ({"success": "at_end"}, 50, "judged at the end"),
    ],
)
def test_what_another_budget_would_have_done_is_not_guessed(changes, budget, said):
    with pytest.raises(UsageError, match=said):
        budget_response(slow(after=7, **changes), budget, name="m")
