"""Statistics of scores, recomputed from what a score is made of: nothing here drives a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.errors import Abstention
from dreamcheck.evidence import Record, statistic

FACTORS = ("veracity", "influence", "sobriety")


def _checkpoint(records: Sequence[Record], params: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(records) != 1:
        raise Abstention(f"a single record was expected, the query gives {len(records)}.")
    return records[0].payload["result"]["checkpoints"][params["position"]]


def _share_above_zero(gaps: Sequence[float | None]) -> float:
    finite = [g for g in gaps if g is not None]
    if not finite:
        raise Abstention("no gap was measured.")
    return sum(g > 0 for g in finite) / len(finite)


def factor_value(found: Mapping[str, Any], name: str) -> float:
    """One factor of a kept checkpoint from its ingredients.

    Raises:
        Abstention: it was excluded or could not be measured; the message says which.

    Source: spec/viscore.md sections 4, 5.8 and 6.5.
    """
    if name[0].upper() not in found["factors"]:
        raise Abstention(f"{name} is not among the factors {found['factors']}.")
    if name in found["reasons"]:
        raise Abstention(found["reasons"][name])
    if name == "veracity":
        return math.erf((found["d_tol"] / 2) / (math.sqrt(2) * found["sigma_roll"] + 1e-12))
    if name == "influence":
        return min(found["m_emp"] / found["tau"], 1.0)
    return 1.0 - _share_above_zero(found["gaps"])


@statistic("score-factor", across_interfaces=True)
def score_factor(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """A factor of the checkpoint at ``position``, from its tolerance, capacity or gaps."""
    return factor_value(_checkpoint(records, params), params["factor"])


@statistic("score-product", across_interfaces=True)
def score_product(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """The product of the included factors of the checkpoint at ``position``."""
    found = _checkpoint(records, params)
    names = [n for n in FACTORS if n[0].upper() in found["factors"]]
    return math.prod(factor_value(found, n) for n in names)


@statistic("score-near-ties", across_interfaces=True)
def score_near_ties(records: Sequence[Record], params: Mapping[str, Any]) -> int:
    """Anchors of the checkpoint at ``position`` whose gap's sign is not to be relied on."""
    found = _checkpoint(records, params)
    resolution = found["near_tie_below"]
    if resolution is None:
        raise Abstention("this search has no resolution.")
    return sum(g is not None and abs(g) < resolution for g in found["gaps"])
