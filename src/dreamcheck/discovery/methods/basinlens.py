"""BasinLens: a global pool of UCB leaders and a local pool of typed replacements, merged."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.acquisition import NO_PARENT, Frontier, frontier, nearest, proximity
from dreamcheck.discovery.gp import GaussianProcess
from dreamcheck.discovery.search import TIE, Method, Observed, Proposal


class BasinLens(Method):
    """Maximises z_UCB + lambda_p z_par + lambda_d kappa_anc + lambda_n delta_nov.

    Everything is recomputed after each query. Source: spec/discovery.md section 3; the paper's
    equations C.1 to C.4.
    """

    name = "basinlens"

    def _next(self, observed: Observed) -> Proposal:
        surrogate = GaussianProcess(self.geometry, observed.indices, observed.scores)
        best = self._best(observed, self.parameters.anchors)
        local = frontier(
            self.graph,
            anchors=observed.indices[best],
            scores=observed.scores[best],
            unseen=observed.unseen,
        )
        leaders = self._global_pool(surrogate, observed)
        pool = np.union1d(local.candidates, leaders)
        values, parents = self._acquisition(surrogate, observed, pool, local=local, anchors=best)
        at, tied = self._argmax(pool, values, step=observed.step)
        index = int(pool[at])
        in_local, in_global = parents[at] >= 0, bool(np.isin(index, leaders))
        return Proposal(
            index=index,
            acquisition=float(values[at]),
            pool="both" if in_local and in_global else "local" if in_local else "global",
            parent=int(parents[at]) if in_local else None,
            tied=tied,
        )

    def _global_pool(self, surrogate: GaussianProcess, observed: Observed) -> np.ndarray:
        """The G unseen candidates of highest mu + beta sigma, ascending indices.

        Where several tie for the last places, the restart's generator draws among them.
        """
        size = self.parameters.global_pool
        candidates, values = surrogate.leaders(
            beta=self.parameters.beta,
            unseen=observed.unseen,
            count=size,
            centre=observed.mean,
            spread=observed.spread,
            tolerance=TIE,
        )
        if len(candidates) <= size:
            return candidates
        last = float(np.sort(values)[-size])
        tolerance = TIE * max(1.0, abs(last))
        sure = np.flatnonzero(values > last + tolerance)
        tied = np.flatnonzero(np.abs(values - last) <= tolerance)
        drawn = self._rng("pool", observed.step).permutation(len(tied))[: size - len(sure)]
        return np.sort(candidates[np.concatenate([sure, tied[drawn]])])

    def _acquisition(
        self,
        surrogate: GaussianProcess,
        observed: Observed,
        pool: np.ndarray,
        *,
        local: Frontier,
        anchors: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A_t of every candidate of the pool, and its parent (-1 without one)."""
        p = self.parameters
        mean, std = surrogate.predict(pool)
        z_ucb = (mean + p.beta * std - observed.mean) / observed.spread  # eq. C.1
        z_parent = np.full(len(pool), NO_PARENT)
        parents = np.full(len(pool), -1, dtype=np.int64)
        at = np.searchsorted(pool, local.candidates)
        z_parent[at] = (local.parent_scores - observed.mean) / observed.spread  # eq. C.2
        parents[at] = local.parents
        to_anchor = nearest(self.geometry, pool, observed.indices[anchors])
        near = proximity(to_anchor, scale=p.proximity_scale)  # eq. C.3
        novelty = np.sqrt(nearest(self.geometry, pool, observed.indices))  # eq. C.4
        values = (
            z_ucb
            + p.parent_weight * z_parent
            + p.proximity_weight * near
            + p.novelty_weight * novelty
        )
        return values, parents
