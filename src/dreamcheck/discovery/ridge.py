"""Ridge regression on linear, squared and pairwise-product features of psi.

The prediction is a quadratic form, so a library of a million inputs needs no feature matrix.
Source: spec/discovery.md section 3 (Interaction and Beam). The intercept is not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.stats import ridge_weights

CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class QuadraticRidge:
    """A fitted predictor: constant + psi . linear + psi Q psi."""

    constant: float
    linear: np.ndarray
    quadratic: np.ndarray

    def predict(self, psi: np.ndarray) -> np.ndarray:
        """Predicted score of each row, [n]."""
        out = np.empty(len(psi))
        for start in range(0, len(psi), CHUNK):
            x = psi[start : start + CHUNK]
            out[start : start + CHUNK] = self.constant + np.einsum(
                "ij,ij->i", x @ self.quadratic + self.linear, x
            )
        return out


def features(psi: np.ndarray) -> np.ndarray:
    """[x_i..., x_i^2..., x_i x_j for i < j...]: [n, D + D + D (D - 1) / 2]."""
    i, j = np.triu_indices(psi.shape[1], k=1)
    return np.concatenate([psi, psi**2, psi[:, i] * psi[:, j]], axis=1)


def fit(psi: np.ndarray, scores: np.ndarray, *, penalty: float) -> QuadraticRidge:
    """Least squares with ``penalty`` times the squared weights, intercept free.

    Args:
        psi: observed rows [n, D], n >= 1.
        scores: theirs [n].
        penalty: above 0.
    """
    x = features(psi)
    centre, mean = x.mean(axis=0), float(scores.mean())
    x = x - centre
    y = scores - mean
    weights = ridge_weights(x, y, penalty=penalty)
    d = psi.shape[1]
    quadratic = np.diag(weights[d : 2 * d])
    quadratic[np.triu_indices(d, k=1)] = weights[2 * d :]
    return QuadraticRidge(
        constant=mean - float(centre @ weights), linear=weights[:d], quadratic=quadratic
    )
