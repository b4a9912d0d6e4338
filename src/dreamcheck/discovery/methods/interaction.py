"""BasinLens-Interaction: a ridge on pairwise features, over every unseen input."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery import ridge
from dreamcheck.discovery.search import MIN_SPREAD, Method, Observed, Proposal

PENALTY = 1.0
NOVELTY_WEIGHT = 0.30
PROXIMITY_WEIGHT = 0.25
PROXIMITY_SCALE = 0.18
MAD_TO_STD = 1.4826


class Interaction(Method):
    """Maximises prediction + 0.30 s_R distance to the nearest observation + 0.25 s_R proximity.

    s_R is 1.4826 MAD of the observed scores, at least 1e-6; anchors are the observations at or
    above their upper quartile, the maximum alone before four. Source: spec/discovery.md
    sections 3 and 9.
    """

    name = "interaction"

    def _next(self, observed: Observed) -> Proposal:
        scores = observed.scores
        model = ridge.fit(self.library.psi[observed.indices], scores, penalty=PENALTY)
        spread = max(MAD_TO_STD * float(np.median(np.abs(scores - np.median(scores)))), MIN_SPREAD)
        level = scores.max() if len(scores) < 4 else np.quantile(scores, 0.75)
        anchors = observed.indices[scores >= level]
        near = self.geometry.min_squared_distance(anchors)
        novelty = np.sqrt(self.geometry.min_squared_distance(observed.indices))
        values = model.predict(self.library.psi)
        values += NOVELTY_WEIGHT * spread * novelty
        values += PROXIMITY_WEIGHT * spread * np.exp(near / (-2.0 * PROXIMITY_SCALE**2))
        unseen = np.flatnonzero(observed.unseen)
        standardised = (values[unseen] - observed.mean) / max(observed.spread, spread)
        at, tied = self._argmax(unseen, standardised, step=observed.step)
        return Proposal(
            index=int(unseen[at]), acquisition=float(values[unseen[at]]), pool="all", tied=tied
        )
