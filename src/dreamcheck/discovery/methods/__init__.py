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
from dreamcheck.user_code import import_named

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


def method_named(name: str) -> type[Method]:
    """A search method by its name, or a class of the user's by ``package.module:Class``.

    Naming a class imports its module, which runs its code.

    Raises:
        UsageError: an unknown name (the known ones are listed), a module that cannot be imported,
            or something that is no search method.
    """
    if name in METHODS:
        return METHODS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UsageError(
            f"no search method is called {name!r}; known: {', '.join(METHODS)}. One of your own is "
            "named as package.module:Class."
        )
    try:
        found = getattr(import_named(module), attribute)
    except (ImportError, AttributeError) as e:
        raise UsageError(f"the search method {name!r} cannot be imported: {e}.") from e
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise UsageError(
            f"{name!r} is no search method: subclass dreamcheck.discovery.Method, and check it with "
            "dreamcheck.testing.check_method."
        )
    return found


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
        UsageError: as ``method_named``.
    """
    return method_named(name)(
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
    "method_named",
]
