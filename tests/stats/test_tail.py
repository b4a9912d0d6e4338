"""Tail averages: exact sizes, the fractional estimator, and refusals."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamcheck.stats import StatisticsInputError, cvar, exact_decimal, tail_count


@pytest.mark.parametrize(
    ("alpha", "n", "count"),
    [
        (0.4, 8, 4),
        (0.4, 16, 7),
        (0.4, 4, 2),
        (0.28, 25, 7),
        (0.1, 10, 1),
        (1.0, 5, 5),
        (0.07, 100, 7),
    ],
)
def test_the_tail_size_is_computed_in_decimals(alpha, n, count):
    assert tail_count(alpha, n) == count
    assert tail_count(str(alpha), n) == tail_count(Decimal(str(alpha)), n) == count


def test_floating_point_would_have_said_eight():
    assert np.ceil(0.28 * 25) == 8 and tail_count(0.28, 25) == 7


def test_the_fractional_tail_weights_the_last_loss():
    # n = 8, alpha = 0.4: 3.2 losses; 7 + 6 + 5 in full and 0.2 of 4: 18.8 / 3.2 = 5.875.
    losses = np.arange(8.0)
    assert cvar(losses, 0.4) == pytest.approx(5.875, abs=1e-12)
    assert cvar(losses, 0.4, rule="ceil") == (7 + 6 + 5 + 4) / 4


def test_repeating_every_loss_changes_the_ceil_tail_and_not_the_fractional_one():
    losses = np.array([3.0, 1.0, 7.0, 5.0, 2.0, 8.0, 6.0, 4.0])
    doubled = np.repeat(losses, 2)
    assert cvar(doubled, 0.4) == pytest.approx(cvar(losses, 0.4), abs=1e-12)
    assert cvar(doubled, 0.4, rule="ceil") != pytest.approx(cvar(losses, 0.4, rule="ceil"))


def test_rows_are_independent_and_order_inside_a_row_does_not_matter():
    rng = np.random.default_rng(2)
    table = rng.random((5, 3, 16))
    for rule in ("fractional", "ceil"):
        whole = cvar(table, 0.4, rule=rule)
        assert whole.shape == (5, 3)
        assert whole[2, 1] == pytest.approx(cvar(rng.permutation(table[2, 1]), 0.4, rule=rule))


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    st.integers(1, 100),
)
def test_both_tails_lie_between_mean_and_maximum(losses, percent):
    values, alpha = np.array(losses), Fraction(percent, 100)
    fractional, ceil = cvar(values, alpha), cvar(values, alpha, rule="ceil")
    slack = 1e-6
    assert values.mean() - slack <= ceil <= fractional + slack <= values.max() + 2 * slack


def test_the_fractional_tail_is_the_quantile_integral():
    # Oracle: minimise t + E[(L - t)+] / alpha over t at the data points (Rockafellar-Uryasev).
    rng = np.random.default_rng(9)
    for n, alpha in ((7, 0.4), (16, 0.4), (25, 0.28), (5, 0.05)):
        losses = rng.gamma(2, 1, n)
        oracle = min(t + np.maximum(losses - t, 0).mean() / alpha for t in losses)
        assert cvar(losses, alpha) == pytest.approx(oracle, rel=1e-12)


def test_exact_decimal_reads_what_a_person_wrote():
    assert exact_decimal(0.1) == Fraction(1, 10) and exact_decimal("0.28") == Fraction(7, 25)
    with pytest.raises(StatisticsInputError, match="not a decimal"):
        exact_decimal("forty percent")


@pytest.mark.parametrize("alpha", [0, -0.1, 1.01, float("nan")])
def test_a_share_outside_its_range_is_refused(alpha):
    with pytest.raises(StatisticsInputError):
        cvar([1.0, 2.0], alpha)


def test_a_failed_seed_is_never_averaged_away():
    with pytest.raises(StatisticsInputError, match="failed measurement"):
        cvar([1.0, np.nan, 2.0], 0.4)
    with pytest.raises(StatisticsInputError, match="at least one"):
        cvar(np.empty((3, 0)), 0.4)
