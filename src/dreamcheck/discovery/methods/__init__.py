"""Search methods, one file each, and their registry."""

from __future__ import annotations

from types import MappingProxyType

from dreamcheck.discovery.library import Library
from dreamcheck.discovery.methods.basinlens import BasinLens
from dreamcheck.discovery.methods.beam import Beam
from dreamcheck.discovery.methods.cem import CEM
from dreamcheck.discovery.methods.frontier import Frontier
from dreamcheck.discovery.methods.gp_ucb import GPUCB
from dreamcheck.discovery.methods.interaction import Interaction
from dreamcheck.discovery.methods.kernel_ucb import KernelUCB
from dreamcheck.discovery.methods.portfolio import Portfolio
from dreamcheck.discovery.methods.random import Random
from dreamcheck.discovery.methods.typed_neighbourhood import TypedNeighbourhood
from dreamcheck.discovery.parameters import SearchParameters
from dreamcheck.discovery.search import Method
from dreamcheck.errors import UsageError

METHODS: MappingProxyType[str, type[Method]] = MappingProxyType(
    {
        m.name: m
        for m in (
            Random,
            GPUCB,
            BasinLens,
            Frontier,
            Interaction,
            Beam,
            CEM,
            KernelUCB,
            TypedNeighbourhood,
            Portfolio,
        )
    }
)
"""Every method by name."""


def make_method(
    name: str,
    library: Library,
    *,
    seed: int,
    budget: int,
    parameters: SearchParameters | None = None,
    failures_spend_budget: bool = True,
) -> Method:
    """One restart of the named method.

    Raises:
        UsageError: unknown name; the message lists the known ones.
    """
    if name not in METHODS:
        raise UsageError(f"no search method is called {name!r}; known: {', '.join(METHODS)}.")
    return METHODS[name](
        library,
        seed=seed,
        budget=budget,
        parameters=parameters,
        failures_spend_budget=failures_spend_budget,
    )


__all__ = [
    "CEM",
    "GPUCB",
    "METHODS",
    "BasinLens",
    "Beam",
    "Frontier",
    "Interaction",
    "KernelUCB",
    "Portfolio",
    "Random",
    "TypedNeighbourhood",
    "make_method",
]
