"""Kernel-weighted UCB: a weighted mean of observed risks and a bonus where weights are few."""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.representation import kernel_geometry
from dreamcheck.discovery.search import Method, Observed, Proposal

WEIGHT_FLOOR = 1e-6
LEAST_SUM = 1e-280


class KernelUCB(Method):
    """Maximises mu + c sqrt(v + eta^2 / (sum w + 1e-6)) over every unseen input.

    w_i = exp(-||phi(x) - phi(x_i)||^2 / (2 l^2)); mu and v are the weighted mean and variance of
    the observed risks; eta = max(std(r), 0.25 max|r|, 1e-8). Source: spec/discovery.md section 3.
    """

    name = "kernel-ucb"

    def _next(self, observed: Observed) -> Proposal:
        unseen = np.flatnonzero(observed.unseen)
        return self._maximise(self._bound(observed), unseen, observed, pool="all")

    def _bound(self, observed: Observed) -> np.ndarray:
        """A(x) of every input of the library, [N]."""
        risks = observed.scores
        # Centred, so that the variance is not a difference of two large numbers.
        centred = risks - observed.mean
        sums = kernel_geometry(self.library).kernel_sums(
            observed.indices,
            np.column_stack([np.ones(len(risks)), centred, centred**2]),
            weights=self.parameters.kernel_length**-2.0,
        )
        total = sums[0]
        # So far from every observation that all weights underflow: the plain mean and variance.
        lost = total < LEAST_SUM
        safe = np.where(lost, 1.0, total)
        mean = np.where(lost, 0.0, sums[1] / safe)
        variance = np.where(lost, centred.var(), np.maximum(sums[2] / safe - mean**2, 0.0))
        eta = max(float(risks.std()), 0.25 * float(np.abs(risks).max()), 1e-8)
        bonus = np.sqrt(variance + eta**2 / (total + WEIGHT_FLOOR))
        return observed.mean + mean + self.parameters.exploration * bonus

    def _maximise(
        self,
        bound: np.ndarray,
        candidates: np.ndarray,
        observed: Observed,
        *,
        pool: str,
        parents: dict[int, int] | None = None,
    ) -> Proposal:
        values = (bound[candidates] - observed.mean) / observed.spread
        at, tied = self._argmax(candidates, values, step=observed.step)
        index = int(candidates[at])
        return Proposal(
            index=index,
            acquisition=float(bound[index]),
            pool=pool,
            parent=(parents or {}).get(index),
            tied=tied,
        )
