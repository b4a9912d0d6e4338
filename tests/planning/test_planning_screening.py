"""The checked fast mode: what is scored both ways, and which elites it keeps on real frames."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_planning_model import random_lewm

from dreamcheck.models.registry import load_model
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.noise import EpisodeNoise
from dreamcheck.planning.objectives import GoalLatent
from dreamcheck.planning.screening import (
    CALIBRATION,
    Compared,
    ScreenedCost,
    ScreeningReport,
    _first,
)
from dreamcheck.planning.solvers import CEM
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.tasks.protocol import ActionBox
from dreamcheck.tasks.registry import get_task

torch.set_num_threads(1)

BOX = ActionBox((-1.0, -1.0), (1.0, 1.0))


@pytest.mark.parametrize(("num", "last"), [(300, 29), (300, 0), (300, 299), (64, 7), (40, 39)])
def test_thirty_two_candidates_give_the_margin_and_half_of_them_lie_at_the_boundary(num, last):
    ranks, calibrating = _first(num, last)
    assert len(set(ranks.tolist())) == len(ranks) and calibrating.sum() == CALIBRATION
    chosen = ranks[calibrating]
    assert ((chosen - last).abs() <= CALIBRATION).sum() >= CALIBRATION // 2
    # The rest reach both ends, but for what already lies at the boundary.
    assert ranks.min() == 0 and ranks.max() == num - 1


def test_few_candidates_are_all_scored_both_ways():
    ranks, calibrating = _first(20, 5)
    assert ranks.tolist() == list(range(20)) and calibrating.all()


class _Ranked:
    """A cost equal to the only number of a candidate, plus an error; counts what it scored."""

    def __init__(self, error=0.0):
        self.error, self.scored = error, []

    def rows(self, index):
        return self

    def __call__(self, candidates):
        self.scored.append(candidates.shape[1])
        cost = candidates[:, :, 0, 0]
        return cost + self.error * torch.where(cost.round().long() % 2 == 0, 1.0, -1.0)


def test_everything_within_the_margin_is_scored_again_and_nothing_else():
    # Costs 0..299, even ones 20.25 too high, odd ones as much too low: the margin is 20.25, and
    # some 40 rough costs lie within it. 48 candidates go first, what is left in one padded call.
    tried = torch.randperm(300, generator=torch.Generator().manual_seed(0)).float()
    candidates = tried.view(1, 300, 1, 1)
    exact, report = _Ranked(), ScreeningReport()
    fast = _Ranked(20.25)
    costs = ScreenedCost(fast, exact, num_elites=30, report=report)(candidates)[0]
    rough = fast(candidates)[0]
    boundary = rough.sort().values[29]
    near = (rough - boundary).abs() <= 20.25
    assert torch.equal(costs[near], tried[near])
    assert set(costs.argsort()[:30].tolist()) == set(tried.argsort()[:30].tolist())
    kept = costs == rough
    assert kept.sum() == 300 - round(report.rescored[0] * 300) and exact.scored[0] == 48
    assert report.fallbacks == 0 and all(n % 16 == 0 for n in exact.scored)


def test_an_error_that_only_costly_candidates_have_still_widens_the_margin():
    class FarWrong(_Ranked):
        def __call__(self, candidates):
            cost = candidates[:, :, 0, 0]
            return cost + 1e4 * (cost > 150)

    exact, report = _Ranked(), ScreeningReport()
    candidates = torch.arange(300.0).view(1, 300, 1, 1)
    costs = ScreenedCost(FarWrong(), exact, num_elites=30, report=report)(candidates)
    assert report.fallbacks == 1 and torch.equal(costs[0], candidates[0, :, 0, 0])


def test_the_agreement_counts_elites_of_the_same_candidates():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    g = torch.Generator().manual_seed(0)
    given = Contexts(
        torch.randn(2, 1, 16, generator=g), np.zeros((2, 0, 10), np.float32), torch.randn(2, 16)
    )
    exact = ModelCost(model, given, GoalLatent(model), space)

    class Worst:
        num_elites = 10

        def __call__(self, candidates):
            costs = exact(candidates)
            costs[1] = -costs[1]
            return costs

    both = Compared(exact, Worst())
    candidates = torch.randn(2, 40, 5, 10, generator=g)
    assert torch.equal(both(candidates), exact(candidates))
    # Episode 0 keeps all ten, episode 1 (ranks turned round) none of 40.
    assert both.agreement == [1.0, 0.0]


def test_the_shipped_model_keeps_99_percent_of_its_elites_on_real_frames():
    model, task = load_model("tworoom-small"), get_task("tworoom")
    state = task.reset(None, [11, 12])
    side = model.conventions.image_size
    seen, goals = (
        model.encode({"pixels": torch.from_numpy(o["pixels"])}).detach()
        for o in (
            task.observe(state, ("pixels",), image_size=side),
            task.goal_observation(state, image_size=side),
        )
    )
    given = Contexts(seen[:, None], np.zeros((2, 0, 10), np.float32), goals)
    space = PlannerSpace("dense_normalised", model.conventions, task.action_box)
    score, report = GoalLatent(model), ScreeningReport()
    exact = ModelCost(model, given, score, space)
    fast = ModelCost(model, given, score, space, path="bfloat16")
    both = Compared(exact, ScreenedCost(fast, exact, num_elites=30, report=report))
    CEM(iterations=5).solve(both, rows=2, horizon=5, width=10, noise=EpisodeNoise(0, list("ab")))
    assert len(both.agreement) == 10 and np.mean(both.agreement) >= 0.99
    # Not by scoring everything in float32.
    assert report.to_dict()["mean_rescored"] < 0.5 and report.fallbacks == 0
