"""Model-predictive path integral: a softmax over the cheapest moves the mean; the spread stays."""

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
    gather,
    start,
)


@dataclass(frozen=True)
class MPPI:
    """Weights softmax(-(cost - cheapest) / temperature) over the elites; returns the mean.

    Source: spec/viscore.md section 16.
    """

    num_samples: int = 300
    num_elites: int = 30
    iterations: int = 10
    initial_std: float = 1.0
    temperature: float = 0.5

    name: ClassVar[str] = "mppi"

    def __post_init__(self) -> None:
        checked_sizes(self.num_samples, self.num_elites, self.iterations)
        if not self.temperature > 0:
            raise UsageError(f"temperature = {self.temperature} must be positive.")

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
        record = Recorder(bounds, trace)
        for i in range(self.iterations):
            drawn = noise.normal(i, rows=rows, shape=(self.num_samples, horizon, width))
            candidates = torch.from_numpy(drawn) * std[:, None] + mean[:, None]
            candidates[:, 0] = mean
            record.see(candidates)
            costs = checked_costs(cost(candidates), candidates)
            cheapest, margins = best(costs, self.num_elites)
            chosen = cheapest.sort(dim=1).values
            elite_costs = costs.gather(1, chosen)
            excess = elite_costs - elite_costs.min(dim=1, keepdim=True).values
            weights = torch.softmax(-excess / self.temperature, dim=1)
            mean = (weights[:, :, None, None] * gather(candidates, chosen)).sum(dim=1)
            record.iteration(candidates, costs, cheapest, mean, std, margins)
            elite_cost = elite_costs.mean(dim=1)
        return record.plan(mean, elite_cost)
