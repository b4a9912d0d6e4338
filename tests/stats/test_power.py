"""Exact power against brute enumeration and the published design."""

import math

import numpy as np
import pytest

from dreamcheck.stats import (
    NotTestable,
    mcnemar_exact,
    mcnemar_needed_pairs,
    mcnemar_power,
    mcnemar_power_at_rates,
    needed_cases,
    pilot_variance,
)
from dreamcheck.stats.power import rejecting_counts
from dreamcheck.streams import stream


def test_the_published_design_has_its_exact_power():
    assert mcnemar_power_at_rates(0.64, 0.44, num_pairs=110) == pytest.approx(0.8148412, abs=1e-7)


def test_power_sums_the_trinomial_law():
    n, a, b = 14, 0.5, 0.1
    total = 0.0
    for i in range(n + 1):
        for j in range(n + 1 - i):
            if mcnemar_exact(i, j) <= 0.05:
                ways = math.comb(n, i) * math.comb(n - i, j)
                total += ways * a**i * b**j * (1 - a - b) ** (n - i - j)
    assert mcnemar_power(a, b, num_pairs=n) == pytest.approx(total, rel=1e-10)


def test_the_rejection_limit_is_where_the_p_value_crosses_the_level():
    for m in range(40):
        c = rejecting_counts(m)
        if c >= 0:
            assert mcnemar_exact(m - c, c) <= 0.05
        if c + 1 <= m // 2:
            assert mcnemar_exact(m - c - 1, c + 1) > 0.05


def test_under_the_null_power_is_the_size_and_stays_under_the_level():
    for n in (5, 20, 110):
        assert mcnemar_power_at_rates(0.5, 0.5, num_pairs=n) <= 0.05
    assert mcnemar_power(0.0, 0.0, num_pairs=50) == 0.0


def test_needed_pairs_is_the_last_dip_below_the_wanted_power():
    a, b = 0.64 * 0.56, 0.44 * 0.36
    n = mcnemar_needed_pairs(a, b)
    assert mcnemar_power(a, b, num_pairs=n - 1) < 0.8
    assert all(mcnemar_power(a, b, num_pairs=k) >= 0.8 for k in range(n, n + 20))


def test_no_effect_needs_infinitely_many_pairs():
    with pytest.raises(NotTestable, match="no effect"):
        mcnemar_needed_pairs(0.2, 0.2)


def test_a_pilot_is_split_into_cases_and_streams():
    rng = stream(0, "pilot")
    case = rng.normal(0.2, 1.0, (4000, 1))
    parts = pilot_variance(case + rng.normal(0, 2.0, (4000, 3)))
    assert parts.between_cases == pytest.approx(1.0, abs=0.15)
    assert parts.within_case == pytest.approx(4.0, abs=0.2)
    with pytest.raises(NotTestable, match="2 streams"):
        pilot_variance(np.zeros((5, 1)))


def test_the_needed_cases_reach_their_power_in_simulation():
    rng = stream(1, "pilot")
    parts = pilot_variance(rng.normal(0, 1, (400, 1)) + rng.normal(0, 1, (400, 3)))
    n = needed_cases(parts, effect=0.6, num_streams=3)
    sd = math.sqrt(parts.between_cases + parts.within_case / 3)
    means = rng.normal(0.6, sd, (4000, n))
    t = means.mean(axis=1) / (means.std(axis=1, ddof=1) / math.sqrt(n))
    from scipy import stats as sps

    reached = (np.abs(t) > sps.t.ppf(0.975, n - 1)).mean()
    assert 0.77 < reached < 0.86
    assert needed_cases(parts, effect=0.6, num_streams=1) > n


def test_a_noiseless_effect_still_needs_enough_cases_to_reject():
    parts = pilot_variance(np.ones((4, 2)))
    assert needed_cases(parts, effect=0.5) == 6  # 2 / 2^6 = 0.031, 2 / 2^5 = 0.0625
