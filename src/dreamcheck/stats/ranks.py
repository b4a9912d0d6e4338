"""Rank correlations with average ranks, and the slope by which selected scores shrink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from dreamcheck.stats.estimate import Estimate, StatisticsInputError, checked_sample


def average_ranks(values: Any) -> np.ndarray:
    """Ranks from 1, ties share their average. Exact equality ties: pass counts, not rates."""
    return np.asarray(rankdata(checked_sample(values, name="values")), dtype=float)


def _pair(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    a, b = checked_sample(x, name="x"), checked_sample(y, name="y")
    if a.size != b.size:
        raise StatisticsInputError(f"{a.size} and {b.size} values cannot be correlated")
    return a, b


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman_of(
    x: Any, y: Any, *, minimum: int = 3, decimals: int | None = None
) -> Callable[[np.ndarray], float]:
    """Spearman's rho with average ranks as a function of row multiplicities [n].

    A bootstrap asks for one sample under thousands of multiplicities: ties are found once. The
    value is that of repeating every row as often as its multiplicity says; NaN (undefined, not
    zero) under ``minimum`` rows or when x or y takes one value.

    Args:
        decimals: x is looked at this coarsely when asking whether it takes one value.
    """
    a, b = _pair(x, y)
    coarse = a if decimals is None else np.round(a, decimals)
    groups = [np.unique(v, return_inverse=True)[1] for v in (a, b)]

    def of(counts: np.ndarray) -> float:
        total = counts.sum()
        live = coarse[counts > 0]
        if total < minimum or live.size == 0 or live.min() == live.max():
            return float("nan")
        ranks = []
        for group in groups:
            size = np.bincount(group, weights=counts)
            rank = (np.cumsum(size) - (size - 1) / 2.0)[group]
            ranks.append(rank - (counts @ rank) / total)
        first, second = ranks
        scale = np.sqrt((counts @ (first * first)) * (counts @ (second * second)))
        if not scale > 0:
            return float("nan")
        return float(np.clip((counts @ (first * second)) / scale, -1.0, 1.0))

    return of


def spearman(x: Any, y: Any, *, minimum: int = 3, decimals: int | None = None) -> Estimate:
    """Spearman's rho with average ranks; undefined, with the reason, for constants or few rows.

    Args:
        minimum: fewest rows; VIScore's within-task statistic asks for 4.
        decimals: see ``spearman_of``.
    """
    a, b = _pair(x, y)
    if a.size < minimum:
        return Estimate.undefined(a.size, f"{a.size} rows; {minimum} are needed")
    value = spearman_of(a, b, minimum=minimum, decimals=decimals)(np.ones(a.size))
    if np.isnan(value):
        name = "y" if (b == b[0]).all() else "x"
        return Estimate.undefined(a.size, f"{name} takes one value")
    return Estimate(value, a.size)


def partial_spearman(x: Any, y: Any, controls: Any) -> Estimate:
    """Spearman's rho of x and y given controls: Pearson of rank residuals.

    Ranks of x and y are regressed on the ranks of every control, with an intercept; the residuals
    are correlated.

    Args:
        controls: [n, c] or [n].
    """
    a, b = _pair(x, y)
    c = np.asarray(controls, dtype=float)
    c = c[:, None] if c.ndim == 1 else c
    if c.shape[0] != a.size:
        raise StatisticsInputError(f"controls of shape {c.shape} for {a.size} rows")
    needed = c.shape[1] + 3
    if a.size < needed:
        return Estimate.undefined(a.size, f"{a.size} rows; {needed} are needed")
    ranks = np.column_stack([np.ones(a.size), *(average_ranks(col) for col in c.T)])
    residuals = []
    for name, values in (("x", a), ("y", b)):
        r = average_ranks(values)
        rest = r - ranks @ np.linalg.lstsq(ranks, r, rcond=None)[0]
        if np.abs(rest).max() < 1e-9 * a.size:
            return Estimate.undefined(a.size, f"{name} is constant or determined by the controls")
        residuals.append(rest)
    return Estimate(_pearson(*residuals), a.size)


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """Least-squares line of validation score on search score over validated inputs.

    slope: 1 when search scores carry over in full, 0 when they were luck.
    mean_drop: mean search score minus mean validation score.
    """

    slope: Estimate
    intercept: float
    mean_drop: float


def shrinkage_slope(search_scores: Any, validation_scores: Any) -> Shrinkage:
    """How much of a difference in search scores survives on held-out seeds.

    Inputs selected for a high search score only: the slope within such a shortlist is flatter
    than over the library; draw both groups (shortlist and random shortlist) together.

    Source: evidence.md section 3.
    """
    s, v = _pair(search_scores, validation_scores)
    drop = float(s.mean() - v.mean())
    if s.size < 3 or (s == s[0]).all():
        reason = f"{s.size} inputs; 3 are needed" if s.size < 3 else "search scores are all equal"
        return Shrinkage(Estimate.undefined(s.size, reason), float("nan"), drop)
    centred = s - s.mean()
    slope = float(centred @ v / (centred @ centred))
    return Shrinkage(Estimate(slope, s.size), float(v.mean() - slope * s.mean()), drop)
