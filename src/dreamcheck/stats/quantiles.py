"""Quantiles as the papers define them, and an interval for a quantile without a model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.estimate import (
    Interval,
    NotTestable,
    StatisticsInputError,
    checked_level,
    checked_sample,
)


def quantile(values: Any, q: float) -> float:
    """The q-quantile with linear interpolation between order statistics, q in [0, 1]."""
    if not 0 <= q <= 1:
        raise StatisticsInputError(f"q = {q!r} must lie in [0, 1]")
    return float(np.quantile(checked_sample(values, name="values"), q))


def median(values: Any) -> float:
    """The median; the two middle values of an even sample are averaged."""
    return float(np.median(checked_sample(values, name="values")))


def lower_median(values: Any) -> float:
    """The lower of the two middle values of an even sample (what torch.median returns)."""
    ordered = np.sort(checked_sample(values, name="values"))
    return float(ordered[(ordered.size - 1) // 2])


def quantile_interval(values: Any, q: float, *, confidence: float = 0.95) -> Interval:
    """Order-statistic interval for a population quantile; coverage is at least the confidence.

    Raises:
        NotTestable: the sample is too small for any such interval; ``needed`` says how many.

    Source: Conover (1999), Practical Nonparametric Statistics, section 3.2.
    """
    checked_level(q, name="q")
    tail = (1 - checked_level(confidence)) / 2
    ordered = np.sort(checked_sample(values, name="values"))
    n = ordered.size
    # X_(r) <= quantile fails when under r values lie below it: P(Bin(n, q) <= r - 1) <= tail.
    below = sps.binom.cdf(np.arange(n), n, q)
    low = int((below <= tail).sum())
    above = sps.binom.sf(np.arange(n), n, q)
    fitting = np.flatnonzero(above <= tail)
    if low == 0 or fitting.size == 0 or int(fitting[0]) + 1 > n:
        needed = max(
            math.ceil(math.log(tail) / math.log(1 - q)), math.ceil(math.log(tail) / math.log(q))
        )
        raise NotTestable(
            f"{n} values give no {confidence:.0%} interval for the {q:g} quantile",
            given=n,
            needed=needed,
        )
    return Interval(float(ordered[low - 1]), float(ordered[int(fitting[0])]))


def percentile_rank(value: float, population: Any) -> float:
    """Share of the population at or below the value, in percent."""
    return 100 * float((checked_sample(population, name="population") <= value).mean())
