"""Many p-values at once: Holm for claims, Benjamini-Hochberg for screening."""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamcheck.stats.estimate import StatisticsInputError


def _p_values(p_values: Any) -> np.ndarray:
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or p.size == 0:
        raise StatisticsInputError(f"p-values of shape {p.shape}: one flat, non-empty list needed")
    if not ((p >= 0) & (p <= 1)).all():
        raise StatisticsInputError(
            "a p-value lies outside [0, 1] or is NaN; a test that could not be made is left out "
            "and counted, not passed as NaN"
        )
    return p


def holm(p_values: Any) -> np.ndarray:
    """Holm-adjusted p-values, [m] in the order given; reject where adjusted <= level.

    Controls the chance of any false rejection under every dependence between the tests.

    Source: Holm (1979), Scand. J. Statist. 6, 65-70.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted


def benjamini_hochberg(p_values: Any) -> np.ndarray:
    """Adjusted p-values that bound the expected share of false rejections, [m] in order.

    Source: Benjamini and Hochberg (1995), JRSS B 57, 289-300; holds for independent or
    positively dependent tests.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def holm_levels(p_values: Any, *, level: float = 0.05) -> np.ndarray:
    """The level at which Holm's procedure compares each p-value, [m] in the order given.

    The i-th smallest is compared with level / (m - i); after the first that is not rejected,
    every later one keeps the level of that failure, so ``p <= level_i`` is exactly "rejected".
    Equal p-values share the strictest of their levels, so that order decides nothing.
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    levels = np.empty_like(p)
    failed_at: float | None = None
    own = level / p.size
    for rank, index in enumerate(order):
        if rank == 0 or p[index] > p[order[rank - 1]]:
            own = level / (p.size - rank)
        if failed_at is None and p[index] > own:
            failed_at = own
        levels[index] = own if failed_at is None else failed_at
    return levels
