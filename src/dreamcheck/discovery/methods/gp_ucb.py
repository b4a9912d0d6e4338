"""GP-UCB: the surrogate's upper confidence bound over every unseen input, no typed frontier."""

from __future__ import annotations

from dreamcheck.discovery.gp import GaussianProcess
from dreamcheck.discovery.search import TIE, Method, Observed, Proposal


class GPUCB(Method):
    """Maximises mu + beta sigma. Source: spec/discovery.md section 3."""

    name = "gp-ucb"

    def _next(self, observed: Observed) -> Proposal:
        surrogate = GaussianProcess(self.geometry, observed.indices, observed.scores)
        # Ties are judged in standardised units, so that the score's own unit does not matter.
        candidates, values = surrogate.leaders(
            beta=self.parameters.beta,
            unseen=observed.unseen,
            count=1,
            centre=observed.mean,
            spread=observed.spread,
            tolerance=TIE,
        )
        at, tied = self._argmax(candidates, values, step=observed.step)
        return Proposal(
            index=int(candidates[at]),
            acquisition=float(values[at] * observed.spread + observed.mean),
            pool="all",
            tied=tied,
        )
