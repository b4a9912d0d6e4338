"""Statistics of consistency tables, recomputed from distances, choices and outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.errors import Abstention
from dreamcheck.evidence import Record, statistic
from dreamcheck.stats import quantile

EPSILON = 1e-8
QUANTILE = 0.90
MARGIN = 0.10


def _checkpoint(records: Sequence[Record], params: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(records) != 1:
        raise Abstention(f"a single record was expected, the query gives {len(records)}.")
    return records[0].payload["result"]["checkpoints"][params["position"]]


def _shifted(records: Sequence[Record], params: Mapping[str, Any]) -> Mapping[str, Any]:
    return _checkpoint(records, params)["severities"][params["severity"]]


def radius_of(shifted: Mapping[str, Any], scales: Sequence[float]) -> float:
    """IR_raw from the kept distances: draws averaged first, then the quantile over windows.

    Source: spec/consistency.md section 5.
    """
    draws = shifted["distances"]
    per_anchor = [
        math.fsum(d[i] for d in draws) / len(draws) / (s + EPSILON) for i, s in enumerate(scales)
    ]
    return quantile(per_anchor, QUANTILE)


def undefined_because(result: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> list[str]:
    """Why a checkpoint's rates or relative radii are missing, each reason with its severities."""
    reasons: dict[str, list[float]] = {}
    for s in checkpoint["severities"]:
        said = {s["undefined"], s["not_relative"] if result["reference"] is not None else ""}
        for why in sorted(said - {""}):
            reasons.setdefault(why, []).append(s["severity"])
    every = len(checkpoint["severities"])
    return [
        why if len(at) == every else f"severity {', '.join(f'{x:g}' for x in at)}: {why}"
        for why, at in reasons.items()
    ]


@statistic("consistency-radius", across_interfaces=True)
def consistency_radius(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """The invariance radius of the checkpoint at ``position`` under severity ``severity``."""
    found = _checkpoint(records, params)
    return radius_of(found["severities"][params["severity"]], found["scales"])


@statistic("consistency-separation", across_interfaces=True)
def consistency_separation(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """The separation rate there: pairs farther apart than the radius and a tenth, over pairs."""
    found = _checkpoint(records, params)
    different = found["different"]
    if not different:
        raise Abstention("no window has a differently labelled neighbour.")
    limit = radius_of(found["severities"][params["severity"]], found["scales"]) + MARGIN
    return sum(d > limit for d in different) / len(different)


@statistic("consistency-choices", across_interfaces=True)
def consistency_choices(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Share of histories whose ``what`` (winner, elites) has the outcome ``outcome``."""
    planner = _shifted(records, params)["planner"]
    if planner is None or not planner["histories"]:
        raise Abstention("no paired search was run.")
    held = planner["histories"]
    return sum(h[params["what"]] == params["outcome"] for h in held) / len(held)


@statistic("consistency-loss", across_interfaces=True)
def consistency_loss(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Success lost under the perturbation, in points, from the paired episodes' outcomes."""
    success = _shifted(records, params)["success"]
    if success is None:
        raise Abstention("success was not evaluated.")
    gaps = [
        sum(a) / len(a) - sum(b) / len(b)
        for a, b, trivial in zip(
            success["clean_success"], success["perturbed_success"], success["trivial"], strict=True
        )
        if not trivial
    ]
    if not gaps:
        raise Abstention("every start is already solved.")
    return 100 * math.fsum(gaps) / len(gaps)
