"""Typed neighbourhood: kernel-weighted UCB over neighbours of the highest risks."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.methods.kernel_ucb import KernelUCB
from dreamcheck.discovery.representation import action_features
from dreamcheck.discovery.search import Observed, Proposal

ANCHORS = 3
MAX_SCALE_STEP = 0.26
MAX_ACTION_STEP = 0.85


class TypedNeighbourhood(KernelUCB):
    """Maximises the kernel-weighted bound over neighbours of the three highest-risk observations.

    In a library of action templates a neighbour shares the reset seed and satisfies at least one
    of |gamma' - gamma| <= 0.26, ||abar' - abar|| <= 0.85, abar' . abar > 0. Other libraries have
    no such features; there a neighbour is a replacement of one coordinate (ours). All unseen
    inputs when the frontier is empty. Source: spec/discovery.md section 3.
    """

    name = "typed-neighbourhood"

    def _next(self, observed: Observed) -> Proposal:
        anchors = observed.indices[self._best(observed, ANCHORS)]
        parents: dict[int, int] = {}
        for h in reversed(anchors.tolist()):
            around = self._neighbours(h)
            parents.update(dict.fromkeys(around[observed.unseen[around]].tolist(), h))
        frontier = np.array(sorted(parents), dtype=np.int64)
        bound = self._bound(observed)
        if not len(frontier):
            return self._maximise(bound, np.flatnonzero(observed.unseen), observed, pool="all")
        return self._maximise(bound, frontier, observed, pool="local", parents=parents)

    def _neighbours(self, index: int) -> np.ndarray:
        features = action_features(self.library)
        if features is None:
            return self.graph.replacements(index)
        scale_step = np.abs(features.scales - features.scales[index])
        mean = features.mean_actions
        action_step = np.linalg.norm(mean - mean[index], axis=1)
        # 1e-12: 0.5 - 0.25 and means of thirds are inexact, the bounds are decimal.
        close = (
            (scale_step <= MAX_SCALE_STEP + 1e-12)
            | (action_step <= MAX_ACTION_STEP + 1e-12)
            | (mean @ mean[index] > 1e-12)
        )
        near = close & (features.seeds == features.seeds[index])
        near[index] = False
        return np.flatnonzero(near)
