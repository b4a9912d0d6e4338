"""Solvers: one interface, one file each."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dreamcheck.errors import UsageError
from dreamcheck.planning.solvers.base import (
    NEAR_TIE,
    CandidateCost,
    Iteration,
    Plan,
    Solver,
)
from dreamcheck.planning.solvers.cem import CEM
from dreamcheck.planning.solvers.gradient import Gradient
from dreamcheck.planning.solvers.icem import ICEM
from dreamcheck.planning.solvers.mppi import MPPI
from dreamcheck.planning.solvers.predictive_sampling import PredictiveSampling

SOLVERS: dict[str, type] = {
    "cem": CEM,
    "icem": ICEM,
    "mppi": MPPI,
    "predictive_sampling": PredictiveSampling,
    "gradient": Gradient,
}
"""Solvers by name."""


def make_solver(name: str, **settings: Any) -> Solver:
    """A solver by name with its settings.

    Raises:
        UsageError: an unknown name or setting, named.
    """
    if name not in SOLVERS:
        raise UsageError(f"solver {name!r} is not one of {', '.join(SOLVERS)}.")
    known = [f.name for f in fields(SOLVERS[name])]
    for key in settings:
        if key not in known:
            raise UsageError(f"solver.{key} is no setting of {name}; it has {', '.join(known)}.")
    solver: Solver = SOLVERS[name](**settings)
    return solver


__all__ = [
    "CEM",
    "ICEM",
    "MPPI",
    "NEAR_TIE",
    "SOLVERS",
    "CandidateCost",
    "Gradient",
    "Iteration",
    "Plan",
    "PredictiveSampling",
    "Solver",
    "make_solver",
]
