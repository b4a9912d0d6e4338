"""Ridge regression with a free intercept, and its errors on groups it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.stats.estimate import NotTestable, StatisticsInputError

PENALTY = 1.0
CONSTANT_STD = 1e-12
"""A feature whose deviation is below this is only centred."""


def ridge_weights(x: np.ndarray, y: np.ndarray, *, penalty: float) -> np.ndarray:
    """Weights [p] of least squares plus ``penalty`` times their squares, x [n, p] and y centred."""
    n, p = x.shape
    if n < p:  # the dual: an n x n system instead of p x p
        gram = x @ x.T
        gram[np.diag_indices(n)] += penalty
        return x.T @ np.linalg.solve(gram, y)
    gram = x.T @ x
    gram[np.diag_indices(p)] += penalty
    return np.linalg.solve(gram, x.T @ y)


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge on standardised features: (x - mean) / std . weights + intercept."""

    mean: np.ndarray
    std: np.ndarray
    weights: np.ndarray
    intercept: float

    def predict(self, x: Any) -> np.ndarray:
        """Predictions [n] of features [n, p]."""
        return (np.asarray(x, dtype=float) - self.mean) / self.std @ self.weights + self.intercept


def fit_ridge(x: Any, y: Any, *, penalty: float = PENALTY) -> Ridge:
    """Ridge on features standardised over the rows given (divisor n); the intercept is free.

    Args:
        x: features [n, p]; one that is constant (deviation < 1e-12) is only centred, weight 0.
        y: [n].

    Raises:
        StatisticsInputError: shapes disagree, no rows, a value is not finite, penalty not above 0.
    """
    features, target = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if features.ndim != 2 or target.shape != features.shape[:1] or not target.size:
        raise StatisticsInputError(
            f"features {features.shape} and target {target.shape}: [n, p] and [n] with n >= 1"
        )
    if not (np.isfinite(features).all() and np.isfinite(target).all()):
        raise StatisticsInputError("a feature or the target is not finite")
    if not penalty > 0:
        raise StatisticsInputError(f"a ridge penalty of {penalty!r} is not above 0")
    mean, std = features.mean(axis=0), features.std(axis=0)
    std = np.where(std < CONSTANT_STD, 1.0, std)
    intercept = float(target.mean())
    weights = ridge_weights((features - mean) / std, target - intercept, penalty=penalty)
    return Ridge(mean, std, weights, intercept)


def held_out_errors(
    x: Any, y: Any, groups: Sequence[str] | np.ndarray, *, penalty: float = PENALTY
) -> np.ndarray:
    """Absolute errors [n], each group predicted by a ridge fitted on all the others.

    Raises:
        NotTestable: fewer than two groups.
        StatisticsInputError: as ``fit_ridge``, or not one group label a row.
    """
    features, target = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    labels = np.asarray(groups)
    if labels.shape != target.shape:
        raise StatisticsInputError(f"{labels.size} group labels for {target.size} rows")
    names = np.unique(labels)
    if names.size < 2:
        raise NotTestable(
            f"{names.size} group(s): leaving one out needs at least 2",
            given=int(names.size),
            needed=2,
        )
    out = np.empty(target.size)
    for name in names:
        test = labels == name
        fitted = fit_ridge(features[~test], target[~test], penalty=penalty)
        out[test] = np.abs(fitted.predict(features[test]) - target[test])
    return out
