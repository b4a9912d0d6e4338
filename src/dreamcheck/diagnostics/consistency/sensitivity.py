"""How the invariance radius hangs on its horizon and its quantile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency.pairwise import acpc
from dreamcheck.diagnostics.consistency.radius import (
    RADIUS_QUANTILE,
    invariance_radius,
    motion_scale,
)
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts, takes_draws
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation

HORIZONS = (1, 2, 4, 8)
QUANTILES = (0.80, 0.90, 0.95)


def radius_at(
    clean: Any, perturbed: Any, observed: Any, *, horizon: int, q: float = RADIUS_QUANTILE
) -> float:
    """IR_raw as it would be had everything been measured over the first ``horizon`` steps only.

    Args:
        clean: [N, H, D]; perturbed: [M, N, H, D]; observed: [N, H + 1, D], the last history frame
            first. The motion scale, too, is taken over the first ``horizon`` observed steps.

    Source: consistency.md sections 5 and 15.
    """
    x, y = np.asarray(clean, dtype=float), np.asarray(perturbed, dtype=float)
    seen = np.asarray(observed, dtype=float)
    if not 1 <= horizon <= x.shape[-2] or seen.shape[-2] < horizon + 1:
        raise UsageError(f"horizon {horizon} is not within the {x.shape[-2]} steps measured.")
    distances = acpc(np.broadcast_to(x, y.shape)[..., :horizon, :], y[..., :horizon, :])
    return invariance_radius(distances, motion_scale(seen[..., : horizon + 1, :]), q=q).raw


def radius_sensitivity(
    rollouts: PairedRollouts,
    perturbation: Perturbation,
    *,
    draws: int,
    horizons: Sequence[int] = HORIZONS,
    quantiles: Sequence[float] = QUANTILES,
) -> list[dict[str, Any]]:
    """The radius at q 0.90 by horizon, and at the longest horizon by quantile.

    Horizons beyond the windows are left out; the longest one is always there.
    """
    total = rollouts.anchors.horizon
    made = [
        Perturbation(perturbation.name, perturbation.severity, perturbation.on, m)
        for m in range(draws if takes_draws(perturbation) else 1)
    ]
    clean, others = rollouts.roll_pairs([rollouts.perturbed(p) for p in made])
    perturbed = np.stack(others)
    steps = sorted({h for h in horizons if h < total} | {total})
    cells = [(h, RADIUS_QUANTILE) for h in steps]
    cells += [(total, q) for q in quantiles if q != RADIUS_QUANTILE]
    return [
        {
            "horizon": h,
            "quantile": q,
            "ir_raw": radius_at(clean, perturbed, rollouts.observed, horizon=h, q=q),
        }
        for h, q in cells
    ]
