"""Search parameters of the published protocols. Source: spec/discovery.md section 3."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

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
