"""Per-seed losses to one risk: mean, max, and the tail average in both estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dreamcheck.errors import UsageError


def risk_of(losses: Sequence[float], statistic: Mapping[str, Any]) -> float:
    """The risk of one input from its losses over seeds.

    Args:
        losses: at least one finite loss.
        statistic: ``{"name": "mean"}``, ``{"name": "max"}`` or
            ``{"name": "cvar", "alpha": 0.4, "estimator": "fractional" | "ceil"}``.

    Raises:
        UsageError: no losses, or a statistic that is none of these.

    Source: spec discovery.md section 2, evidence.md section 2.
    """
    if not len(losses):
        raise UsageError("a risk needs at least one loss; none was measured.")
    name = statistic.get("name")
    if name == "mean":
        return math.fsum(losses) / len(losses)
    if name == "max":
        return max(losses)
    if name == "cvar":
        alpha = statistic.get("alpha", 0.4)
        return tail_mean(losses, alpha=alpha, estimator=statistic.get("estimator", "fractional"))
    raise UsageError(f"statistic {name!r} is not one of mean, max, cvar.")


def tail_mean(losses: Sequence[float], *, alpha: float, estimator: str = "fractional") -> float:
    """Mean of the largest share ``alpha`` of the losses (CVaR).

    "fractional": the floor(alpha n) largest in full and the next with the remaining weight,
    divided by alpha n. "ceil": the mean of the ceil(alpha n) largest. alpha n is computed in
    exact decimals: 0.28 x 25 is 7.

    Source: spec evidence.md section 2, discovery.md section 9.
    """
    share = Fraction(str(alpha))
    if not 0 < share <= 1:
        raise UsageError(f"alpha = {alpha} is outside (0, 1].")
    ordered = sorted((float(v) for v in losses), reverse=True)
    size = share * len(ordered)
    if estimator == "ceil":
        count = math.ceil(size)
        return math.fsum(ordered[:count]) / count
    if estimator != "fractional":
        raise UsageError(f"CVaR estimator {estimator!r} is not fractional or ceil.")
    whole = math.floor(size)
    rest = size - whole
    parts = ordered[:whole]
    if rest:
        parts.append(float(rest) * ordered[whole])
    return math.fsum(parts) / float(size)
