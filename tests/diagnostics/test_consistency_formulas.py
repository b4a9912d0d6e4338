"""Pairwise quantities, bounds, certificates, radius and separation: laws and hand-worked values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamcheck.diagnostics.consistency import (
    acpc,
    certified_outcome,
    clean_side_bound,
    cost_bound,
    elite_certificate,
    error_drift,
    final_displacement,
    final_displacement_bound,
    goal_cost,
    invariance_radius,
    median_bits,
    motion_scale,
    pair_anchors,
    proposition_1_slack,
    proposition_1_tolerance,
    relative_radius,
    separation,
    step_weights,
    winner_certificate,
)
from dreamcheck.errors import Abstention, EvidenceError, UsageError
from dreamcheck.streams import stream

RNG = stream(0, "consistency-test")


def test_acpc_by_hand_is_the_norm_of_the_stacked_weighted_rollouts():
    clean, perturbed = [[0, 0], [1, 0]], [[0, 3], [5, 0]]
    # distances 3 and 4: sqrt((9 + 16) / 2)
    assert acpc(clean, perturbed) == pytest.approx(math.sqrt(12.5))
    assert acpc(clean, perturbed, weights=[0, 1]) == 4.0
    w = np.array([0.3, 0.7])
    stacked = (np.sqrt(w)[:, None] * (np.array(clean) - np.array(perturbed))).ravel()
    assert acpc(clean, perturbed, weights=w) == pytest.approx(np.linalg.norm(stacked))


def test_identical_rollouts_have_a_distance_of_exactly_zero():
    x = RNG.normal(size=(5, 8, 16))
    assert (acpc(x, x) == 0).all()


def test_proposition_one_holds_for_every_pair_and_is_tight_on_a_ray():
    x, y, future = RNG.normal(size=(3, 200, 8, 4))
    for weights in (None, [0.5, 0.5, 0, 0, 0, 0, 0, 0]):
        assert (proposition_1_slack(x, y, future, weights=weights) >= -1e-12).all()
    u = RNG.normal(size=(8, 4))
    assert proposition_1_slack(2 * u, 5 * u, np.zeros_like(u)) == pytest.approx(0, abs=1e-12)
    assert error_drift(2 * u, 5 * u, np.zeros_like(u)) > 0


def test_the_slack_is_excused_only_what_float64_cannot_resolve():
    # H = 2, D = 3, equal weights. Errors to Y = 0 are the sizes: (1 + 3) x 1e3 in all.
    one = np.full((2, 3), 1e3 / np.sqrt(3))
    zero = np.zeros_like(one)
    assert proposition_1_tolerance(one, 3 * one, zero) == 1e-5  # float32's 1e-4 is no excuse
    # 2 x 3 epsilons of 4e12.
    huge = 1e9 * one
    assert proposition_1_tolerance(huge, 3 * huge, zero) == pytest.approx(6 * 2.0**-52 * 4e12)
    rng = stream(5, "slack")
    for size in (1.0, 1e6, 1e12, 1e18):
        x, y, future = size * rng.normal(size=(3, 200, 8, 192))
        slack = proposition_1_slack(x, y, future)
        assert (slack >= -proposition_1_tolerance(x, y, future)).all()
        # On a ray the slack is 0 but for rounding, which passes 1e-5 here.
        ray = proposition_1_slack(x, 1.7 * x, np.zeros_like(x))
        tolerance = proposition_1_tolerance(x, 1.7 * x, np.zeros_like(x))
        assert (ray >= -tolerance).all() and (tolerance <= 1e-5 + 2e-11 * size).all()


def test_the_final_displacement_obeys_its_bound_where_there_is_one():
    x, y = RNG.normal(size=(2, 300, 5, 3))
    w = step_weights([0.1, 0.2, 0.3, 0.1, 0.3], horizon=5)
    bound = acpc(x, y, weights=w) / math.sqrt(w[-1])
    assert (final_displacement(x, y) <= bound + 1e-12).all()
    assert final_displacement_bound(2.0, last_weight=0.0) is None
    assert final_displacement_bound(2.0, last_weight=0.25) == 4.0


@pytest.mark.parametrize("weights", [[0.5, 0.6], [-0.1, 1.1], [1.0], [float("nan"), 1.0]])
def test_weights_that_are_no_weights_are_refused(weights):
    with pytest.raises(UsageError, match="weights"):
        step_weights(weights, horizon=2)


@given(st.integers(0, 10_000))
def test_cost_changes_stay_within_both_bounds(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 20, 6)) * rng.choice([0.1, 1, 10])
    goal = rng.normal(size=6)
    change = np.abs(goal_cost(y, goal) - goal_cost(x, goal))
    b = cost_bound(x, y, goal)
    loose = clean_side_bound(x, goal, np.linalg.norm(x - y, axis=1))
    assert (change <= b * (1 + 1e-12) + 1e-12).all() and (b <= loose * (1 + 1e-12) + 1e-12).all()


@given(st.integers(0, 10_000))
def test_a_certified_choice_never_changes(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 3)) * 5
    y = x + rng.normal(size=x.shape) * rng.choice([0.001, 0.05, 1.0])
    goal = rng.normal(size=3)
    clean, perturbed = goal_cost(x, goal), goal_cost(y, goal)
    bounds = cost_bound(x, y, goal)
    if winner_certificate(clean, bounds).certified:
        assert clean.argmin() == perturbed.argmin()
    elite = elite_certificate(clean, bounds, num_elites=4)
    assert set(elite.chosen) == set(np.argsort(clean)[:4])
    if elite.certified:
        assert set(np.argsort(perturbed)[:4]) == set(elite.chosen)
    # Proposition 2: what the perturbed winner costs more on the clean side.
    w, v = clean.argmin(), perturbed.argmin()
    assert 0 <= clean[v] - clean[w] <= bounds[v] + bounds[w] + 1e-9


def test_the_elite_slack_is_the_smallest_pairwise_gap():
    rng = stream(1, "consistency-test")
    c, b = rng.random(9), 0.05 * rng.random(9)
    inside, outside = np.argsort(c)[:3], np.argsort(c)[3:]
    pairwise = min(c[j] - c[i] - b[i] - b[j] for i in inside for j in outside)
    assert elite_certificate(c, b, num_elites=3).slack == pytest.approx(pairwise, abs=1e-15)


def test_a_tie_is_not_certified_and_a_single_candidate_is():
    assert not winner_certificate([1.0, 1.0], [0.0, 0.0]).certified
    alone = winner_certificate([1.0], [5.0])
    assert alone.certified and alone.slack == math.inf
    with pytest.raises(UsageError, match="1 <= k < K"):
        elite_certificate([1.0, 2.0], [0.0, 0.0], num_elites=2)


def test_dividing_costs_by_the_width_changes_no_certificate():
    c, b = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.3, 0.1])
    a, d = winner_certificate(c, b), winner_certificate(c / 192, b / 192)
    assert a.certified == d.certified and d.slack == pytest.approx(a.slack / 192)


def test_a_certified_change_is_an_error_and_not_an_outcome():
    assert certified_outcome(certified=False, changed=True) == "uncertified, changed"
    with pytest.raises(EvidenceError, match="certified choice changed"):
        certified_outcome(certified=True, changed=True)


def test_draws_are_averaged_before_the_quantile():
    # Two draws per anchor with means 1 and 3; pooling them would give another quantile.
    radius = invariance_radius([[0.0, 2.0], [2.0, 4.0]], [1.0, 1.0])
    assert radius.raw == pytest.approx(1 + 0.9 * 2, rel=1e-6)
    assert radius.per_anchor == pytest.approx((1, 3))


def test_a_still_window_is_counted_and_a_collapsed_encoder_has_radius_zero():
    radius = invariance_radius([1.0, 1.0], [0.0, 1.0])
    assert radius.num_still == 1 and max(radius.per_anchor) == pytest.approx(1e8)
    assert invariance_radius(np.zeros((5, 10)), np.zeros(10)).raw == 0.0
    with pytest.raises(Abstention, match="collapsed"):
        relative_radius(0.0, 0.0)
    with pytest.raises(UsageError, match="not finite"):
        invariance_radius([np.nan], [1.0])


def test_the_motion_scale_interpolates_an_even_number_of_steps():
    assert motion_scale([[0, 0], [1, 0], [1, 2], [4, 2], [4, 2]]) == 1.5


def test_bits_are_strictly_above_the_lower_median():
    assert median_bits([4, 1, 3, 2]).tolist() == [1, 0, 1, 0]


def test_pairing_agrees_with_a_plain_loop():
    rng = stream(2, "consistency-test")
    states, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, (40, 2))
    pairing = pair_anchors(states, labels)
    d = [[math.dist(a, b) for b in states] for a in states]
    cutoff = np.quantile([d[i][j] for i in range(40) for j in range(40) if i != j], 0.35)
    assert pairing.cutoff == pytest.approx(cutoff)
    for i in range(40):
        options = [
            (d[i][j], j)
            for j in range(40)
            if tuple(labels[i]) != tuple(labels[j]) and d[i][j] <= cutoff
        ]
        assert pairing.neighbour[i] == (min(options)[1] if options else None)


def test_separation_is_strict_and_undefined_without_pairs():
    result = separation([1.1, 1.2, 0.5], raw_radius=1.0)
    assert (result.count, result.eligible) == (1, 3)  # 1.1 is not above 1.1
    with pytest.raises(Abstention, match="no separation rate"):
        separation([], raw_radius=1.0)


def test_a_constant_encoder_separates_nothing():
    radius = invariance_radius(np.zeros(10), np.zeros(10))
    assert separation(np.zeros(10), raw_radius=radius.raw).rate == 0.0
