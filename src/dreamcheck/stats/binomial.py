"""One success probability: intervals that keep their width at 0/n and n/n, and exact tests."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.estimate import (
    Interval,
    StatisticsInputError,
    checked_alternative,
    checked_count,
    checked_level,
)

# Relative slack with which an outcome counts as no more likely than the observed one: two
# probabilities that are equal on paper differ in the last bits (the same value as R and SciPy).
MINLIKE_SLACK = 1e-7


def _counts(successes: int, trials: int) -> tuple[int, int]:
    n = checked_count(trials, name="trials", low=1)
    return checked_count(successes, name="successes", low=0, high=n), n


def _probability(value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise StatisticsInputError(f"probability = {value!r} must lie in [0, 1]")
    return float(value)


def normal_quantile(confidence: float) -> float:
    """z with two-sided coverage ``confidence``: 1.959963984540054 at 0.95."""
    return float(sps.norm.ppf(0.5 + checked_level(confidence) / 2))


def wilson_interval(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Two-sided Wilson score interval for a success probability, no continuity correction.

    Keeps a positive width at 0/n and n/n, where ``p ± z·se`` collapses to a point.

    Args:
        successes: episodes that met the criterion; 0 <= successes <= trials.
        trials: independent episodes; at least 1.
        confidence: nominal coverage, strictly between 0 and 1.

    Returns:
        Interval of probabilities, 0 <= low <= high <= 1.

    Raises:
        StatisticsInputError: a count or the confidence is out of range.

    Source: Wilson (1927), JASA 22, 209-212; protocol.md S1.
    """
    k, n = _counts(successes, trials)
    z = normal_quantile(confidence)
    p = k / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # On paper the bound is exactly 0 at 0/n and 1 at n/n; in floating point it misses by an ulp.
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return Interval(low, high)


def clopper_pearson(
    successes: int, trials: int, *, confidence: float = 0.95, side: str = "two-sided"
) -> Interval:
    """Exact interval for a success probability: coverage is at least the confidence, always.

    Args:
        side: "two-sided"; "lower" gives (bound, 1) and "upper" gives (0, bound), each spending
            all of ``1 - confidence`` on its side.

    Source: Clopper and Pearson (1934), Biometrika 26, 404-413.
    """
    k, n = _counts(successes, trials)
    alpha = 1 - checked_level(confidence)
    if side not in ("two-sided", "lower", "upper"):
        raise StatisticsInputError(f"side = {side!r} is not one of 'two-sided', 'lower', 'upper'")
    tail = alpha / 2 if side == "two-sided" else alpha
    low = 0.0 if k == 0 or side == "upper" else float(sps.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n or side == "lower" else float(sps.beta.ppf(1 - tail, k + 1, n - k))
    return Interval(low, high)


def binomial_test(
    successes: int,
    trials: int,
    probability: float,
    *,
    alternative: str = "two-sided",
    two_sided: str = "minlike",
) -> float:
    """Exact p-value of a success probability against a fixed one.

    Args:
        probability: the value under the null, in [0, 1].
        alternative: "two-sided", "greater" (the rate is higher) or "less".
        two_sided: "minlike" sums every outcome at most as likely as the observed one (relative
            slack 1e-7); "doubled" is twice the smaller tail, at most 1. They differ: state which.

    Source: protocol.md S2 (42/50 against 0.87 gives 0.526 by minimum likelihood).
    """
    k, n = _counts(successes, trials)
    p0 = _probability(probability)
    checked_alternative(alternative)
    upper = float(sps.binom.sf(k - 1, n, p0))
    lower = float(sps.binom.cdf(k, n, p0))
    if alternative == "greater":
        return min(1.0, upper)
    if alternative == "less":
        return min(1.0, lower)
    if two_sided == "doubled":
        return min(1.0, 2 * min(upper, lower))
    if two_sided != "minlike":
        raise StatisticsInputError(f"two_sided = {two_sided!r} is not 'minlike' or 'doubled'")
    likelihood = sps.binom.pmf(np.arange(n + 1), n, p0)
    # Smallest terms first: the sum then keeps its relative accuracy at p-values like 1e-31.
    terms = np.sort(likelihood[likelihood <= likelihood[k] * (1 + MINLIKE_SLACK)])
    return min(1.0, math.fsum(terms.tolist()))


@dataclass(frozen=True, slots=True)
class ScoreTest:
    """The normal approximation of the one-sample test.

    z: (observed - assumed) / standard error under the assumed probability.
    p: two-sided normal tail.
    """

    z: float
    p: float


def score_test(successes: int, trials: int, probability: float) -> ScoreTest:
    """Two-sided score test of one proportion; the variance is the null's, so 0/n is no trouble.

    A normal approximation, kept because papers print it: from 10 to 50 trials and probabilities
    from 0.1 to 0.9 it rejects a true one up to 10 % of the time at a level of 5 %. Claims use
    ``binomial_test``.

    Raises:
        StatisticsInputError: the assumed probability is 0 or 1, where the variance is 0.
    """
    k, n = _counts(successes, trials)
    p0 = checked_level(probability, name="probability")
    z = (k / n - p0) / math.sqrt(p0 * (1 - p0) / n)
    return ScoreTest(z, float(2 * sps.norm.sf(abs(z))))
