"""Intervals and tests of one proportion, against SciPy, enumeration and hand-worked values."""

import math

import pytest
from scipy import stats as sps

from dreamcheck.errors import ExitCode, UsageError
from dreamcheck.stats import (
    binomial_test,
    clopper_pearson,
    score_test,
    wilson_interval,
)


def test_a_perfect_score_still_has_a_lower_bound():
    low, high = wilson_interval(50, 50)
    # At n/n the bound is n / (n + z²): 50 / (50 + 3.8415) = 0.92865.
    assert math.isclose(low, 0.92865, abs_tol=1e-5) and high == 1.0


def test_no_success_still_has_an_upper_bound():
    low, high = wilson_interval(0, 50)
    assert low == 0.0 and math.isclose(high, 1 - 0.92865, abs_tol=1e-5)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_and_clopper_pearson_agree_with_scipy(confidence):
    for n in (1, 2, 7, 50, 220):
        for k in {0, 1, n // 3, n - 1, n} - {-1}:
            oracle = sps.binomtest(k, n)
            wilson = oracle.proportion_ci(confidence, method="wilson")
            exact = oracle.proportion_ci(confidence, method="exact")
            assert wilson_interval(k, n, confidence=confidence) == pytest.approx(
                (wilson.low, wilson.high), abs=1e-12
            )
            assert clopper_pearson(k, n, confidence=confidence) == pytest.approx(
                (exact.low, exact.high), abs=1e-9
            )


def test_swapping_success_and_failure_mirrors_the_intervals():
    for make in (wilson_interval, clopper_pearson):
        low, high = make(3, 17)
        assert make(14, 17) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_clopper_pearson_never_covers_less_than_it_says():
    n = 12
    intervals = [clopper_pearson(k, n, confidence=0.9) for k in range(n + 1)]
    for step in range(1, 200):
        p = step / 200
        covered = sum(sps.binom.pmf(k, n, p) for k in range(n + 1) if intervals[k].holds(p))
        assert covered >= 0.9 - 1e-12


def test_a_one_sided_bound_solves_its_defining_equation():
    # Upper bound u of 0/n at 95%: (1 - u)^n = 0.05.
    low, high = clopper_pearson(0, 20, side="upper")
    assert low == 0.0 and math.isclose((1 - high) ** 20, 0.05, rel_tol=1e-9)
    # Lower bound l of 3/9: P(X >= 3 | l) = 0.05.
    low, high = clopper_pearson(3, 9, side="lower")
    assert high == 1.0 and math.isclose(sps.binom.sf(2, 9, low), 0.05, rel_tol=1e-9)


def test_the_published_one_sample_p_values_come_out():
    assert round(binomial_test(42, 50, 0.87), 3) == 0.526
    assert round(binomial_test(47, 50, 0.87), 3) == 0.203


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_the_exact_test_agrees_with_scipy_everywhere(alternative):
    for n in (1, 5, 23, 50):
        for p0 in (0.0, 0.1, 0.5, 0.87, 1.0):
            for k in range(n + 1):
                ours = binomial_test(k, n, p0, alternative=alternative)
                oracle = sps.binomtest(k, n, p0, alternative=alternative).pvalue
                assert math.isclose(ours, oracle, rel_tol=1e-9, abs_tol=1e-300), (k, n, p0)


def test_the_doubled_tail_differs_from_minimum_likelihood_and_is_the_smaller_tail_twice():
    # 3/10 at 0.2: P(X >= 3) = 0.322, twice is 0.644.
    tail = 1 - sum(math.comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(3))
    assert math.isclose(binomial_test(3, 10, 0.2, two_sided="doubled"), 2 * tail, rel_tol=1e-12)
    assert binomial_test(3, 10, 0.2) != pytest.approx(2 * tail, rel=1e-3)


def test_the_score_test_is_the_normal_approximation_by_hand():
    # (0.84 - 0.87) / sqrt(0.87 * 0.13 / 50) = -0.03 / 0.047560 = -0.63078
    result = score_test(42, 50, 0.87)
    assert math.isclose(result.z, -0.63078, abs_tol=1e-5)
    assert math.isclose(result.p, math.erfc(0.63078 / math.sqrt(2)), rel_tol=1e-4)


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5), (0, 0), (1.5, 5), (True, 5)])
def test_impossible_counts_are_refused_as_usage_and_as_value_errors(counts):
    with pytest.raises(ValueError, match="successes|trials") as caught:
        wilson_interval(*counts)
    assert isinstance(caught.value, UsageError) and caught.value.exit_code == ExitCode.USAGE


def test_a_confidence_of_one_is_refused_by_name():
    with pytest.raises(ValueError, match="confidence"):
        wilson_interval(1, 2, confidence=1.0)
