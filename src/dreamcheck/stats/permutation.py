"""Exact two-sample permutation test of a difference in means, by counting every assignment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.stats.estimate import (
    NotTestable,
    StatisticsInputError,
    checked_alternative,
    checked_level,
    checked_sample,
)

# Two assignments whose mean differences agree to this share of the total absolute value are tied,
# and a tie counts as at least as extreme: rounding can raise a p-value, never lower it.
TIE_TOLERANCE = 1e-9
MINIMUM_UNITS = 4
# 2^20 subset sums per half: about a second and a hundred megabytes.
MAXIMUM_UNITS = 40


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Result of an exact test on unit values.

    difference: mean of the first group minus mean of the second, in the values' unit.
    p: share of all assignments whose difference is at least as extreme, the observed included.
    assignments: how many assignments were counted, C(n1 + n2, n1).
    as_extreme: how many of them were at least as extreme.
    smallest_p: the smallest value p could have had with these group sizes.
    alternative: "greater", "less" or "two-sided".
    """

    difference: float
    p: float
    assignments: int
    as_extreme: int
    smallest_p: float
    alternative: str


def permutation_test(
    first: Any,
    second: Any,
    *,
    alternative: str = "two-sided",
    minimum_units: int = MINIMUM_UNITS,
) -> PermutationTest:
    """Exact permutation test of the difference in means over all C(n1+n2, n1) assignments.

    The assignments are counted through the subset sums of two halves, so 20 + 20 units
    (1.4e11 assignments) are still exact. Integer samples are compared as integers; others tie
    within 1e-9 of the total absolute value.

    Args:
        first, second: one value per independent unit (an anchor, a training run, a table).
        alternative: "greater" when the first group is claimed larger; "less"; "two-sided".
        minimum_units: per group; 4 is the fewest a claim may rest on.

    Raises:
        NotTestable: a group is smaller than the minimum (``needed`` says how many), or the two
            hold more than 40 units, where the exact count is no longer made.
        StatisticsInputError: a value is not finite.

    Source: discovery.md sections 5 and 9.
    """
    checked_alternative(alternative)
    a, b = np.asarray(first), np.asarray(second)
    whole = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    x = checked_sample(a, name="first")
    y = checked_sample(b, name="second")
    n1, n2 = x.size, y.size
    if min(n1, n2) < minimum_units:
        raise NotTestable(
            f"{n1} and {n2} units: an exact permutation test needs at least {minimum_units} in "
            "each group. Measure more independent units; none may be invented or counted twice",
            given=(n1, n2),
            needed=minimum_units,
        )
    if n1 + n2 > MAXIMUM_UNITS:
        raise NotTestable(
            f"{n1} + {n2} units are more than the {MAXIMUM_UNITS} that are counted exactly",
            given=(n1, n2),
            needed=MAXIMUM_UNITS,
        )
    pooled: np.ndarray = (
        np.concatenate([a, b]).astype(np.int64) if whole else np.concatenate([x, y])
    )
    if whole and int(np.abs(pooled).max()) * (n1 + n2) ** 2 >= 2**62:
        raise StatisticsInputError("integer values are too large to be summed exactly")
    total = pooled.sum()
    observed = pooled[:n1].sum() * (n1 + n2) - n1 * total  # n1 n2 times the mean difference
    tolerance = 0 if whole else TIE_TOLERANCE * float(np.abs(pooled).sum()) * (n1 + n2)

    half = (n1 + n2) // 2
    left, right = _subset_sums(pooled[:half]), _subset_sums(pooled[half:])
    as_extreme = 0
    for size, left_sums in enumerate(left):
        if not 0 <= n1 - size < len(right):
            continue
        right_sums = np.sort(right[n1 - size])
        # difference(S) = S (n1 + n2) - n1 total; monotone in S, so tails are counted by bisection
        scaled_left = left_sums * (n1 + n2) - n1 * total
        scaled_right = right_sums * (n1 + n2)
        if alternative == "greater":
            as_extreme += _at_least(scaled_left, scaled_right, observed - tolerance)
        elif alternative == "less":
            as_extreme += _at_most(scaled_left, scaled_right, observed + tolerance)
        else:
            bound = abs(observed)
            if bound <= tolerance:
                as_extreme += scaled_left.size * scaled_right.size
            else:
                as_extreme += _at_least(scaled_left, scaled_right, bound - tolerance)
                as_extreme += _at_most(scaled_left, scaled_right, -bound + tolerance)
    assignments = math.comb(n1 + n2, n1)
    # Equal group sizes: swapping the groups is itself an assignment, so two-sided counts two.
    fewest = 2 if alternative == "two-sided" and n1 == n2 else 1
    return PermutationTest(
        difference=float(x.mean() - y.mean()),
        p=as_extreme / assignments,
        assignments=assignments,
        as_extreme=as_extreme,
        smallest_p=fewest / assignments,
        alternative=alternative,
    )


def _subset_sums(values: np.ndarray) -> list[np.ndarray]:
    """sums[k]: the sums of all C(n, k) subsets of size k."""
    sums = [np.zeros(1, dtype=values.dtype)]
    for value in values:
        grown = [s + value for s in sums]
        sums = (
            [sums[0]]
            + [np.concatenate([sums[k], grown[k - 1]]) for k in range(1, len(sums))]
            + [grown[-1]]
        )
    return sums


def _at_least(left: np.ndarray, right: np.ndarray, bound: float) -> int:
    return int((right.size - np.searchsorted(right, bound - left, side="left")).sum())


def _at_most(left: np.ndarray, right: np.ndarray, bound: float) -> int:
    return int(np.searchsorted(right, bound - left, side="right").sum())


def needed_units(*, level: float = 0.05, alternative: str = "two-sided") -> int:
    """Units per group below which no permutation test of k against k can reach the level.

    The smallest p is 2 / C(2k, k) two-sided and 1 / C(2k, k) one-sided: 0.1 for three against
    three, so at 0.05 two-sided four are needed.

    Source: evidence.md section 7.
    """
    checked_level(level, name="level")
    numerator = 2 if checked_alternative(alternative) == "two-sided" else 1
    k = 1
    while numerator / math.comb(2 * k, k) > level:
        k += 1
    return k
