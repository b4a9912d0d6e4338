"""Isotonic maps against a brute-force fit, and errors on groups left out."""

import itertools

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from dreamcheck.stats import LeaveOneGroupOut, isotonic_map, leave_one_group_out, resolvability


def least_squares_isotonic(y):
    """Max-min formula of isotonic regression, by enumeration over all blocks."""
    n = len(y)
    return [
        max(min(np.mean(y[a : b + 1]) for b in range(i, n)) for a in range(i + 1)) for i in range(n)
    ]


def test_the_map_is_the_max_min_solution():
    rng = np.random.default_rng(0)
    for n in (2, 5, 9):
        y = rng.random(n)
        ours = isotonic_map(np.arange(n), y)(np.arange(n))
        assert ours == pytest.approx(least_squares_isotonic(y), abs=1e-12)


def test_equal_scores_are_merged_with_their_weight_before_the_fit():
    # Scores 0, 0, 0, 1: mean of the first three is 4, pooled with 1: (12 + 0) / 4 = 3.
    fit = isotonic_map([0, 0, 0, 1], [3, 4, 5, 0])
    assert fit([0, 1]).tolist() == [3.0, 3.0]


def test_prediction_is_linear_between_knots_and_flat_beyond():
    fit = isotonic_map([0.0, 2.0], [10.0, 30.0])
    assert fit([-5, 0.5, 2, 9]).tolist() == [10.0, 15.0, 30.0, 30.0]
    assert fit.num_rows == 2


def rows():
    rng = np.random.default_rng(1)
    groups = np.repeat(["a", "b", "c"], [6, 7, 8])
    scores = rng.random(21)
    return scores, 100 * scores + rng.normal(0, 5, 21), groups


def test_the_error_is_the_mean_of_groups_each_predicted_by_the_others():
    scores, outcomes, groups = rows()
    result = leave_one_group_out(scores, outcomes, groups)
    by_hand, constant = [], []
    for g in "abc":
        test = groups == g
        fit = isotonic_map(scores[~test], outcomes[~test])
        by_hand.append(np.abs(fit(scores[test]) - outcomes[test]).mean())
        constant.append(np.abs(np.median(outcomes[~test]) - outcomes[test]).mean())
    assert result.error.value == pytest.approx(np.mean(by_hand))
    assert result.reference.value == pytest.approx(np.mean(constant))
    assert result.error.value < result.reference.value


def test_row_order_and_monotone_rescaling_of_the_group_labels_change_nothing():
    scores, outcomes, groups = rows()
    order = np.random.default_rng(2).permutation(21)
    a = leave_one_group_out(scores, outcomes, groups)
    b = leave_one_group_out(scores[order], outcomes[order], groups[order])
    assert a.by_group == pytest.approx(b.by_group)


def test_small_groups_are_skipped_by_name():
    scores, outcomes, groups = rows()
    keep = [i for i in range(21) if groups[i] != "a"] + [0, 1, 2]
    result = leave_one_group_out(scores[keep], outcomes[keep], groups[keep])
    assert set(result.skipped) == {"a"} and result.error.num_units == 2
    nothing = leave_one_group_out([1, 2], [1, 2], ["a", "b"])
    assert not nothing.error.defined and nothing.error.reason


def test_resolvability_is_one_for_pure_binomial_spread():
    # p = 0.5 and 50 episodes: noise 7.0711 points; a std of 7.0711 gives 1.
    spread = 100 * np.sqrt(0.25 / 50)
    values = [50 + spread / np.sqrt(2), 50 - spread / np.sqrt(2)]
    assert resolvability(values) == pytest.approx(1.0)


def test_the_fit_never_decreases():
    rng = np.random.default_rng(3)
    fit = isotonic_map(rng.random(50), rng.random(50))
    assert all(b >= a for a, b in itertools.pairwise(fit.outcomes))


def test_maps_agree_with_scikit_learn():
    rng = np.random.default_rng(2)
    x = np.round(rng.random(80), 1)
    y = 50 * x + rng.standard_normal(80) * 20
    at = np.linspace(-0.5, 1.5, 101)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    np.testing.assert_allclose(isotonic_map(x, y)(at), theirs.predict(at), atol=1e-10)


def test_multiplicities_mean_repeated_rows():
    rng = np.random.default_rng(6)
    groups = np.repeat(["a", "b", "c"], 12)
    x = np.round(rng.random(36), 1)
    y = np.round(100 * rng.random(36))
    counts = rng.integers(0, 4, 36)
    index = np.repeat(np.arange(36), counts)
    weighted = LeaveOneGroupOut(x, y, groups).errors(counts.astype(float))
    assert weighted == pytest.approx(
        leave_one_group_out(x[index], y[index], groups[index]).by_group
    )
    # And the repeated rows agree with an oracle that shares no code.
    for g in "abc":
        test = groups[index] == g
        fitted = IsotonicRegression(out_of_bounds="clip").fit(x[index][~test], y[index][~test])
        error = np.abs(fitted.predict(x[index][test]) - y[index][test]).mean()
        assert weighted[g] == pytest.approx(error, abs=1e-10)
