"""Random: the restart's shuffled library order."""

from __future__ import annotations

from dreamcheck.discovery.search import Method, Observed, Proposal


class Random(Method):
    """Asks in the shuffled order whose beginning is everyone's scout."""

    name = "random"

    def _next(self, observed: Observed) -> Proposal:
        return self._shuffled_next()
