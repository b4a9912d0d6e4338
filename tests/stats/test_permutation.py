"""The exact two-sample permutation test against enumeration and SciPy."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.errors import ExitCode
from dreamcheck.stats import NotTestable, needed_units, permutation_test


def enumerated(x, y, alternative):
    """Share of assignments at least as extreme, in exact rational arithmetic."""
    pooled = [Fraction(repr(float(v))) for v in (*x, *y)]
    n1, n = len(x), len(x) + len(y)
    total = sum(pooled)

    def difference(chosen):
        s = sum(pooled[i] for i in chosen)
        return s / n1 - (total - s) / (n - n1)

    seen = difference(range(n1))
    count = 0
    for chosen in itertools.combinations(range(n), n1):
        d = difference(chosen)
        count += {
            "greater": d >= seen,
            "less": d <= seen,
            "two-sided": abs(d) >= abs(seen),
        }[alternative]
    return count, math.comb(n, n1)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("sizes", [(4, 4), (4, 6), (7, 4)])
def test_every_assignment_is_counted_ties_included(alternative, sizes):
    rng = np.random.default_rng(3)
    for trial in range(4):
        decimals = trial % 2  # rounded values tie often
        x = np.round(rng.normal(0.5, 1, sizes[0]), decimals)
        y = np.round(rng.normal(0, 1, sizes[1]), decimals)
        result = permutation_test(x, y, alternative=alternative)
        assert (result.as_extreme, result.assignments) == enumerated(x, y, alternative)


def test_integers_are_compared_as_integers():
    x, y = np.array([9, 7, 8, 3]), np.array([4, 3, 8, 1, 2])
    result = permutation_test(x, y, alternative="greater")
    assert (result.as_extreme, result.assignments) == enumerated(x, y, "greater")
    big = 10**9  # a common offset moves no difference and breaks nothing
    assert permutation_test(x + big, y + big, alternative="greater").p == result.p


def test_eight_against_eight_agrees_with_scipy():
    rng = np.random.default_rng(11)
    x, y = rng.normal(0.6, 1, 8), rng.normal(0, 1, 8)
    oracle = sps.permutation_test(
        (x, y),
        lambda a, b, axis: a.mean(axis=axis) - b.mean(axis=axis),
        vectorized=True,
        n_resamples=np.inf,
        alternative="greater",
    )
    result = permutation_test(x, y, alternative="greater")
    assert result.assignments == 12870
    assert math.isclose(result.p, oracle.pvalue, rel_tol=1e-12)


def test_perfect_separation_gives_the_smallest_p_value():
    x, y = np.arange(8) + 100.0, np.arange(8.0)
    one = permutation_test(x, y, alternative="greater")
    assert one.p == one.smallest_p == 1 / 12870
    two = permutation_test(x, y)
    assert two.p == two.smallest_p == 2 / 12870
    assert permutation_test(x, y, alternative="less").p == 1.0


def test_order_inside_groups_changes_nothing_and_swapping_groups_mirrors():
    rng = np.random.default_rng(0)
    x, y = rng.random(6), rng.random(5)
    a = permutation_test(x, y, alternative="greater")
    assert permutation_test(x[::-1], rng.permutation(y), alternative="greater").p == a.p
    assert permutation_test(y, x, alternative="less").p == a.p


def test_equal_groups_have_a_p_value_of_one():
    assert permutation_test([1.5] * 5, [1.5] * 4).p == 1.0


def test_three_units_are_not_testable_and_the_error_says_four():
    with pytest.raises(NotTestable, match="at least 4") as caught:
        permutation_test([1, 2, 3], [1, 2, 3, 4])
    assert caught.value.needed == 4 and caught.value.given == (3, 4)
    assert caught.value.exit_code == ExitCode.ABSTAINED


def test_needed_units_follow_the_binomial_coefficient():
    assert needed_units() == 4  # 2 / C(8, 4) = 0.0286; 2 / C(6, 3) = 0.1
    assert needed_units(alternative="greater") == 3  # 1 / 20 = 0.05
    assert needed_units(level=0.01) == 5  # 2 / 252


def test_more_units_than_can_be_counted_are_refused():
    with pytest.raises(NotTestable, match="counted exactly"):
        permutation_test(np.arange(21), np.arange(20))
