"""Portfolio: the random stream, until a heavy tail shows; then structured and random in turn."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.methods.kernel_ucb import KernelUCB
from dreamcheck.discovery.search import Observed, Proposal, Score


class Portfolio(KernelUCB):
    """Follows the random stream while no risk stands out, alternates with structure while one does.

    A risk stands out when at least three are observed and max(r) > median(r) + max(6 MAD(r),
    0.5 |median(r)|, 1e-8). While that holds the first query is structured, then structured and
    random alternate; the condition is recomputed after every query. The structured pool is the
    typed replacements around the highest risks and the leading kernel-weighted UCB proposals.
    Source: spec/discovery.md section 3.
    """

    name = "portfolio"

    def _next(self, observed: Observed) -> Proposal:
        if not self._structured_now():
            return self._shuffled_next()
        p = self.parameters
        bound = self._bound(observed)
        anchors = observed.indices[self._best(observed, p.structured_anchors)]
        parents: dict[int, int] = {}
        for h in reversed(anchors.tolist()):
            around = self.graph.replacements(h)
            parents.update(dict.fromkeys(around[observed.unseen[around]].tolist(), h))
        unseen = np.flatnonzero(observed.unseen)
        leaders = unseen[np.argsort(-bound[unseen], kind="stable")[: p.structured_leaders]]
        pool = np.union1d(leaders, np.array(sorted(parents), dtype=np.int64)).astype(np.int64)
        return self._maximise(bound, pool, observed, pool="structured", parents=parents)

    def _structured_now(self) -> bool:
        """Whose turn it is, from the record alone.

        The turns since the scout are replayed: each query after it saw the scores told before it
        in the order of asking, as a sequential search would have.
        """
        scores: list[float] = []
        structured = False
        for step, index in enumerate([*self._order, None]):
            if step >= self.parameters.scout:
                structured = not structured if stands_out(scores) else False
            outcome = None if index is None else self._outcomes.get(index)
            if isinstance(outcome, Score):
                scores.append(outcome.value)
        return structured


def stands_out(risks: list[float]) -> bool:
    """Whether the largest of at least three risks is far above their median."""
    if len(risks) < 3:
        return False
    median = float(np.median(risks))
    mad = float(np.median(np.abs(np.array(risks) - median)))
    return max(risks) > median + max(6.0 * mad, 0.5 * abs(median), 1e-8)
