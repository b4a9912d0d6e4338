"""Checked fast mode: score in bfloat16, measure how wrong that is, settle what it cannot decide.

In every iteration 32 candidates are scored both ways; the 99.9th percentile of the difference is
the margin. Candidates within the margin of the elite boundary are scored again in float32. When
more than half qualify, all are: the mode then costs more than the exact one, and says so.

Of the 32, half lie next to the boundary, where the margin is needed, and half are spread over all
the other ranks, so that an error that hangs on the cost cannot hide. They go through float32 in one
call with 16 more candidates next to the boundary, which mostly leaves nothing to score again: one
call of 48 rows takes much less than two of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.planning.costs import ModelCost
from dreamcheck.planning.solvers.base import best

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
        order = costs.argsort(stable=True)
        last = min(self.num_elites, k) - 1
        known, calibrating = _first(k, last)
        known = order[known]
        truth = exact(candidates[b : b + 1, known])[0]
        apart = (costs[known] - truth).abs()[calibrating].double().numpy()
        margin = float(np.percentile(apart, PERCENTILE))
        boundary = float(costs[order[last]])
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


def _first(num: int, last: int) -> tuple[Tensor, Tensor]:
    """Ranks of ``num`` that are scored both ways, and which of them give the margin.

    last: rank of the last elite; the boundary lies behind it.
    """
    if num <= CALIBRATION:
        return torch.arange(num), torch.ones(num, dtype=torch.bool)
    nearest = min(CALIBRATION, num - CALIBRATION // 2)
    low = min(max(last + 1 - nearest // 2, 0), num - nearest)
    others = torch.cat([torch.arange(low), torch.arange(low + nearest, num)])
    places = torch.linspace(0, len(others) - 1, CALIBRATION // 2).round().long()
    calibrating = torch.ones(nearest + len(places), dtype=torch.bool)
    quarter = (nearest - CALIBRATION // 2) // 2
    calibrating[:quarter] = False
    calibrating[quarter + CALIBRATION // 2 : nearest] = False
    return torch.cat([torch.arange(low, low + nearest), others[places]]), calibrating


@dataclass
class Compared:
    """The exact costs; on the side, which of their elites the fast mode keeps.

    Both score the same candidates, those of the exact search. agreement: share of the elites that
    both choose, one number per call and episode.
    """

    exact: ModelCost
    screened: ScreenedCost
    agreement: list[float] = field(default_factory=list)

    def __call__(self, candidates: Tensor) -> Tensor:
        """[B, K, T, width] -> [B, K], as the exact mode has them."""
        costs = self.exact(candidates)
        num = self.screened.num_elites
        right, made = (best(c, num)[0].tolist() for c in (costs, self.screened(candidates)))
        self.agreement += [len(set(a) & set(b)) / len(a) for a, b in zip(right, made, strict=True)]
        return costs
