"""Search parameters of the published protocols. Source: spec/discovery.md section 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from dreamcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class SearchParameters:
    """One column of the parameter table, and the kernel-weighted methods' numbers.

    scout: inputs every method takes from the shared random order first (b0).
    beta: weight of the surrogate's standard deviation.
    anchors: best-scoring observations whose replacements form the local pool (A).
    global_pool: leading UCB candidates (G).
    parent_weight, proximity_weight, novelty_weight: lambda_p, lambda_d, lambda_n.
    proximity_scale: s, in psi units.
    kernel_length: l of the kernel-weighted UCB, in units of its representation.
    exploration: c of the kernel-weighted UCB.
    structured_anchors, structured_leaders: the portfolio's structured pool: replacements around
        that many highest risks, plus that many leading UCB proposals.
    """

    scout: int = 3
    beta: float = 0.35
    anchors: int = 4
    global_pool: int = 16
    parent_weight: float = 0.10
    proximity_weight: float = 0.08
    novelty_weight: float = 0.05
    proximity_scale: float = 0.50
    kernel_length: float = 0.75
    exploration: float = 1.0
    structured_anchors: int = 3
    structured_leaders: int = 8


PARAMETERS: MappingProxyType[str, SearchParameters] = MappingProxyType(
    {
        "lewm-pusht": SearchParameters(),
        "dino-pusht": SearchParameters(
            scout=8,
            beta=0.45,
            global_pool=24,
            proximity_weight=0.12,
            proximity_scale=0.45,
        ),
        "pointmaze": SearchParameters(scout=2, kernel_length=0.55),
        "diamond": SearchParameters(kernel_length=0.75),
        "iris": SearchParameters(kernel_length=0.60, structured_anchors=2, structured_leaders=5),
    }
)
"""Parameters by protocol. "lewm-pusht" is the default everywhere."""


def get_parameters(name: str) -> SearchParameters:
    """The named parameters.

    Raises:
        UsageError: unknown name; the message lists the known ones.
    """
    if name not in PARAMETERS:
        raise UsageError(
            f"no search parameters are called {name!r}; known: {', '.join(PARAMETERS)}."
        )
    return PARAMETERS[name]


def parameters_from(
    given: Mapping[str, Any], *, origin: str, base: SearchParameters | None = None
) -> SearchParameters:
    """Parameters from plain data: a named column ("preset"), with single fields replaced.

    Args:
        given: {"preset": name, field: value, ...}; every entry is optional.
        origin: what a message says it was read from.
        base: what the fields replace when no preset is named; "lewm-pusht" when None.

    Raises:
        UsageError: an unknown preset, or a field that no method has.
    """
    fields = dict(given)
    name = fields.pop("preset", None)
    column = get_parameters(name) if name is not None else base or get_parameters("lewm-pusht")
    unknown = sorted(set(fields) - set(asdict(column)))
    if unknown:
        raise UsageError(
            f"{origin} has no field {unknown[0]!r}; known: {', '.join(asdict(column))}."
        )
    for field, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"{origin}: {field} = {value!r} is not a number.")
    return replace(column, **fields)
