"""Quantiles as defined, and intervals whose coverage is enumerated."""

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import (
    NotTestable,
    lower_median,
    median,
    percentile_rank,
    quantile,
    quantile_interval,
)


def test_quantiles_interpolate_between_order_statistics():
    # Position 0.9 * 9 = 8.1: 0.9 of the way... values 0..9 give 8.1.
    assert quantile(np.arange(10), 0.9) == pytest.approx(8.1)
    assert quantile([3.0], 0.2) == 3.0


def test_the_two_medians_differ_on_even_samples_only():
    assert median([1, 2, 3, 10]) == 2.5 and lower_median([10, 3, 1, 2]) == 2.0
    assert median([5, 1, 3]) == lower_median([5, 1, 3]) == 3.0


def test_the_quantile_interval_covers_at_least_what_it_says():
    n = 40
    for q in (0.5, 0.25, 0.8):
        low, high = quantile_interval(np.arange(1, n + 1), q)  # order statistics' ranks
        # Covered when at least `low` and at most `high - 1` of n uniform values lie below q.
        k = np.arange(n + 1)
        coverage = sps.binom.pmf(k, n, q)[(k >= low) & (k <= high - 1)].sum()
        assert coverage >= 0.95
        narrower = sps.binom.pmf(k, n, q)[(k >= low + 1) & (k <= high - 1)].sum()
        assert narrower < 0.95 or sps.binom.cdf(low, n, q) > 0.025


def test_too_few_values_say_how_many_are_needed():
    with pytest.raises(NotTestable) as caught:
        quantile_interval(np.arange(10), 0.95)
    n = caught.value.needed
    quantile_interval(np.arange(n), 0.95)
    with pytest.raises(NotTestable):
        quantile_interval(np.arange(n - 1), 0.95)


def test_percentile_rank_counts_what_lies_at_or_below():
    assert percentile_rank(2, [1, 2, 3, 4]) == 50.0
