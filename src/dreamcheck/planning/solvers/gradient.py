"""AdamW on the actions themselves, from many starts or from one."""

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
    start,
)


@dataclass(frozen=True)
class Gradient:
    """AdamW with torch's defaults on the summed cost; the cost must carry gradients.

    The start of lowest cost is chosen at the last evaluation, and its actions are taken after the
    last update: one update later than the cost that chose them.

    num_starts: the first from zero (or ``initial``), the others standard normal around it. 100
        starts take 30 steps; a single start takes 100.

    Source: spec/viscore.md section 16.
    """

    num_starts: int = 100
    steps: int = 30
    learning_rate: float = 0.1
    weight_decay: float = 0.01

    name: ClassVar[str] = "gradient"
    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_starts < 1 or self.steps < 1:
            raise UsageError(
                f"num_starts = {self.num_starts} and steps = {self.steps} must be at least 1."
            )

    @classmethod
    def single_start(cls) -> Gradient:
        """One start from zero, 100 steps."""
        return cls(num_starts=1, steps=100)

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
        """The best start of every row; see ``Solver``."""
        mean = start(initial, rows, horizon, width)
        record = Recorder(bounds, trace)
        drawn = noise.normal(0, rows=rows, shape=(self.num_starts, horizon, width))
        first = torch.from_numpy(drawn) + mean[:, None]
        first[:, 0] = mean
        with torch.enable_grad():
            actions = first.clone().requires_grad_(True)
            optimiser = torch.optim.AdamW(
                [actions], lr=self.learning_rate, weight_decay=self.weight_decay
            )
            for _ in range(self.steps):
                with torch.no_grad():
                    record.see(actions)
                costs = checked_costs(cost(actions), actions)
                if not costs.requires_grad:
                    raise UsageError(
                        "this objective or model carries no gradient from cost to actions, which "
                        "the gradient solver needs. Use cem, icem, mppi or predictive_sampling, "
                        "or an objective made of torch operations."
                    )
                cheapest, margins = best(costs, 1)
                if trace:
                    spread = first.std(dim=1) if self.num_starts > 1 else torch.zeros_like(mean)
                    record.iteration(actions, costs, cheapest, actions[:, 0], spread, margins)
                (actions.grad,) = torch.autograd.grad(costs.sum(), actions)
                optimiser.step()
        chosen = actions.detach()[torch.arange(rows), cheapest[:, 0]]
        if not trace:
            record.iteration(actions, costs, cheapest, chosen, torch.zeros_like(mean), margins)
        return record.plan(chosen, costs.detach().gather(1, cheapest)[:, 0])
