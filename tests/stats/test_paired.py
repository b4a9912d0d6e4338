"""Paired tests against SciPy, brute enumeration and published values."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import (
    StatisticsInputError,
    mcnemar_chi2,
    mcnemar_exact,
    paired_counts,
    sign_flip_test,
    sign_test,
)
from dreamcheck.streams import stream


def test_mcnemar_agrees_with_scipys_binomial_test_on_the_discordant_pairs():
    for a, b in itertools.product(range(9), repeat=2):
        if a + b == 0:
            continue
        for alternative in ("two-sided", "greater", "less"):
            oracle = sps.binomtest(a, a + b, 0.5, alternative=alternative).pvalue
            ours = mcnemar_exact(a, b, alternative=alternative)
            assert math.isclose(ours, oracle, rel_tol=1e-12), (a, b, alternative)


def test_without_discordant_pairs_nothing_is_shown():
    assert mcnemar_exact(0, 0) == 1.0 and mcnemar_exact(0, 0, alternative="greater") == 1.0
    assert mcnemar_chi2(0, 0).p == 1.0


def test_the_papers_chi_square_form_comes_out():
    result = mcnemar_chi2(39, 1)  # (38 - 1)² / 40
    assert result.statistic == 34.225
    assert math.isclose(result.p, math.erfc(math.sqrt(34.225 / 2)), rel_tol=1e-9)
    assert mcnemar_chi2(39, 1, continuity=False).statistic == 38**2 / 40


def test_the_correction_is_applied_as_published_at_equal_counts():
    assert mcnemar_chi2(2, 2).statistic == 0.25  # (0 - 1)² / 4
    assert mcnemar_chi2(2, 2, continuity=False).statistic == 0.0


def test_paired_counts_fill_the_four_cells():
    counts = paired_counts([1, 1, 0, 0, 1], [True, False, True, False, False])
    assert (counts.both, counts.a_only, counts.b_only, counts.neither) == (1, 2, 1, 1)
    assert counts.num_cases == 5


def test_outcomes_of_unequal_length_are_not_paired():
    with pytest.raises(StatisticsInputError, match="cannot be paired"):
        paired_counts([1, 0], [1])
    with pytest.raises(StatisticsInputError, match="success and failure"):
        paired_counts([1, 2], [1, 0])


def test_the_sign_test_drops_ties_and_counts_them():
    result = sign_test([0.5, 0.1, 0.0, -0.2, 0.3], alternative="greater")
    assert (result.wins, result.losses, result.ties) == (3, 1, 1)
    assert result.p == (4 + 1) / 16  # P(Bin(4, 1/2) >= 3)
    assert sign_test([0.0, 0.0]).p == 1.0


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_the_sign_flip_test_counts_every_arrangement(alternative):
    rng = np.random.default_rng(5)
    for n in (1, 3, 8):
        d = np.round(rng.normal(0.3, 1, n), 1)  # rounding makes ties
        hits = 0
        for signs in itertools.product((-1, 1), repeat=n):
            value = math.fsum(s * v for s, v in zip(signs, d, strict=True))
            seen = math.fsum(d)
            slack = 1e-9
            hits += {
                "two-sided": abs(value) >= abs(seen) - slack,
                "greater": value >= seen - slack,
                "less": value <= seen + slack,
            }[alternative]
        result = sign_flip_test(d, alternative=alternative)
        assert result.exact and math.isclose(result.p, hits / 2**n)


def test_zero_differences_change_the_mean_and_not_the_p_value():
    d = [0.5, 0.2, -0.1]
    with_zeros = sign_flip_test([*d, 0.0, 0.0])
    assert with_zeros.p == sign_flip_test(d).p and with_zeros.arrangements == 8
    assert math.isclose(with_zeros.mean, 0.6 / 5)


def test_many_cases_use_the_stream_and_agree_with_the_normal_law():
    d = stream(1, "test").normal(0.15, 1, 400)
    first = sign_flip_test(d, rng=stream(0, "sign-flip", "x"))
    again = sign_flip_test(d, rng=stream(0, "sign-flip", "x"))
    assert first == again and not first.exact
    z = abs(d.sum()) / math.sqrt((d**2).sum())
    assert math.isclose(first.p, math.erfc(z / math.sqrt(2)), abs_tol=0.006)
    assert sign_flip_test(d + 5, rng=stream(0, "a"), draws=99).p == 1 / 100  # never 0


def test_many_cases_without_a_stream_are_refused_with_the_way_out():
    with pytest.raises(StatisticsInputError, match="rng=stream"):
        sign_flip_test(np.ones(21))


def test_a_failed_case_is_not_silently_dropped():
    with pytest.raises(StatisticsInputError, match=r"differences\[1\]"):
        sign_flip_test([0.1, np.nan])
