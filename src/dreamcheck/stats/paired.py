"""Two arms on the same cases: exact McNemar, sign test, sign-flip test on case means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.estimate import (
    StatisticsInputError,
    checked_alternative,
    checked_count,
    checked_level,
    checked_sample,
)

# Flips are enumerated up to this many arrangements and sampled beyond.
EXACT_ARRANGEMENTS = 2**20
TIE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """Cases by outcome in two arms, a and b."""

    both: int
    a_only: int
    b_only: int
    neither: int

    @property
    def num_cases(self) -> int:
        """All paired cases."""
        return self.both + self.a_only + self.b_only + self.neither


def paired_counts(a: Any, b: Any) -> PairedCounts:
    """Counts of a 2 x 2 table from two boolean outcome lists, case by case in the same order.

    Pairing is the caller's claim: check that ids agree before calling (protocol.md P9).
    """
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape or x.ndim != 1:
        raise StatisticsInputError(
            f"outcomes of shapes {x.shape} and {y.shape} cannot be paired case by case"
        )
    for name, values in (("a", x), ("b", y)):
        if values.dtype != bool and not np.isin(values, (0, 1)).all():
            raise StatisticsInputError(f"{name} holds values other than success and failure")
    x, y = x.astype(bool), y.astype(bool)
    return PairedCounts(
        both=int((x & y).sum()),
        a_only=int((x & ~y).sum()),
        b_only=int((~x & y).sum()),
        neither=int((~x & ~y).sum()),
    )


def mcnemar_exact(a_only: int, b_only: int, *, alternative: str = "two-sided") -> float:
    """Exact McNemar p-value from the discordant counts; 1 when there are none.

    Two-sided: min(1, 2 P(Bin(a+b, 1/2) >= max)). "greater" claims arm a succeeds more often:
    P(Bin(a+b, 1/2) >= a_only).

    Source: protocol.md S3; discovery.md section 5.
    """
    a = checked_count(a_only, name="a_only")
    b = checked_count(b_only, name="b_only")
    checked_alternative(alternative)
    if a + b == 0:
        return 1.0
    if alternative == "greater":
        return float(sps.binom.sf(a - 1, a + b, 0.5))
    if alternative == "less":
        return float(sps.binom.sf(b - 1, a + b, 0.5))
    return min(1.0, 2 * float(sps.binom.sf(max(a, b) - 1, a + b, 0.5)))


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """A chi-square statistic with one degree of freedom and its upper tail."""

    statistic: float
    p: float


def mcnemar_chi2(a_only: int, b_only: int, *, continuity: bool = True) -> ChiSquare:
    """Chi-square form of McNemar; (|a-b| - 1)^2 / (a+b) with continuity. 0 and 1 with no discordance.

    An approximation kept because papers print it: 39 against 1 gives 34.2 (protocol.md S4). The
    correction is applied as published, also at a = b, where it gives 1 / (a + b) instead of 0.
    With it the test keeps its level of 5 % at every number of discordant pairs up to 59; without it
    it rejects up to 12.5 % of the time. Claims use ``mcnemar_exact``.
    """
    a = checked_count(a_only, name="a_only")
    b = checked_count(b_only, name="b_only")
    if a + b == 0:
        return ChiSquare(0.0, 1.0)
    gap = abs(a - b) - 1 if continuity else abs(a - b)
    statistic = gap * gap / (a + b)
    return ChiSquare(statistic, float(sps.chi2.sf(statistic, 1)))


@dataclass(frozen=True, slots=True)
class SignTest:
    """Wins, losses and ties of paired differences; p from wins against losses only."""

    wins: int
    losses: int
    ties: int
    p: float


def sign_test(differences: Any, *, alternative: str = "two-sided", atol: float = 0.0) -> SignTest:
    """Exact sign test of paired differences; ties are dropped and counted.

    Args:
        differences: [n] first minus second, one per independent pair.
        alternative: "greater" claims positive differences.
        atol: differences of at most this size are ties.
    """
    d = checked_sample(differences, name="differences")
    wins, losses = int((d > atol).sum()), int((d < -atol).sum())
    return SignTest(
        wins=wins,
        losses=losses,
        ties=int(d.size - wins - losses),
        p=mcnemar_exact(wins, losses, alternative=alternative),
    )


@dataclass(frozen=True, slots=True)
class SignFlipTest:
    """Result of a sign-flip test on the mean of paired differences.

    mean: the observed mean difference.
    p: share of arrangements at least as extreme, the observed included.
    arrangements: 2^(non-zero differences) when exact, draws + 1 otherwise.
    exact: False for the Monte Carlo form.
    """

    mean: float
    p: float
    arrangements: int
    exact: bool


def sign_flip_test(
    differences: Any,
    *,
    alternative: str = "two-sided",
    rng: np.random.Generator | None = None,
    draws: int = 20_000,
) -> SignFlipTest:
    """Permutation test of paired case means: every case may have had its two arms swapped.

    Exact up to 2^20 arrangements (zero differences do not count: flipping them changes nothing);
    beyond that Monte Carlo with (1 + hits) / (1 + draws), which never reports 0.

    Args:
        differences: [n] one per case, streams already averaged inside the case.
        rng: needed for more than 20 non-zero differences; take it from ``dreamcheck.streams``.

    Source: issue "planning evaluation" item 5; Good (2005), Permutation, Parametric and Bootstrap
    Tests of Hypotheses, ch. 3.
    """
    checked_alternative(alternative)
    d = checked_sample(differences, name="differences")
    moving = d[d != 0]
    observed = float(moving.sum())
    tolerance = TIE_TOLERANCE * float(np.abs(moving).sum())
    exact = 2**moving.size <= EXACT_ARRANGEMENTS
    if exact:
        sums = np.zeros(1)
        for value in moving:
            sums = np.concatenate([sums - value, sums + value])
        arrangements = sums.size
        hits = _extreme(sums, observed, tolerance, alternative)
    else:
        if rng is None:
            raise StatisticsInputError(
                f"{moving.size} non-zero differences have more than 2^20 arrangements: "
                "pass rng=stream(root_seed, 'sign-flip', identity) for the Monte Carlo form"
            )
        hits = 1
        arrangements = checked_count(draws, name="draws", low=1) + 1
        left = draws
        while left:
            size = min(left, max(1, 2_000_000 // moving.size))
            signs = rng.integers(0, 2, size=(size, moving.size), dtype=np.int8) * 2.0 - 1.0
            hits += _extreme(signs @ moving, observed, tolerance, alternative)
            left -= size
    return SignFlipTest(float(d.mean()), hits / arrangements, arrangements, exact)


def needed_pairs(*, level: float = 0.05, comparisons: int = 1) -> int:
    """Pairs below which no two-sided sign or sign-flip test can reach the level after Holm.

    With k pairs both have at least 2 arrangements of 2^k as extreme, so the smallest p is 2^(1-k),
    and Holm multiplies the smallest of m of them by m: 6 pairs for one comparison at 0.05
    (2^-5 = 0.031), 8 for five of them (5 x 2^-7 = 0.039).

    Source: evidence.md section 7.
    """
    checked_level(level, name="level")
    checked_count(comparisons, name="comparisons", low=1)
    k = 1
    while comparisons * 2.0 ** (1 - k) > level:
        k += 1
    return k


def _extreme(sums: np.ndarray, observed: float, tolerance: float, alternative: str) -> int:
    if alternative == "greater":
        return int((sums >= observed - tolerance).sum())
    if alternative == "less":
        return int((sums <= observed + tolerance).sum())
    return int((np.abs(sums) >= abs(observed) - tolerance).sum())
