"""CEM: one input drawn by its distance to the elites."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.search import Method, Observed, Proposal

ELITE_PERCENT = 35
NEAR_WEIGHT = 0.85
FLOOR_WEIGHT = 0.15
WIDTH = 0.22


class CEM(Method):
    """Draws an unseen input with weight 0.85 exp(-d^2 / (2 0.22^2)) + 0.15.

    d is its distance to the nearest of the best ceil(0.35 t) of t observations. The acquisition
    value of the trace is the drawn probability. Source: spec/discovery.md section 3.
    """

    name = "cem"

    def _next(self, observed: Observed) -> Proposal:
        # ceil(0.35 t) in integers: 0.35 has no exact binary form.
        num_elites = -(-ELITE_PERCENT * len(observed.scores) // 100)
        elites = observed.indices[self._best(observed, num_elites)]
        squared = self.geometry.min_squared_distance(elites)
        unseen = np.flatnonzero(observed.unseen)
        weights = NEAR_WEIGHT * np.exp(squared[unseen] / (-2.0 * WIDTH**2)) + FLOOR_WEIGHT
        cumulative = np.cumsum(weights)
        draw = self._rng("cem", observed.step).random() * cumulative[-1]
        at = min(int(np.searchsorted(cumulative, draw, side="right")), len(unseen) - 1)
        return Proposal(
            index=int(unseen[at]),
            acquisition=float(weights[at] / cumulative[-1]),
            pool="all",
        )
