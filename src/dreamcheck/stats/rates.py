"""Differences of success rates: unpaired, paired and stratified. Rates and bounds are in [-1, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.binomial import normal_quantile, wilson_interval
from dreamcheck.stats.estimate import (
    Estimate,
    Interval,
    NotTestable,
    StatisticsInputError,
    checked_alternative,
    checked_count,
)
from dreamcheck.stats.paired import PairedCounts


@dataclass(frozen=True, slots=True)
class RateDifference:
    """First rate minus second, with its interval; multiply by 100 for percentage points."""

    difference: float
    interval: Interval
    method: str


def difference_unpaired_wald(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int, *, z: float | None = None
) -> RateDifference:
    """Unpaired Wald interval for rate a minus rate b, as papers print it.

    Collapses to a point at 0/n against 0/n and ignores pairing; kept for reproduction beside
    ``difference_newcombe``.

    Args:
        z: normal quantile; 1.959964 by default. The published tables use 1.96.

    Source: protocol.md S6.
    """
    ka, na = _counts(successes_a, trials_a)
    kb, nb = _counts(successes_b, trials_b)
    quantile = normal_quantile(0.95) if z is None else z
    pa, pb = ka / na, kb / nb
    half = quantile * math.sqrt(pa * (1 - pa) / na + pb * (1 - pb) / nb)
    return RateDifference(pa - pb, Interval(pa - pb - half, pa - pb + half), "unpaired Wald")


def difference_paired_wald(counts: PairedCounts, *, z: float | None = None) -> RateDifference:
    """Paired Wald interval: variance ((b + c) - (b - c)^2 / n) / n^2 from the discordant counts.

    Source: protocol.md S6.
    """
    n = checked_count(counts.num_cases, name="num_cases", low=1)
    quantile = normal_quantile(0.95) if z is None else z
    b, c = counts.a_only, counts.b_only
    difference = (b - c) / n
    half = quantile * math.sqrt((b + c) - (b - c) ** 2 / n) / n
    return RateDifference(difference, Interval(difference - half, difference + half), "paired Wald")


def difference_newcombe(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int, *, confidence: float = 0.95
) -> RateDifference:
    """Unpaired interval from the two Wilson intervals; keeps a width at 0/n against 0/n.

    Approximate: at 95 % and arms of 10 to 50 cases it covers at least 90 % of the time, 94.5 % on
    average over rates, and a difference of zero at least 94 %.

    Source: Newcombe (1998), Statistics in Medicine 17, 873-890, method 10.
    """
    ka, na = _counts(successes_a, trials_a)
    kb, nb = _counts(successes_b, trials_b)
    pa, pb = ka / na, kb / nb
    la, ua = wilson_interval(ka, na, confidence=confidence)
    lb, ub = wilson_interval(kb, nb, confidence=confidence)
    low = pa - pb - math.hypot(pa - la, ub - pb)
    high = pa - pb + math.hypot(ua - pa, pb - lb)
    return RateDifference(pa - pb, Interval(low, high), "Newcombe score")


def difference_paired_newcombe(counts: PairedCounts, *, confidence: float = 0.95) -> RateDifference:
    """Paired score interval: Newcombe's with the correlation of the two arms taken off.

    Approximate: at 95 % and 20 cases it covers a difference of zero at least 94 % of the time.

    Source: Newcombe (1998), Statistics in Medicine 17, 2635-2650, method 10.
    """
    n = checked_count(counts.num_cases, name="num_cases", low=1)
    e, f, g, h = counts.both, counts.a_only, counts.b_only, counts.neither
    pa, pb = (e + f) / n, (e + g) / n
    la, ua = wilson_interval(e + f, n, confidence=confidence)
    lb, ub = wilson_interval(e + g, n, confidence=confidence)
    margins = (e + f) * (g + h) * (e + g) * (f + h)
    phi = 0.0
    if margins:
        product = e * h - f * g
        # Continuity towards zero for a positive association only, as in the source.
        phi = (max(product - n / 2, 0.0) if product > 0 else float(product)) / math.sqrt(margins)
    below = (pa - la) ** 2 - 2 * phi * (pa - la) * (ub - pb) + (ub - pb) ** 2
    above = (ua - pa) ** 2 - 2 * phi * (ua - pa) * (pb - lb) + (pb - lb) ** 2
    low = pa - pb - math.sqrt(max(0.0, below))
    high = pa - pb + math.sqrt(max(0.0, above))
    return RateDifference((f - g) / n, Interval(low, high), "paired Newcombe score")


@dataclass(frozen=True, slots=True)
class Stratum:
    """One distance band: successes and trials of two arms."""

    successes_a: int
    trials_a: int
    successes_b: int
    trials_b: int


@dataclass(frozen=True, slots=True)
class StratifiedTest:
    """Mantel-Haenszel odds ratio and the exact permutation p-value within strata.

    odds_ratio: undefined with a reason when no stratum is informative; inf is possible.
    p: exact, from the distribution of arm a's successes when labels are permuted inside each
        stratum (a convolution of hypergeometric laws).
    num_informative: strata in which both arms have cases and outcomes differ.
    """

    odds_ratio: Estimate
    p: float
    num_informative: int


def mantel_haenszel(strata: Sequence[Stratum], *, alternative: str = "two-sided") -> StratifiedTest:
    """Stratified comparison of two arms; labels are permuted inside each stratum only.

    The p-value enumerates: two-sided sums every total at most as likely as the observed one.

    Args:
        strata: distance bands; every band, the farthest included.

    Raises:
        NotTestable: no stratum at all.

    Source: protocol.md S7; Mantel and Haenszel (1959), JNCI 22, 719-748.
    """
    checked_alternative(alternative)
    if not strata:
        raise NotTestable("no strata to compare", given=0, needed=1)
    numerator = denominator = 0.0
    law = np.ones(1)
    offset = observed = informative = 0
    for s in strata:
        ka, kb = s.successes_a, s.successes_b
        na, nb = s.trials_a, s.trials_b
        for k, n in ((ka, na), (kb, nb)):
            checked_count(n, name="trials")
            checked_count(k, name="successes", high=n)
        n = na + nb
        if n == 0:
            continue
        numerator += ka * (nb - kb) / n
        denominator += (na - ka) * kb / n
        low, high = max(0, ka + kb - nb), min(na, ka + kb)
        informative += int(high > low)
        law = np.convolve(law, sps.hypergeom.pmf(np.arange(low, high + 1), n, ka + kb, na))
        offset += low
        observed += ka
    at = observed - offset
    if alternative == "greater":
        p = float(law[at:].sum())
    elif alternative == "less":
        p = float(law[: at + 1].sum())
    else:
        p = float(law[law <= law[at] * (1 + 1e-7)].sum())
    if denominator > 0:
        ratio = Estimate(numerator / denominator, informative)
    elif numerator > 0:
        ratio = Estimate(math.inf, informative)
    else:
        ratio = Estimate.undefined(informative, "no stratum has a case that tells the arms apart")
    return StratifiedTest(ratio, min(1.0, p), informative)


def _counts(successes: int, trials: int) -> tuple[int, int]:
    n = checked_count(trials, name="trials", low=1)
    if successes > n:
        raise StatisticsInputError(f"{successes} successes of {n} trials")
    return checked_count(successes, name="successes"), n
