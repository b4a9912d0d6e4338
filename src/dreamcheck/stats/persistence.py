"""Is a failure more than a point? Fresh neighbourhoods of anchors against matched controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from dreamcheck.stats.estimate import (
    Estimate,
    NotTestable,
    StatisticsInputError,
    checked_sample,
)
from dreamcheck.stats.permutation import MINIMUM_UNITS, PermutationTest, permutation_test


def paper_persistence(
    top_means: Any, control_means: Any, *, alternative: str = "greater"
) -> PermutationTest:
    """The paper's test: raw neighbourhood means, anchor included, one value per anchor.

    Exact over all C(n1+n2, n1) assignments (eight and eight in the paper, four the fewest). It
    rejects on every smooth difficulty field, failure or not; reports label it ``mode = "paper"``.

    Source: discovery.md section 4; evidence.md section 4 says why it is not the default.
    """
    return permutation_test(top_means, control_means, alternative=alternative)


@dataclass(frozen=True, slots=True)
class Unit:
    """Anchors whose neighbourhoods touch, counted once.

    anchors: ids, sorted.
    mean: mean fresh value over the union of their neighbourhoods, every anchor left out.
    num_inputs: inputs in that mean.
    """

    anchors: tuple[str, ...]
    mean: float
    num_inputs: int


@dataclass(frozen=True, slots=True)
class Persistence:
    """Default persistence test.

    test: None when there are too few units; ``reason`` then says how many are needed.
    top, control: the units, in order of their first anchor.
    dropped: control anchors left out because their neighbourhood touches a top neighbourhood.
    value: what was averaged ("relative risk", "excess risk"), for the label.
    """

    test: PermutationTest | None
    reason: str
    top: tuple[Unit, ...]
    control: tuple[Unit, ...]
    dropped: tuple[str, ...]
    value: str


def merge_touching(
    neighbourhoods: Mapping[str, Iterable[str]],
    *,
    adjacent: Callable[[str], Iterable[str]] | None = None,
) -> list[tuple[str, ...]]:
    """Groups of anchors whose neighbourhoods touch, directly or through others.

    Two neighbourhoods touch when they share an input, anchors included, or, when ``adjacent``
    gives the graph, when an edge joins them. Groups and their members come in sorted order.
    """
    owner: dict[str, str] = {}
    parent = {anchor: anchor for anchor in neighbourhoods}

    def root(anchor: str) -> str:
        while parent[anchor] != anchor:
            parent[anchor] = parent[parent[anchor]]
            anchor = parent[anchor]
        return anchor

    members = {a: {a, *inputs} for a, inputs in neighbourhoods.items()}
    for anchor, inputs in members.items():
        for name in inputs:
            parent[root(anchor)] = root(owner.setdefault(name, anchor))
    if adjacent is not None:
        for anchor, inputs in members.items():
            for name in inputs:
                for other in adjacent(name):
                    if other in owner:
                        parent[root(anchor)] = root(owner[other])
    groups: dict[str, list[str]] = {}
    for anchor in sorted(neighbourhoods):
        groups.setdefault(root(anchor), []).append(anchor)
    return sorted(tuple(g) for g in groups.values())


def match_controls(
    top: Mapping[str, Any], candidates: Mapping[str, Any], *, caliper: float | None = None
) -> dict[str, str]:
    """One control anchor for each top anchor, matched on what makes inputs hard.

    Covariates are scaled by their standard deviation over the candidates, and the assignment
    minimises the total Euclidean distance; outcomes are not looked at.

    Args:
        top, candidates: anchor id -> covariates [k] (start-goal displacement, contacts, distance
            to the wall, ...); no id in both.
        caliper: largest allowed distance in those scaled units; a top anchor without a control
            inside it stays unmatched and is absent from the result.

    Returns:
        Top id -> control id; every control serves once.

    Raises:
        NotTestable: fewer candidates than top anchors.

    Source: evidence.md section 4.
    """
    if set(top) & set(candidates):
        raise StatisticsInputError(
            f"anchor {sorted(set(top) & set(candidates))[0]!r} is both a top anchor and a control"
        )
    if len(candidates) < len(top):
        raise NotTestable(
            f"{len(candidates)} control candidates for {len(top)} top anchors",
            given=len(candidates),
            needed=len(top),
        )
    tops, pool = sorted(top), sorted(candidates)
    if not tops:
        return {}
    t = np.array([np.atleast_1d(top[a]) for a in tops], dtype=float)
    c = np.array([np.atleast_1d(candidates[a]) for a in pool], dtype=float)
    if t.shape[1:] != c.shape[1:] or not (np.isfinite(t).all() and np.isfinite(c).all()):
        raise StatisticsInputError("covariates must be finite and equally many for every anchor")
    spread = c.std(axis=0)
    spread[spread == 0] = 1.0
    distance = np.linalg.norm((t[:, None, :] - c[None, :, :]) / spread, axis=-1)
    # An unmatchable pair costs more than any matching of the others, so it is taken last.
    cost = (
        distance
        if caliper is None
        else np.where(distance <= caliper, distance, (distance.max() + 1) * (len(tops) + 1))
    )
    rows, columns = linear_sum_assignment(cost)
    return {
        tops[i]: pool[j]
        for i, j in zip(rows, columns, strict=True)
        if caliper is None or distance[i, j] <= caliper
    }


def persistence_test(
    top: Mapping[str, Iterable[str]],
    control: Mapping[str, Iterable[str]],
    fresh: Mapping[str, float],
    *,
    value: str,
    adjacent: Callable[[str], Iterable[str]] | None = None,
    alternative: str = "greater",
    minimum_units: int = MINIMUM_UNITS,
) -> Persistence:
    """Whether neighbourhoods of found inputs fail more than neighbourhoods of matched controls.

    Every anchor is left out of every mean (it was selected for its value), anchors whose
    neighbourhoods touch are one unit, a control whose neighbourhood touches a top one is dropped
    and listed, and the exact permutation test runs over units. Fewer than four units on a side:
    no p-value.

    Args:
        top: anchor id -> ids of its neighbourhood (with or without the anchor).
        control: the same for control anchors, matched beforehand (``match_controls``).
        fresh: input id -> relative or excess risk on fresh seeds, for every neighbour. Raw risk
            must not be passed: any smooth difficulty field then looks like persistence.
        value: what ``fresh`` holds, for the report: "relative risk" or "excess risk".
        adjacent: the library's graph, when an edge between neighbourhoods counts as touching.

    Raises:
        StatisticsInputError: ``value`` is neither of the two, an anchor is in both groups, a
            neighbour has no fresh value, or an anchor has no neighbour besides anchors.

    Source: evidence.md section 4.
    """
    if value not in ("relative risk", "excess risk"):
        raise StatisticsInputError(
            f"value = {value!r}: pass 'relative risk' or 'excess risk'. Raw risk belongs to "
            "paper_persistence, which says in its mode what it cannot tell"
        )
    if set(top) & set(control):
        raise StatisticsInputError(
            f"anchor {sorted(set(top) & set(control))[0]!r} is in both groups"
        )
    together = {
        **{a: tuple(n) for a, n in top.items()},
        **{a: tuple(n) for a, n in control.items()},
    }
    dropped: list[str] = []
    for group in merge_touching(together, adjacent=adjacent):
        if any(a in top for a in group):
            dropped.extend(a for a in group if a in control)
    kept = {a: together[a] for a in control if a not in dropped}
    anchors = set(top) | set(control)
    top_units = _units({a: together[a] for a in top}, fresh, anchors, adjacent)
    control_units = _units(kept, fresh, anchors, adjacent)
    test, reason = None, ""
    try:
        test = (
            permutation_test(
                [u.mean for u in top_units],
                [u.mean for u in control_units],
                alternative=alternative,
                minimum_units=minimum_units,
            )
            if top_units and control_units
            else None
        )
        if test is None:
            reason = (
                f"{len(top_units)} top and {len(control_units)} control units; "
                f"{minimum_units} of each are needed"
            )
    except NotTestable:
        reason = (
            f"{len(top)} top anchors make {len(top_units)} unit(s) and {len(control)} control "
            f"anchors make {len(control_units)} once touching neighbourhoods are merged; "
            f"{minimum_units} of each are needed for a p-value"
        )
    return Persistence(
        test=test,
        reason=reason,
        top=tuple(top_units),
        control=tuple(control_units),
        dropped=tuple(sorted(dropped)),
        value=value,
    )


def _units(
    neighbourhoods: Mapping[str, tuple[str, ...]],
    fresh: Mapping[str, float],
    anchors: set[str],
    adjacent: Callable[[str], Iterable[str]] | None,
) -> list[Unit]:
    units = []
    for group in merge_touching(neighbourhoods, adjacent=adjacent):
        inputs = sorted({name for a in group for name in neighbourhoods[a]} - anchors)
        if not inputs:
            raise StatisticsInputError(
                f"anchor {group[0]!r} has no neighbour that is not itself an anchor: nothing fresh "
                "to average"
            )
        missing = [name for name in inputs if name not in fresh]
        if missing:
            raise StatisticsInputError(
                f"neighbour {missing[0]!r} of anchor {group[0]!r} has no fresh value "
                f"({len(missing)} missing): leave it out of the neighbourhood and say so, or "
                "measure it"
            )
        values = checked_sample([fresh[name] for name in inputs], name=f"fresh[{group[0]}]")
        units.append(Unit(group, float(values.mean()), len(inputs)))
    return units


def basin_radius(distances: Any, excess: Any, *, anchor_excess: float | None = None) -> Estimate:
    """The graph distance at which mean excess first falls to half of the anchor's.

    Args:
        distances: [n] whole graph distances from the anchor (0 is the anchor itself).
        excess: [n] excess risk on fresh seeds of the inputs at those distances.
        anchor_excess: the anchor's excess on fresh seeds; the mean at distance 0 by default.

    Returns:
        The distance in grid steps, interpolated linearly between neighbouring distances. Undefined
        with a reason when the anchor's excess is not positive or the excess never falls that far
        within the distances given.

    Source: evidence.md section 4.
    """
    d = checked_sample(distances, name="distances")
    e = checked_sample(excess, name="excess")
    if d.size != e.size or (d != np.round(d)).any() or (d < 0).any():
        raise StatisticsInputError("distances must be whole, non-negative and one per excess")
    if anchor_excess is None:
        if not (d == 0).any():
            raise StatisticsInputError("no input at distance 0 and no anchor_excess given")
        anchor_excess = float(e[d == 0].mean())
    if anchor_excess <= 0:
        return Estimate.undefined(d.size, "the anchor has no positive excess on fresh seeds")
    half = anchor_excess / 2
    before, level_before = 0.0, anchor_excess
    for distance in np.unique(d[d > 0]):
        level = float(e[d == distance].mean())
        if level <= half:
            share = (level_before - half) / (level_before - level)
            return Estimate(before + share * (float(distance) - before), d.size)
        before, level_before = float(distance), level
    return Estimate.undefined(
        d.size, f"excess stays above half of the anchor's up to distance {before:g}"
    )
