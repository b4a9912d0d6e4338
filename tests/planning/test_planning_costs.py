"""Model costs: the fast path equals the generic one, batch-mates change no bit, units are right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_planning_model import SCALE, ToyModel, ToyReadout, random_lewm

from dreamcheck.errors import UsageError
from dreamcheck.imagination.runner import open_loop
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.lewm_rollout import LeWMRollout
from dreamcheck.planning.noise import EpisodeNoise
from dreamcheck.planning.objectives import (
    DecodedState,
    GoalLatent,
    RewardValue,
    TemporalDistance,
    Weighted,
    fit_temporal,
)
from dreamcheck.planning.screening import ScreenedCost, ScreeningReport
from dreamcheck.planning.solvers import CEM, Gradient
from dreamcheck.planning.space import Driving, PlannerSpace, check_action_box
from dreamcheck.tasks.protocol import ActionBox

torch.set_num_threads(1)

BOX = ActionBox((-1.0, -1.0), (1.0, 1.0))


def contexts(rows, *, h=1, width=16, seed=0):
    g = torch.Generator().manual_seed(seed)
    return Contexts(
        torch.randn(rows, h, width, generator=g),
        torch.randn(rows, h - 1, 10, generator=g).numpy(),
        torch.randn(rows, width, generator=g),
    )


def candidates(rows, k=40, horizon=5, seed=1):
    return torch.randn(rows, k, horizon, 10, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("h", [1, 2, 3, 4])
@pytest.mark.parametrize("history", [1, 3])
def test_the_fast_lewm_path_equals_the_generic_one_within_1e_5(h, history):
    model = random_lewm(history=history)
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    given = contexts(2, h=h)
    slow = ModelCost(model, given, GoalLatent(model), space, path="generic")(candidates(2))
    fast = ModelCost(model, given, GoalLatent(model), space)(candidates(2))
    assert slow.std() > 1e-3
    assert ((fast - slow).abs() / slow.abs()).max() < 1e-5


def test_the_fast_rollout_equals_predict_step_by_step_at_every_step():
    model = random_lewm()
    actions = model.embed_actions(torch.randn(6, 8, 10))
    latents = torch.randn(6, 1, 16)
    with torch.no_grad():
        slow = open_loop(model, latents, actions, generic=True)
        fast = LeWMRollout(model.module).rollout(latents, actions)
    assert torch.allclose(fast, slow, atol=2e-5, rtol=1e-5)


def test_the_fast_path_follows_the_weights_when_they_change():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    before = ModelCost(model, contexts(1), GoalLatent(model), space)(candidates(1))
    with torch.no_grad():
        model.module.prediction_head.down.bias.add_(1.0)
    after = ModelCost(model, contexts(1), GoalLatent(model), space)(candidates(1))
    slow = ModelCost(model, contexts(1), GoalLatent(model), space, path="generic")(candidates(1))
    assert (after - before).abs().max() > 0.1 and torch.allclose(after, slow, rtol=1e-5)


def test_one_episode_alone_gets_the_bits_it_gets_among_others():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    every, three = contexts(5), np.array([3])
    for per_call in (1, 2):
        cost = ModelCost(model, every, GoalLatent(model), space, episodes_per_call=per_call)
        together = CEM(num_samples=40, num_elites=5, iterations=4).solve(
            cost, rows=5, horizon=5, width=10, noise=EpisodeNoise(1, list("abcde"))
        )
        alone = CEM(num_samples=40, num_elites=5, iterations=4).solve(
            cost.rows(three), rows=1, horizon=5, width=10, noise=EpisodeNoise(1, ["d"])
        )
        assert np.array_equal(alone.actions[0], together.actions[3])


def test_screening_keeps_the_elites_and_reports_what_it_rescored():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    given, tried = contexts(3), candidates(3, k=300)
    exact = ModelCost(model, given, GoalLatent(model), space)
    report = ScreeningReport()
    screened = ScreenedCost(
        ModelCost(model, given, GoalLatent(model), space, path="bfloat16"),
        exact,
        num_elites=30,
        report=report,
    )
    a = exact(tried).argsort(dim=1)[:, :30]
    b = screened(tried).argsort(dim=1)[:, :30]
    agreement = np.mean(
        [len(set(x.tolist()) & set(y.tolist())) / 30 for x, y in zip(a, b, strict=True)]
    )
    assert agreement > 0.97
    told = report.to_dict()
    assert told["iterations"] == 3 and 0 < told["mean_rescored"] <= 1


def test_screening_falls_back_to_float32_when_half_the_candidates_are_within_the_margin():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    given, tried = contexts(1), candidates(1, k=64)
    exact = ModelCost(model, given, GoalLatent(model), space)

    class Rough:
        def __call__(self, c):
            return exact(c) + 1e3 * torch.arange(64.0).fmod(2)

    report = ScreeningReport()
    made = ScreenedCost(Rough(), exact, num_elites=8, report=report)(tried)
    assert report.fallbacks == 1 and torch.equal(made, exact(tried))


def test_gradients_flow_through_the_fast_path_and_match_the_generic_one():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    plans = [
        Gradient(num_starts=3, steps=4)
        .solve(
            ModelCost(model, contexts(1), GoalLatent(model), space, path=path),
            rows=1,
            horizon=3,
            width=10,
            noise=EpisodeNoise(0, ["a"]),
        )
        .actions
        for path in ("exact", "generic")
    ]
    assert np.allclose(plans[0], plans[1], atol=1e-3)


def test_gradients_through_a_moving_window_match_the_generic_path():
    model = random_lewm()
    space = PlannerSpace("dense_normalised", model.conventions, BOX)
    gradients = []
    for path in ("exact", "generic"):
        tried = candidates(1, k=32, horizon=5).requires_grad_()
        ModelCost(model, contexts(1), GoalLatent(model), space, path=path)(tried).sum().backward()
        gradients.append(tried.grad)
    assert gradients[1].abs().max() > 1e-3
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-5)


def test_goal_latent_is_the_squared_distance_of_the_last_step():
    model = ToyModel()
    latents = torch.zeros(1, 2, 3, 2)
    latents[0, 1, -1] = torch.tensor([3.0, 4.0])
    goal = torch.zeros(1, 2)
    actions = torch.zeros(1, 2, 3, 10)
    assert GoalLatent(model)(latents, goal, actions).tolist() == [[0.0, 25.0]]
    # The readout scales by 32 px: 25 x 32^2.
    assert DecodedState(ToyReadout())(latents, goal, actions).tolist() == [[0.0, 25.0 * SCALE**2]]
    both = Weighted(((2.0, GoalLatent(model)), (1.0, DecodedState(ToyReadout()))))
    assert both(latents, goal, actions)[0, 1].item() == 50.0 + 25.0 * SCALE**2
    with pytest.raises(UsageError, match="visual"):
        GoalLatent(model, parts={"visual": 1.0})


def test_weighted_parts_count_only_the_named_numbers():
    model = ToyModel()
    from dreamcheck.models.protocol import LatentSpec

    model.latent = LatentSpec(shape=(2,), parts={"x": (0, 1), "y": (1, 2)})
    latents = torch.tensor([3.0, 4.0]).reshape(1, 1, 1, 2)
    cost = GoalLatent(model, parts={"y": 0.5})(latents, torch.zeros(1, 2), torch.zeros(1, 1, 1, 10))
    assert cost.item() == 8.0


def test_reward_plus_value_discounts_and_negates():
    # Rewards 1 and 1 at discount 0.5, value 4: -(1 + 0.5) - 0.25 * 4 = -2.5.
    objective = RewardValue(
        reward=lambda z, a: torch.ones(len(z)), value=lambda z: torch.full((len(z),), 4.0),
        discount=0.5,
    )  # fmt: skip
    cost = objective(torch.zeros(1, 1, 2, 2), torch.zeros(1, 2), torch.zeros(1, 1, 2, 10))
    assert cost.item() == -2.5


def test_a_temporal_head_is_symmetric_and_learns_steps_apart():
    g = torch.Generator().manual_seed(0)
    walks = [
        torch.cumsum(torch.full((20, 1), 1.0), 0) + torch.randn(1, 1, generator=g) for _ in range(8)
    ]
    head, fit = fit_temporal(walks, frameskip=5, seed=0, steps=150)
    a, b = torch.randn(4, 1, generator=g), torch.randn(4, 1, generator=g)
    assert torch.equal(head.between(a, b), head.between(b, a))
    assert fit.heldout_mae < 0.5 * fit.baseline_mae
    assert isinstance(head, TemporalDistance)


def test_a_held_action_fills_its_block_and_slots_fill_only_theirs():
    c = ToyModel(std=0.5).conventions
    action = torch.tensor([[[0.5, -1.0]]])
    held = PlannerSpace("held", c, BOX)
    assert held.width == 2
    assert held.model_blocks(action).reshape(5, 2).tolist() == [[1.0, -2.0]] * 5
    assert held.raw(action.numpy()).tolist() == [[[0.5, -1.0]] * 5]
    slots = PlannerSpace(
        "held", c, BOX, Driving(encoding="slots", slots=(0, 1), scale=5.0, normalise=False)
    )
    assert slots.model_blocks(action).reshape(5, 2).tolist() == [[2.5, -5.0]] * 2 + [[0.0, 0.0]] * 3
    with pytest.raises(UsageError, match="slots"):
        PlannerSpace("dense_normalised", c, BOX, Driving(encoding="slots", slots=(0,)))


def test_bounds_of_normalised_candidates_are_the_box_in_their_units():
    c = ToyModel(std=0.5).conventions
    low, high = PlannerSpace("dense_normalised", c, BOX).bounds
    assert low.tolist() == [-2.0] * 10 and high.tolist() == [2.0] * 10


def test_an_action_box_that_the_models_actions_exceed_is_refused_by_name():
    # A deviation of 1.2 is impossible inside [-1, 1], where at most 1 is.
    model = ToyModel(std=1.2)
    with pytest.raises(UsageError, match=r"action_box\[0\].*1.2"):
        check_action_box(model.conventions, BOX)
    with pytest.raises(UsageError, match="action_dim is 2"):
        check_action_box(model.conventions, ActionBox((-1.0,), (1.0,)))


def test_past_blocks_must_lead_to_every_observed_latent():
    with pytest.raises(UsageError, match="3 observed latents need 2 past blocks"):
        Contexts(torch.zeros(1, 3, 2), np.zeros((1, 1, 10), np.float32), torch.zeros(1, 2))
