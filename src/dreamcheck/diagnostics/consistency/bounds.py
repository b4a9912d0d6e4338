"""Bounds on how a perturbation moves candidate costs, and certificates of a planner's choice.

Costs are squared distances of endpoints to the goal, summed over the D latent coordinates (the
scale is stated with every number; a division by D changes no certificate). Everything in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import EvidenceError, UsageError


def _points(values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise UsageError("an endpoint, goal or cost is not finite")
    return array


def goal_cost(endpoints: Any, goal: Any) -> np.ndarray:
    """||x - g||^2 over the last axis, [...]."""
    return ((_points(endpoints) - _points(goal)) ** 2).sum(axis=-1)


def cost_bound(clean: Any, perturbed: Any, goal: Any) -> np.ndarray:
    """b = r (||x - g|| + ||x~ - g||) >= |C~ - C|, [...]: the paper's bound.

    Args:
        clean, perturbed: endpoints [..., D] of the same candidates from the two histories.
        goal: the clean goal [D] or [..., D].

    Source: consistency.md section 3 (paper eq. 5).
    """
    x, y, g = _points(clean), _points(perturbed), _points(goal)
    r = np.linalg.norm(x - y, axis=-1)
    return r * (np.linalg.norm(x - g, axis=-1) + np.linalg.norm(y - g, axis=-1))


def clean_side_bound(clean: Any, goal: Any, displacement: Any) -> np.ndarray:
    """b' = r (2 ||x - g|| + r) >= b, from the clean endpoint and r alone.

    For an r that comes from an ACPC bound; never reported as the paper's b.
    """
    r = _points(displacement)
    if (r < 0).any():
        raise UsageError("a displacement is negative")
    return r * (2 * np.linalg.norm(_points(clean) - _points(goal), axis=-1) + r)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A sufficient condition that a choice among candidates survives the perturbation.

    chosen: candidate indices, ascending (one for a winner, k for an elite set).
    slack: the smallest gap minus bounds; inf when nothing competes. A tie is not certified.
    certified: slack > 0.
    """

    chosen: tuple[int, ...]
    slack: float
    certified: bool


def _costs_and_bounds(costs: Any, bounds: Any) -> tuple[np.ndarray, np.ndarray]:
    c, b = _points(costs), _points(bounds)
    if c.ndim != 1 or c.shape != b.shape or c.size == 0:
        raise UsageError(f"costs {c.shape} and bounds {b.shape}: one of each per candidate")
    if (b < 0).any():
        raise UsageError("a cost bound is negative")
    return c, b


def winner_certificate(costs: Any, bounds: Any) -> Certificate:
    """Whether the cheapest of K candidates stays cheapest for every cost change within bounds.

    slack = min over j != w of (C_j - C_w - b_j - b_w). One candidate is trivially certified.

    Source: consistency.md section 3 (paper eq. 15).
    """
    return elite_certificate(costs, bounds, num_elites=1, _whole=True)


def elite_certificate(
    costs: Any, bounds: Any, *, num_elites: int, _whole: bool = False
) -> Certificate:
    """Whether the k cheapest of K candidates stay the k cheapest.

    slack = min over outside (C_j - b_j) minus max over inside (C_i + b_i), in O(K).

    Raises:
        UsageError: k is not in 1 <= k < K.

    Source: consistency.md section 3 (paper eq. 16).
    """
    c, b = _costs_and_bounds(costs, bounds)
    if num_elites < 1 or (num_elites >= c.size and not _whole):
        raise UsageError(f"{num_elites} elites of {c.size} candidates: 1 <= k < K is needed")
    order = np.argsort(c, kind="stable")
    inside, outside = order[:num_elites], order[num_elites:]
    slack = math.inf
    if outside.size:
        slack = float((c - b)[outside].min() - (c + b)[inside].max())
    return Certificate(tuple(sorted(int(i) for i in inside)), slack, slack > 0)


def certified_outcome(*, certified: bool, changed: bool) -> str:
    """ "certified, unchanged", "uncertified, unchanged" or "uncertified, changed".

    Raises:
        EvidenceError: a certified choice changed, which no perturbation within the bounds can do:
            the bounds, the pool or the goal differ between the two sides.
    """
    if certified and changed:
        raise EvidenceError(
            "a certified choice changed under the perturbation: the two sides did not share the "
            "pool, the goal or the bounds"
        )
    return f"{'certified' if certified else 'uncertified'}, {'changed' if changed else 'unchanged'}"
