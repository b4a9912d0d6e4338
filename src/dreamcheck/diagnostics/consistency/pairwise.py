"""ACPC: how far two imagined futures of one scene lie apart, under the same actions.

Plain NumPy in float64. Shapes: ``...`` any leading axes, H rollout steps, D latent width; rollouts
are already in the space in which the planner measures cost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError

WEIGHT_SUM_TOLERANCE = 1e-6
SLACK_TOLERANCE = 1e-5


def step_weights(weights: Any, *, horizon: int) -> np.ndarray:
    """The weights of the H steps, float64 [H]; 1/H each when None.

    Raises:
        UsageError: a weight is negative or not finite, their number is not H, or their sum is off
            1 by more than 1e-6.

    Source: consistency.md section 2.
    """
    if horizon < 1:
        raise UsageError(f"a rollout of {horizon} steps has nothing to weigh")
    if weights is None:
        return np.full(horizon, 1 / horizon)
    w = np.asarray(weights, dtype=float)
    if w.shape != (horizon,):
        raise UsageError(f"{w.size} weights for {horizon} rollout steps: one per step is needed.")
    if not np.isfinite(w).all() or (w < 0).any():
        raise UsageError(f"weights {w.tolist()} must be finite and not negative.")
    if abs(w.sum() - 1) > WEIGHT_SUM_TOLERANCE:
        raise UsageError(
            f"weights sum to {w.sum():.8g} instead of 1; divide each by their sum, or give none for "
            f"1/{horizon} each."
        )
    return w


def _rollouts(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.ndim < 2 or x.shape[-2:] != y.shape[-2:]:
        raise UsageError(
            f"rollouts of shapes {x.shape} and {y.shape} are not two [..., H, D] of one length"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError("a rollout holds a value that is not finite; its distance has no meaning")
    return x, y


def acpc(clean: Any, perturbed: Any, *, weights: Any = None) -> np.ndarray:
    """Action-conditioned predictive consistency of rollouts [..., H, D]: distances [...], >= 0.

    sqrt(sum_k alpha_k ||clean_k - perturbed_k||^2), which is the norm between the two rollouts
    stacked with sqrt(alpha_k). Identical rollouts give exactly 0.

    Source: consistency.md section 2.
    """
    x, y = _rollouts(clean, perturbed)
    w = step_weights(weights, horizon=x.shape[-2])
    return np.sqrt((w * ((x - y) ** 2).sum(axis=-1)).sum(axis=-1))


def error_to_future(rollout: Any, future: Any, *, weights: Any = None) -> np.ndarray:
    """e_h: weighted distance of a rollout [..., H, D] to the encoded observed future."""
    return acpc(rollout, future, weights=weights)


def error_drift(clean: Any, perturbed: Any, future: Any, *, weights: Any = None) -> np.ndarray:
    """|e_perturbed - e_clean| against one observed future; never above ACPC (Proposition 1)."""
    return np.abs(
        error_to_future(perturbed, future, weights=weights)
        - error_to_future(clean, future, weights=weights)
    )


def final_displacement(clean: Any, perturbed: Any) -> np.ndarray:
    """r: distance of the two rollouts after the last step, [...]."""
    x, y = _rollouts(clean, perturbed)
    return np.linalg.norm(x[..., -1, :] - y[..., -1, :], axis=-1)


def final_displacement_bound(consistency: float, *, last_weight: float) -> float | None:
    """ACPC / sqrt(alpha_H), the bound on r; None where the last step has no weight."""
    return consistency / math.sqrt(last_weight) if last_weight > 0 else None


def proposition_1_slack(
    clean: Any, perturbed: Any, future: Any, *, weights: Any = None
) -> np.ndarray:
    """ACPC minus error drift, [...]; below minus ``proposition_1_tolerance`` is a bug in the code."""
    return acpc(clean, perturbed, weights=weights) - error_drift(
        clean, perturbed, future, weights=weights
    )


def proposition_1_tolerance(
    clean: Any, perturbed: Any, future: Any, *, weights: Any = None
) -> np.ndarray:
    """How far below 0 the slack may lie, [...] > 0: 1e-5, more only where float64 cannot resolve it.

    A model's float32 rounding is no excuse: it lies in the three points, and the proposition holds
    for whatever points they are. What remains is the rounding of the distances themselves, at most
    H D machine epsilons of the errors that are subtracted; for D = 192 and H = 8 that passes 1e-5
    at errors of about 3e7.

    Source: consistency.md section 2 (the 1e-5).
    """
    x, _ = _rollouts(clean, perturbed)
    errors = error_to_future(clean, future, weights=weights) + error_to_future(
        perturbed, future, weights=weights
    )
    terms = x.shape[-2] * x.shape[-1]
    return np.maximum(SLACK_TOLERANCE, terms * np.finfo(np.float64).eps * errors)
