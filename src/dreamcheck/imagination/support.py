"""How far an input is from what the model was trained on (law 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree

from dreamcheck.digest import Value, digest_arrays

Stratum = Literal["in", "edge", "out"]

IN_UP_TO = 95.0
EDGE_UP_TO = 99.5
"""Percentiles of spec/evidence.md section 5."""


def stratum(percentile: float) -> Stratum:
    """in up to the 95th percentile, edge up to the 99.5th, out beyond."""
    if percentile <= IN_UP_TO:
        return "in"
    return "edge" if percentile <= EDGE_UP_TO else "out"


class Nearest:
    """Nearest-neighbour distance as a percentile of the reference points' own distances.

    Args:
        points: [R, D] reference points (training states or latents), R >= 2.
        standardise: divide each coordinate by its standard deviation first; off for latents,
            whose scale the model itself chose.
    """

    def __init__(self, points: np.ndarray, *, standardise: bool) -> None:
        points = np.asarray(points, dtype=np.float64)
        if len(points) < 2:
            raise ValueError(f"{len(points)} reference point(s); at least 2 are needed.")
        spread = points.std(axis=0) if standardise else np.ones(points.shape[1])
        # A coordinate that training never varied keeps its own unit: any deviation is far.
        self._scale = np.where(spread > 1e-9, spread, 1e-9 if standardise else 1.0)
        self._tree = cKDTree(points / self._scale)
        own, _ = self._tree.query(points / self._scale, k=2)
        self._own = np.sort(own[:, 1])

    def query(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Percentile in [0, 100] and index of the nearest reference point, each [N]."""
        distance, index = self._tree.query(np.asarray(points, dtype=np.float64) / self._scale)
        below = np.searchsorted(self._own, distance, side="left")
        return 100.0 * below / len(self._own), index

    def percentile(self, points: np.ndarray) -> np.ndarray:
        """Share of reference points nearer to their own neighbour than this one is, [N]."""
        return self.query(points)[0]


class Support:
    """The training distribution, in state space and in the encoder's latent space.

    Args:
        states: [R, S] states of training frames.
        latents: [R, *shape] their latents under the encoder at hand.
        constants: coordinates that training never varied, with the value they had; an input
            that changes one is out of the training distribution whatever its state.
    """

    def __init__(
        self,
        *,
        states: np.ndarray,
        latents: np.ndarray,
        constants: Mapping[str, Value] | None = None,
    ) -> None:
        self.states = np.asarray(states, dtype=np.float64)
        self.latents = np.asarray(latents, dtype=np.float64).reshape(len(states), -1)
        self.constants = dict(constants or {})
        self.state_space = Nearest(self.states, standardise=True)
        self.latent_space = Nearest(self.latents, standardise=False)
        self.identity = digest_arrays({"states": self.states, "latents": self.latents})

    def changed_constants(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """Names of the coordinates that this input changes although training never did."""
        return tuple(
            name
            for name, value in sorted(values.items())
            if name in self.constants and value != self.constants[name]
        )
