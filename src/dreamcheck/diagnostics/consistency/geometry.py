"""How perturbed views of a scene lie among those of other scenes (the local-geometry case study).

A picture of one checkpoint, never a screen: a collapsed encoder makes every radius small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts, takes_draws
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation

NUM_HISTORIES = 128
SEVERITIES = (0.01, 0.04, 0.08)
NUM_DRAWS = 6
NEAREST_FLOOR = 1e-12


@dataclass(frozen=True)
class LocalGeometry:
    """Radius of every scene's views against its nearest other scene; arrays are [N].

    radius: r_i, the farthest view from the clean one. nearest: NN_i, the nearest other clean one.
    disjoint: ||v_i - v_j|| > r_i + r_j for every j. num_views: of each scene, the clean one apart.
    """

    radius: np.ndarray
    nearest: np.ndarray
    disjoint: np.ndarray
    num_views: int

    @property
    def num_coinciding(self) -> int:
        """Scenes whose clean latent another scene shares: their ratio is over the floor 1e-12."""
        return int((self.nearest == 0).sum())

    @property
    def median_ratio(self) -> float:
        """Median of r_i / NN_i."""
        return float(np.median(self.radius / np.maximum(self.nearest, NEAREST_FLOOR)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        n = len(self.radius)
        below = int((self.radius < self.nearest).sum())
        return {
            "num_scenes": n,
            "num_views": self.num_views,
            "median_ratio": self.median_ratio,
            "num_below": below,
            "below_fraction": below / n,
            "num_disjoint": int(self.disjoint.sum()),
            "disjoint_fraction": int(self.disjoint.sum()) / n,
            "num_coinciding": self.num_coinciding,
            "radius": self.radius.tolist(),
            "nearest": self.nearest.tolist(),
        }


def local_geometry(clean: Any, views: Any) -> LocalGeometry:
    """Radii, nearest neighbours and disjointness of scenes.

    Args:
        clean: [N, D], N >= 2. views: [N, V, D], V >= 1.

    Raises:
        UsageError: shapes disagree, or a value is not finite.

    Source: consistency.md section 14.
    """
    v, seen = np.asarray(clean, dtype=float), np.asarray(views, dtype=float)
    if v.ndim != 2 or len(v) < 2 or seen.ndim != 3 or seen.shape[::2] != v.shape or not seen.size:
        raise UsageError(f"clean {v.shape} and views {seen.shape}: [N, D] and [N, V, D] are needed")
    if not (np.isfinite(v).all() and np.isfinite(seen).all()):
        raise UsageError("a latent is not finite; its neighbours have no meaning")
    radius = np.linalg.norm(seen - v[:, None], axis=-1).max(axis=1)
    apart = np.linalg.norm(v[:, None] - v[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    return LocalGeometry(
        radius=radius,
        nearest=apart.min(axis=1),
        disjoint=(apart > radius[:, None] + radius[None]).all(axis=1),
        num_views=seen.shape[1],
    )


def geometry_of(
    rollouts: PairedRollouts,
    *,
    perturbation: str = "gaussian",
    severities: Sequence[float] = SEVERITIES,
    draws: int = NUM_DRAWS,
) -> dict[str, LocalGeometry]:
    """Geometry of the last history frame's latent ("encoder") and of the last imagined ("rollout").

    Views are draws x severities; every history is rolled under its own actions.
    """
    made = [
        Perturbation(perturbation, severity, draw=m)
        for severity in severities
        for m in range(draws if takes_draws(Perturbation(perturbation, severity)) else 1)
    ]
    histories = [rollouts.perturbed(p) for p in made]
    clean, imagined = rollouts.roll_pairs(histories)
    encoded = [rollouts.points(h[:, -1:])[:, 0] for h in histories]
    return {
        "encoder": local_geometry(
            rollouts.points(rollouts.history[:, -1:])[:, 0], np.stack(encoded, axis=1)
        ),
        "rollout": local_geometry(
            clean[:, -1], np.stack([points[:, -1] for points in imagined], axis=1)
        ),
    }
