"""Checked fast mode: score in bfloat16, measure how wrong that is, settle what it cannot decide.

In every iteration 32 candidates are scored both ways; the 99.9th percentile of the difference is
the margin. Candidates within the margin of the elite boundary are scored again in float32. When
more than half qualify, all are: the mode then costs more than the exact one, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.planning.costs import ModelCost

CALIBRATION = 32
PERCENTILE = 99.9
PAD = 32
"""Re-scored candidates go through in multiples of this, so that shapes stay few (law 5)."""


@dataclass
class ScreeningReport:
    """What the fast mode did: filled while planning.

    rescored: shares of candidates scored again, one per episode and iteration. fallbacks: how
    many of those were scored in full. margins: relative to the boundary cost.
    """

    rescored: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    fallbacks: int = 0

    @classmethod
    def merged(cls, reports: Sequence[ScreeningReport]) -> ScreeningReport:
        """Reports of consecutive groups of episodes as one."""
        return cls(
            rescored=[x for r in reports for x in r.rescored],
            margins=[x for r in reports for x in r.margins],
            fallbacks=sum(r.fallbacks for r in reports),
        )

    def to_dict(self) -> dict[str, Any]:
        """Means and counts."""
        n = len(self.rescored)
        return {
            "iterations": n,
            "mean_rescored": float(np.mean(self.rescored)) if n else None,
            "mean_relative_margin": float(np.mean(self.margins)) if n else None,
            "fallback_share": self.fallbacks / n if n else None,
        }


class ScreenedCost:
    """Costs whose elite set is decided in float32 wherever bfloat16 cannot decide it."""

    def __init__(
        self, fast: ModelCost, exact: ModelCost, *, num_elites: int, report: ScreeningReport
    ) -> None:
        self.fast = fast
        self.exact = exact
        self.num_elites = num_elites
        self.report = report

    def __call__(self, candidates: Tensor) -> Tensor:
        """[B, K, T, width] -> [B, K]: float32 near the boundary, bfloat16 elsewhere."""
        rough = self.fast(candidates)
        return torch.stack([self._settled(candidates, rough, b) for b in range(len(candidates))])

    def _settled(self, candidates: Tensor, rough: Tensor, b: int) -> Tensor:
        k = candidates.shape[1]
        costs = rough[b].clone()
        exact = self.exact.rows(np.array([b]))
        # Spread over the ranks, so that the margin is measured where the boundary may lie.
        ranks = torch.linspace(0, k - 1, min(CALIBRATION, k)).round().long()
        order = costs.argsort(stable=True)
        known = order[ranks]
        truth = exact(candidates[b : b + 1, known])[0]
        margin = float(np.percentile((costs[known] - truth).abs().double().numpy(), PERCENTILE))
        boundary = float(costs[order[min(self.num_elites, k) - 1]])
        near = (costs - boundary).abs() <= margin
        self.report.margins.append(margin / max(abs(boundary), 1e-30))
        if int(near.sum()) > k // 2:
            self.report.fallbacks += 1
            self.report.rescored.append(1.0)
            return exact(candidates[b : b + 1])[0]
        near[known] = False
        again = near.nonzero().flatten()
        self.report.rescored.append((len(again) + len(known)) / k)
        costs[known] = truth
        if len(again):
            size = -(-len(again) // PAD) * PAD
            padded = torch.cat([again, again[:1].expand(size - len(again))])
            costs[again] = exact(candidates[b : b + 1, padded])[0][: len(again)]
        return costs
