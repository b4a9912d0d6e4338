"""Exact power of paired designs, and the cases, streams and runs a stated effect needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.estimate import (
    NotTestable,
    StatisticsInputError,
    checked_count,
    checked_level,
)


def rejecting_counts(num_discordant: int, *, level: float = 0.05) -> int:
    """Largest minority count at which exact two-sided McNemar rejects; -1 when it never does."""
    m = checked_count(num_discordant, name="num_discordant")
    return int(_rejecting(np.array([m]), checked_level(level, name="level"))[0])


def _rejecting(num_discordant: np.ndarray, level: float) -> np.ndarray:
    # Two-sided p is twice the smaller tail, so the test rejects where that tail is level / 2.
    k = sps.binom.ppf(level / 2, num_discordant, 0.5)
    k = np.where(2 * sps.binom.cdf(k, num_discordant, 0.5) <= level, k, k - 1)
    return np.minimum(k, (num_discordant - 1) // 2).astype(int)


def mcnemar_power(only_a: float, only_b: float, *, num_pairs: int, level: float = 0.05) -> float:
    """Exact power of the exact two-sided McNemar test.

    Args:
        only_a: probability that a case succeeds in arm a and fails in arm b.
        only_b: the reverse. For arms that succeed independently at pa and pb these are
            pa (1 - pb) and pb (1 - pa).
        num_pairs: independent paired cases.

    Returns:
        Probability of rejection, summed over the trinomial law of the discordant counts.

    Source: protocol.md S13: 0.64 against 0.44 at 110 pairs has 0.8148.
    """
    n = checked_count(num_pairs, name="num_pairs", low=1)
    checked_level(level, name="level")
    if min(only_a, only_b) < 0 or only_a + only_b > 1:
        raise StatisticsInputError(
            f"discordant probabilities {only_a!r} and {only_b!r} are not a part of one whole"
        )
    discordant = only_a + only_b
    if discordant == 0:
        return 0.0
    m = np.arange(n + 1)
    c = _rejecting(m, level)
    share = only_a / discordant
    tails = sps.binom.cdf(c, m, share) + sps.binom.sf(m - c - 1, m, share)
    power = float((sps.binom.pmf(m, n, discordant) * np.where(c < 0, 0.0, tails)).sum())
    return min(1.0, power)


def mcnemar_power_at_rates(
    rate_a: float, rate_b: float, *, num_pairs: int, level: float = 0.05
) -> float:
    """Power when the two arms succeed independently of each other, case by case.

    Independence is the pessimistic reading of a paired design: arms that succeed on the same
    easy cases have fewer discordant pairs and more power. Use a pilot's discordant rates with
    ``mcnemar_power`` where there is one.
    """
    for rate in (rate_a, rate_b):
        if not 0 <= rate <= 1:
            raise StatisticsInputError(f"rate {rate!r} must lie in [0, 1]")
    return mcnemar_power(
        rate_a * (1 - rate_b), rate_b * (1 - rate_a), num_pairs=num_pairs, level=level
    )


def mcnemar_needed_pairs(
    only_a: float,
    only_b: float,
    *,
    power: float = 0.8,
    level: float = 0.05,
    maximum: int = 5_000,
) -> int:
    """Fewest pairs from which on the exact power stays at or above the wanted one.

    Exact power is a saw-tooth: a single n can reach the wanted power and n + 1 lose it, so the
    answer is the n after the last dip below it, looked for up to a fifth beyond the first hit.

    Raises:
        NotTestable: not reached within ``maximum`` pairs, or the two probabilities are equal.
    """
    checked_level(power, name="power")
    if only_a == only_b:
        raise NotTestable("no effect is assumed, so no number of pairs shows one", given=0.0)

    def reached(n: int) -> bool:
        return mcnemar_power(only_a, only_b, num_pairs=n, level=level) >= power

    n = 4
    while n <= maximum and not reached(n):
        n = max(n + 1, int(n * 1.1))
    if n > maximum:
        raise NotTestable(
            f"power {power} is not reached within {maximum} pairs at discordant rates "
            f"{only_a:.3g} and {only_b:.3g}",
            given=maximum,
        )
    first = max(1, int(n / 1.1) - 1)
    last_below = max(
        (k for k in range(first, int(n * 1.2) + 2) if not reached(k)), default=first - 1
    )
    return last_below + 1


@dataclass(frozen=True, slots=True)
class PilotVariance:
    """Variance components of per-case success differences in a pilot.

    between_cases: variance of the cases' true mean differences, never below 0.
    within_case: variance of one stream's difference around its case's mean.
    num_cases, num_streams: size of the pilot.
    """

    between_cases: float
    within_case: float
    num_cases: int
    num_streams: int


def pilot_variance(differences: np.ndarray) -> PilotVariance:
    """Split the variance of paired differences into cases and streams.

    Args:
        differences: [cases, streams] arm a minus arm b, one per planner stream; at least 2 x 2.

    Source: the one-way random-effects analysis of variance.
    """
    d = np.asarray(differences, dtype=float)
    if d.ndim != 2 or min(d.shape) < 2 or not np.isfinite(d).all():
        raise NotTestable(
            f"a pilot of shape {d.shape} cannot tell cases from streams; at least 2 cases with 2 "
            "streams each, all finite, are needed",
            given=d.shape,
            needed=2,
        )
    within = float(d.var(axis=1, ddof=1).mean())
    means = float(d.mean(axis=1).var(ddof=1))
    return PilotVariance(max(0.0, means - within / d.shape[1]), within, d.shape[0], d.shape[1])


def needed_cases(
    pilot: PilotVariance,
    *,
    effect: float,
    num_streams: int = 3,
    power: float = 0.8,
    level: float = 0.05,
) -> int:
    """Cases needed to show a mean difference with a two-sided test on case means.

    Args:
        effect: the difference to show, in the pilot's unit (0.1 is ten points).
        num_streams: planner streams averaged inside each case.

    Returns:
        The smallest n at which a t-test of case means has the wanted power, an accurate stand-in
        for the sign-flip test; never under 6, where a two-sided sign-flip test at 0.05 cannot
        reject at all.
    """
    if effect == 0:
        raise NotTestable("an effect of 0 cannot be shown by any number of cases", given=0.0)
    checked_level(power, name="power")
    streams = checked_count(num_streams, name="num_streams", low=1)
    variance = pilot.between_cases + pilot.within_case / streams
    n = max(2, math.ceil(1 - math.log2(checked_level(level, name="level"))))
    while variance > 0:
        t = sps.t.ppf(1 - level / 2, n - 1)
        shift = abs(effect) / math.sqrt(variance / n)
        reached = float(sps.nct.sf(t, n - 1, shift) + sps.nct.cdf(-t, n - 1, shift))
        # A non-central t far in its tail returns NaN; the power is 1 there.
        if math.isnan(reached) or reached >= power:
            break
        n += 1
        if n > 100_000:
            raise NotTestable(f"an effect of {effect} needs over 100,000 cases", given=n)
    return n
