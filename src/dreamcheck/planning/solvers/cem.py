"""Cross-entropy method: keep the cheapest, refit mean and spread, repeat."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from dreamcheck.errors import UsageError
from dreamcheck.planning.noise import Noise
from dreamcheck.planning.solvers.base import (
    Bounds,
    CandidateCost,
    Plan,
    Recorder,
    best,
    checked_costs,
    checked_sizes,
    elite_spread,
    gather,
    start,
)


@dataclass(frozen=True)
class CEM:
    """The reference planner: returns the final mean.

    num_samples, num_elites, iterations: 300, 30 and 30 (10 outside PushT in the VIScore pools).
    initial_std: spread of the first proposal, in the candidates' units.
    std_floor: smallest spread; the reference has none, the ``held`` release 1e-3.
    first_is_mean: candidate 0 is the mean itself.
    clamp: candidates and the returned mean are clipped to the box (``held`` only).

    Source: spec/viscore.md section 16; spec/protocol.md section 2.6.
    """

    num_samples: int = 300
    num_elites: int = 30
    iterations: int = 30
    initial_std: float = 1.0
    std_floor: float = 0.0
    first_is_mean: bool = True
    clamp: bool = False

    name: ClassVar[str] = "cem"

    def __post_init__(self) -> None:
        checked_sizes(self.num_samples, self.num_elites, self.iterations)

    @property
    def settings(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    def solve(
        self,
        cost: CandidateCost,
        *,
        rows: int,
        horizon: int,
        width: int,
        noise: Noise,
        bounds: Bounds | None = None,
        initial: np.ndarray | None = None,
        trace: bool = False,
    ) -> Plan:
        """The final mean of every row; see ``Solver``."""
        mean = start(initial, rows, horizon, width)
        std = torch.full_like(mean, self.initial_std)
        box = _box(bounds, self.clamp)
        record = Recorder(bounds, trace)
        for i in range(self.iterations):
            drawn = noise.normal(i, rows=rows, shape=(self.num_samples, horizon, width))
            candidates = torch.from_numpy(drawn) * std[:, None] + mean[:, None]
            if self.first_is_mean:
                candidates[:, 0] = mean
            record.see(candidates)
            if box is not None:
                candidates = candidates.clamp(*box)
            costs = checked_costs(cost(candidates), candidates)
            cheapest, margins = best(costs, self.num_elites)
            # Ascending indices: the order of a sum does not hang on a near-tie of two costs.
            elites = gather(candidates, cheapest.sort(dim=1).values)
            mean = elites.mean(dim=1)
            std = elite_spread(elites, std).clamp(min=self.std_floor)
            record.iteration(candidates, costs, cheapest, mean, std, margins)
            elite_cost = costs.gather(1, cheapest).mean(dim=1)
        return record.plan(mean if box is None else mean.clamp(*box), elite_cost)


def _box(bounds: Bounds | None, clamp: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
    if not clamp:
        return None
    if bounds is None:
        raise UsageError("this solver clamps its candidates: give the action box as bounds.")
    low, high = bounds
    return torch.from_numpy(low), torch.from_numpy(high)
