"""Predictive sampling: one round of candidates, the cheapest one is the plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from dreamcheck.planning.noise import Noise
from dreamcheck.planning.solvers.base import Bounds, CandidateCost, Plan
from dreamcheck.planning.solvers.cem import CEM


@dataclass(frozen=True)
class PredictiveSampling:
    """CEM with one iteration and one elite.

    Source: spec/viscore.md section 16.
    """

    num_samples: int = 300
    initial_std: float = 1.0

    name: ClassVar[str] = "predictive_sampling"

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
        """The cheapest candidate of every row; see ``Solver``."""
        once = CEM(
            num_samples=self.num_samples,
            num_elites=1,
            iterations=1,
            initial_std=self.initial_std,
        )
        return once.solve(
            cost,
            rows=rows,
            horizon=horizon,
            width=width,
            noise=noise,
            bounds=bounds,
            initial=initial,
            trace=trace,
        )
