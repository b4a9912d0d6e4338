"""iCEM: noise that is coloured along the horizon, elites carried over, a refit with momentum."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

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
from dreamcheck.planning.solvers.cem import _box


@dataclass(frozen=True)
class ICEM:
    """Improved CEM; returns the mean.

    noise_beta: power of the noise falls as frequency to this power (2: amplitude 1/f).
    kept_elites: the best of the previous iteration that are tried again, samples 1 to kept.
    momentum: how far mean and spread move toward the elites' (0.9).
    clamp: to the action box in environment units (the solver gets it in the candidates' own).

    Source: spec/viscore.md section 16.
    """

    num_samples: int = 300
    num_elites: int = 30
    iterations: int = 10
    initial_std: float = 1.0
    noise_beta: float = 2.0
    kept_elites: int = 5
    momentum: float = 0.9
    clamp: bool = True

    name: ClassVar[str] = "icem"

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
        kept: Tensor | None = None
        for i in range(self.iterations):
            drawn = noise.normal(i, rows=rows, shape=(self.num_samples, horizon, width))
            coloured = colour(torch.from_numpy(drawn), beta=self.noise_beta)
            candidates = coloured * std[:, None] + mean[:, None]
            candidates[:, 0] = mean
            if kept is not None:
                candidates[:, 1 : 1 + kept.shape[1]] = kept
            record.see(candidates)
            if box is not None:
                candidates = candidates.clamp(*box)
            costs = checked_costs(cost(candidates), candidates)
            cheapest, margins = best(costs, self.num_elites)
            kept = gather(candidates, cheapest[:, : min(self.kept_elites, self.num_samples - 1)])
            elites = gather(candidates, cheapest.sort(dim=1).values)
            mean = mean + self.momentum * (elites.mean(dim=1) - mean)
            std = std + self.momentum * (elite_spread(elites, std) - std)
            record.iteration(candidates, costs, cheapest, mean, std, margins)
            elite_cost = costs.gather(1, cheapest).mean(dim=1)
        return record.plan(mean, elite_cost)


def colour(white: Tensor, *, beta: float) -> Tensor:
    """Noise [B, K, T, A] with power f^-beta along T, each sequence rescaled to deviation 1.

    Frequency bin 0 gets bin 1's amplitude. The deviation over time has divisor n - 1; a horizon
    of one stays white.
    """
    horizon = white.shape[2]
    if horizon <= 1:
        return white
    frequency = torch.fft.rfftfreq(horizon)
    frequency[0] = frequency[1]
    shaped = torch.fft.irfft(
        torch.fft.rfft(white, dim=2) * frequency.pow(-beta / 2)[:, None], n=horizon, dim=2
    )
    return shaped / shaped.std(dim=2, keepdim=True).clamp(min=1e-8)
