"""Solvers: known optima, hand-worked refits, exact independence of batch-mates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.errors import UsageError
from dreamcheck.planning.noise import CommonNoise, EpisodeNoise, GivenNoise
from dreamcheck.planning.solvers import (
    CEM,
    ICEM,
    MPPI,
    Gradient,
    PredictiveSampling,
    make_solver,
)
from dreamcheck.planning.solvers.base import best
from dreamcheck.planning.solvers.icem import colour

torch.set_num_threads(1)

HORIZON, WIDTH = 3, 2
TARGETS = torch.tensor(np.random.default_rng(0).uniform(-0.8, 0.8, (4, HORIZON, WIDTH))).float()


def quadratic(targets=TARGETS):
    return lambda candidates: (candidates - targets[:, None]).pow(2).sum(dim=(2, 3))


def solve(solver, *, rows=4, cost=None, noise=None, **given):
    return solver.solve(
        cost or quadratic(),
        rows=rows,
        horizon=HORIZON,
        width=WIDTH,
        noise=noise or EpisodeNoise(7, [f"e{i}" for i in range(rows)]),
        **given,
    )


BOX = (np.full(WIDTH, -1.0, np.float32), np.full(WIDTH, 1.0, np.float32))


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [
        (CEM(), 0.02),
        (ICEM(iterations=30), 0.05),
        (MPPI(iterations=60, temperature=0.05), 0.35),
        (Gradient(num_starts=4, steps=80, weight_decay=0.0, learning_rate=0.1), 0.05),
        (Gradient(num_starts=1, steps=120, weight_decay=0.0, learning_rate=0.1), 0.05),
    ],
)
def test_each_solver_finds_the_optimum_of_a_quadratic_model(solver, tolerance):
    plan = solve(solver, bounds=BOX)
    assert np.abs(plan.actions - TARGETS.numpy()).max() < tolerance


def test_predictive_sampling_returns_the_cheapest_of_its_candidates():
    plan = solve(PredictiveSampling(num_samples=50), trace=True)
    step = plan.trace[0]
    for b in range(4):
        assert np.array_equal(plan.actions[b], step.candidates[b, step.costs[b].argmin()])


def test_one_cem_iteration_equals_the_refit_worked_by_hand():
    # Candidates 0, 1, 3, 10 (sample 0 is the mean); costs are their values; the two cheapest are
    # 0 and 1: mean 0.5, deviation with divisor 1: sqrt(0.5) = 0.70711.
    noise = GivenNoise(np.array([99.0, 1, 3, 10]).reshape(1, 1, 4, 1, 1))
    plan = CEM(num_samples=4, num_elites=2, iterations=1).solve(
        lambda c: c[:, :, 0, 0], rows=1, horizon=1, width=1, noise=noise, trace=True
    )
    assert plan.actions.item() == 0.5
    assert plan.trace[0].std.item() == pytest.approx(0.70711, abs=1e-5)
    assert plan.trace[0].elites.tolist() == [[0, 1]]
    # The margin is (3 - 1) / 3.
    assert plan.margins.item() == pytest.approx(2 / 3)


def test_mppi_weights_elites_by_a_softmax_of_cost_over_temperature():
    # Elites 0 and 1 with costs 0 and 0.5 at temperature 0.5: weights 1 and e^-1.
    noise = GivenNoise(np.array([0.0, 1, 3]).reshape(1, 1, 3, 1, 1))
    plan = MPPI(num_samples=3, num_elites=2, iterations=1).solve(
        lambda c: c[:, :, 0, 0] * 0.5, rows=1, horizon=1, width=1, noise=noise
    )
    assert plan.actions.item() == pytest.approx(np.exp(-1) / (1 + np.exp(-1)), abs=1e-6)


def test_the_spread_stays_finite_with_one_elite_and_with_equal_costs():
    one = solve(CEM(num_elites=1, iterations=4, num_samples=20), trace=True)
    assert np.isfinite(one.trace[-1].std).all() and (one.trace[-1].std == 1).all()
    flat = solve(
        CEM(iterations=3, num_samples=20, num_elites=5),
        cost=lambda c: torch.ones(c.shape[:2]),
        trace=True,
    )
    assert np.isfinite(flat.trace[-1].std).all() and (flat.trace[-1].std > 0).all()
    # Ties go to the lower index, and each such iteration is counted as a near-tie.
    assert flat.trace[0].elites.tolist() == [[0, 1, 2, 3, 4]] * 4
    assert flat.near_ties.tolist() == [3] * 4


@pytest.mark.parametrize(
    "solver",
    [CEM(num_samples=64, iterations=5), ICEM(num_samples=64), MPPI(num_samples=64),
     PredictiveSampling(), Gradient(num_starts=4, steps=5)],
)  # fmt: skip
def test_an_episode_planned_alone_equals_the_same_episode_among_others(solver):
    together = solve(solver, bounds=BOX)
    alone = solver.solve(
        quadratic(TARGETS[2:3]),
        rows=1,
        horizon=HORIZON,
        width=WIDTH,
        noise=EpisodeNoise(7, ["e2"]),
        bounds=BOX,
    )
    assert np.array_equal(alone.actions[0], together.actions[2])
    assert alone.elite_cost[0] == together.elite_cost[2]


def test_common_random_numbers_give_every_episode_the_same_candidates():
    plan = solve(CEM(num_samples=8, num_elites=2, iterations=1), noise=CommonNoise(3), trace=True)
    assert (plan.trace[0].candidates == plan.trace[0].candidates[:1]).all()
    own = solve(CEM(num_samples=8, num_elites=2, iterations=1), trace=True)
    assert not (own.trace[0].candidates[0] == own.trace[0].candidates[1]).all()


def test_a_larger_search_contains_the_smaller_one():
    noise = EpisodeNoise(7, ["a"])
    small = noise.normal(2, rows=1, shape=(10, HORIZON, WIDTH))
    large = noise.normal(2, rows=1, shape=(100, HORIZON, WIDTH))
    assert np.array_equal(large[:, :10], small)


def test_held_actions_are_clamped_in_their_own_units_and_the_share_outside_is_recorded():
    plan = solve(CEM(clamp=True, iterations=2, first_is_mean=False), bounds=BOX, trace=True)
    assert max(np.abs(step.candidates).max() for step in plan.trace) <= 1.0
    # Six standard normal numbers all inside [-1, 1] have probability 0.683^6 = 0.101.
    first = solve(CEM(iterations=1, first_is_mean=False), bounds=BOX)
    assert first.out_of_range.mean() == pytest.approx(0.899, abs=0.03)
    assert np.isnan(solve(CEM(iterations=1)).out_of_range).all()
    with pytest.raises(UsageError, match="action box"):
        solve(CEM(clamp=True))


def test_coloured_noise_has_unit_deviation_over_time_and_falls_with_frequency():
    white = torch.randn(1, 4000, 8, 1, generator=torch.Generator().manual_seed(0))
    made = colour(white, beta=2.0)
    assert torch.allclose(made.std(dim=2), torch.ones(1, 4000, 1), atol=1e-4)
    power = torch.fft.rfft(made, dim=2).abs().pow(2).mean(dim=(0, 1, 3))
    # Before the rescaling, power at bins 1, 2, 4 falls as 1, 1/4, 1/16 (bin 4 is real: half).
    assert power[1] / power[2] > 2.5 and power[2] / power[3] > 1.5
    assert torch.equal(colour(white[:, :, :1], beta=2.0), white[:, :, :1])


def test_the_gradient_solver_reads_the_index_before_and_the_actions_after_the_last_update():
    # From zero with lr 0.1 and no decay, Adam's first update is 0.1 against the gradient's sign.
    noise = GivenNoise(np.zeros((1, 1, 1, 1, 1)))
    plan = Gradient(num_starts=1, steps=1, weight_decay=0.0).solve(
        lambda c: (c - 5.0).pow(2).sum(dim=(2, 3)), rows=1, horizon=1, width=1, noise=noise
    )
    assert plan.elite_cost.item() == 25.0
    assert plan.actions.item() == pytest.approx(0.1, abs=1e-5)
    with pytest.raises(UsageError, match="no gradient"):
        solve(Gradient(num_starts=2, steps=1), cost=lambda c: c.detach().sum(dim=(2, 3)))


def test_costs_that_are_not_finite_or_misshapen_are_refused():
    with pytest.raises(UsageError, match="candidate 0 of episode 0"):
        solve(CEM(), cost=lambda c: torch.full(c.shape[:2], float("nan")))
    with pytest.raises(UsageError, match="one per episode and candidate"):
        solve(CEM(), cost=lambda c: torch.zeros(4))


def test_unknown_solvers_and_settings_are_named():
    with pytest.raises(UsageError, match="num_elite is no setting of cem"):
        make_solver("cem", num_elite=3)
    with pytest.raises(UsageError, match="'annealing'"):
        make_solver("annealing")
    with pytest.raises(UsageError, match="num_elites = 9"):
        CEM(num_samples=4, num_elites=9)


def test_best_orders_by_cost_then_index():
    index, margin = best(torch.tensor([[3.0, 1.0, 1.0, 2.0]]), 2)
    assert index.tolist() == [[1, 2]] and margin.item() == pytest.approx(0.5)
    assert best(torch.tensor([[3.0, 1.0]]), 2)[1].item() == np.inf


@pytest.mark.swm
@pytest.mark.parametrize("name", ["cem", "icem", "mppi", "predictive_sampling"])
def test_final_costs_agree_in_distribution_with_stable_worldmodel(name):
    pytest.importorskip("stable_worldmodel", reason="needs the [swm] extra")
    import gymnasium as gym
    from scipy.stats import ks_2samp
    from stable_worldmodel import solver as theirs
    from stable_worldmodel.policy import PlanConfig

    target = TARGETS[0] * 1.5

    class Model:
        def get_cost(self, info, candidates):
            return (candidates - target).pow(2).sum(dim=(2, 3))

    settings = {"num_samples": 60, "num_elites": 8, "iterations": 4}
    if name == "predictive_sampling":
        settings = {"num_samples": 60}
    ours = make_solver(name, **settings)
    cls = {
        "cem": "CEMSolver",
        "icem": "ICEMSolver",
        "mppi": "MPPISolver",
        "predictive_sampling": "PredictiveSamplingSolver",
    }[name]
    box = gym.spaces.Box(-1.0, 1.0, (1, WIDTH), np.float32)
    config = PlanConfig(horizon=HORIZON, receding_horizon=HORIZON, action_block=1)
    reference, mine = [], []
    for seed in range(60):
        given = {"num_samples": 60, "seed": seed}
        if name != "predictive_sampling":
            given |= {"topk": 8, "n_steps": 4}
        other = getattr(theirs, cls)(model=Model(), **given)
        other.configure(action_space=box, n_envs=1, config=config)
        made = other.solve({"x": torch.zeros(1, 1)})["actions"][0]
        reference.append(float((made - target).pow(2).sum()))
        plan = ours.solve(
            lambda c: (c - target).pow(2).sum(dim=(2, 3)),
            rows=1,
            horizon=HORIZON,
            width=WIDTH,
            noise=EpisodeNoise(seed, ["x"]),
            bounds=BOX,
        )
        mine.append(float(((plan.actions[0] - target.numpy()) ** 2).sum()))
    assert ks_2samp(mine, reference).pvalue > 0.01


def rough(candidates):
    """Many local minima, so that where a start lies decides where it ends."""
    target = TARGETS[0] * 1.5
    waves = (1 - torch.cos(4 * (candidates - target))).sum(dim=(2, 3))
    return (candidates - target).pow(2).sum(dim=(2, 3)) + waves


@pytest.mark.swm
@pytest.mark.parametrize("starts", [1, 20])
def test_the_gradient_solver_ends_where_stable_worldmodels_does(starts):
    pytest.importorskip("stable_worldmodel", reason="needs the [swm] extra")
    import gymnasium as gym
    from scipy.stats import ks_2samp
    from stable_worldmodel.policy import PlanConfig
    from stable_worldmodel.solver.gd import GradientSolver

    class Model:
        def get_cost(self, info, candidates):
            return rough(candidates)

    ours = make_solver("gradient", num_starts=starts, steps=15)
    box = gym.spaces.Box(-1.0, 1.0, (1, WIDTH), np.float32)
    config = PlanConfig(horizon=HORIZON, receding_horizon=HORIZON, action_block=1)
    reference, mine, plans = [], [], []
    for seed in range(1 if starts == 1 else 60):
        other = GradientSolver(
            model=Model(), n_steps=15, num_samples=starts, seed=seed,
            optimizer_cls=torch.optim.AdamW, optimizer_kwargs={"lr": 0.1},
        )  # fmt: skip
        other.configure(action_space=box, n_envs=1, config=config)
        made = other.solve({"x": torch.zeros(1, 1)})["actions"]
        plan = ours.solve(
            rough, rows=1, horizon=HORIZON, width=WIDTH, noise=EpisodeNoise(seed, ["x"]), bounds=BOX
        )
        reference.append(float(rough(made[:, None])))
        mine.append(float(rough(torch.from_numpy(plan.actions)[:, None])))
        plans.append((plan.actions, made.numpy()))
    if starts == 1:
        # From zero nothing is random: the plans themselves agree.
        np.testing.assert_allclose(*plans[0], atol=1e-6)
        return
    assert np.ptp(reference) > 0.1 and ks_2samp(mine, reference).pvalue > 0.01
