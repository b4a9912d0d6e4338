"""BasinLens-Beam: the frontier of the four best observations, scored by a ridge on pairs."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery import ridge
from dreamcheck.discovery.acquisition import NO_PARENT, frontier, nearest, proximity
from dreamcheck.discovery.search import Method, Observed, Proposal

WIDTH = 4
PENALTY = 2.0
RIDGE_FROM = 8
PARENT_WEIGHT = 0.55
PREDICTION_WEIGHT = 0.30
NOVELTY_WEIGHT = 0.30
PROXIMITY_WEIGHT = 0.25


class Beam(Method):
    """Maximises 0.55 parent + 0.30 prediction + 0.30 novelty + 0.25 proximity on the frontier.

    Parent and prediction are standardised by the observed scores' mean and population std; the
    prediction term is zero before eight observations. The proximity scale is not published for
    this method: it is the protocol's s. Source: spec/discovery.md sections 3 and 9.
    """

    name = "beam"

    def _next(self, observed: Observed) -> Proposal:
        best = self._best(observed, WIDTH)
        anchors = observed.indices[best]
        local = frontier(
            self.graph, anchors=anchors, scores=observed.scores[best], unseen=observed.unseen
        )
        empty = not len(local.candidates)
        if empty:
            pool = np.flatnonzero(observed.unseen)
            parent = np.full(len(pool), NO_PARENT)
        else:
            pool = local.candidates
            parent = (local.parent_scores - observed.mean) / observed.spread
        near = proximity(
            nearest(self.geometry, pool, anchors), scale=self.parameters.proximity_scale
        )
        novelty = np.sqrt(nearest(self.geometry, pool, observed.indices))
        values = PARENT_WEIGHT * parent + NOVELTY_WEIGHT * novelty + PROXIMITY_WEIGHT * near
        if len(observed.scores) >= RIDGE_FROM:
            model = ridge.fit(
                self.library.psi_rows(observed.indices), observed.scores, penalty=PENALTY
            )
            predicted = model.predict(self.library.psi_rows(pool))
            values += PREDICTION_WEIGHT * (predicted - observed.mean) / observed.spread
        at, tied = self._argmax(pool, values, step=observed.step)
        return Proposal(
            index=int(pool[at]),
            acquisition=float(values[at]),
            pool="all" if empty else "local",
            parent=None if empty else int(local.parents[at]),
            tied=tied,
        )
