"""BasinLens-Frontier: the replacement frontier only, no global pool."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.acquisition import frontier
from dreamcheck.discovery.gp import GaussianProcess
from dreamcheck.discovery.methods.basinlens import BasinLens
from dreamcheck.discovery.search import Observed, Proposal


class Frontier(BasinLens):
    """BasinLens' acquisition over the local pool; over all unseen inputs if that is empty."""

    name = "frontier"

    def _next(self, observed: Observed) -> Proposal:
        best = self._best(observed, self.parameters.anchors)
        local = frontier(
            self.graph,
            anchors=observed.indices[best],
            scores=observed.scores[best],
            unseen=observed.unseen,
        )
        surrogate = GaussianProcess(self.geometry, observed.indices, observed.scores)
        empty = not len(local.candidates)
        pool = np.flatnonzero(observed.unseen) if empty else local.candidates
        values, parents = self._acquisition(surrogate, observed, pool, local=local, anchors=best)
        at, tied = self._argmax(pool, values, step=observed.step)
        return Proposal(
            index=int(pool[at]),
            acquisition=float(values[at]),
            pool="all" if empty else "local",
            parent=None if empty else int(parents[at]),
            tied=tied,
        )
