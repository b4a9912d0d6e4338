"""Persistence: does the failure hold in a fresh neighbourhood, or is it a point?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from dreamcheck.discovery.library import Library
from dreamcheck.evidence import Neighbourhood
from dreamcheck.stats import (
    NotTestable,
    PermutationTest,
    match_controls,
    paper_persistence,
    persistence_test,
)
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import Aggregate
from dreamcheck.study.selecting import (
    Anchors,
    anchors_of,
    evaluations_of,
    hardness,
)
from dreamcheck.study.study import Study

GroupName = Literal["top", "mid", "random"]


def persist(study: Study, search: Search) -> dict[str, Any] | None:
    """Measure radius-1 neighbourhoods of top, mid and random anchors on fresh seeds, and test.

    The paper's test compares raw neighbourhood means, anchor included. The default leaves the
    anchor out, tests excess risk against controls matched on what makes inputs hard, and merges
    anchors whose neighbourhoods touch. Both are kept; the protocol's mode says which one speaks.

    Source: spec/discovery.md section 4; spec/evidence.md section 4.
    """
    if study.config.checks.anchors == 0 or not search.neighbourhoods:
        return None
    anchors = anchors_of(study, search)
    if not anchors.top:
        return None
    controls = _matched(study, search, anchors)
    groups: dict[GroupName, tuple[str, ...]] = {
        "top": anchors.top,
        # Mid anchors and matched controls are both fresh neighbourhoods of evaluated inputs.
        "mid": tuple(dict.fromkeys((*anchors.mid, *controls.values()))),
        "random": anchors.random,
    }
    graph, library = study.graph(search), study.library(search)
    balls = {
        a: library.ids(sorted(int(i) for i in graph.within(library.index(a), 1)))
        for group in groups.values()
        for a in group
    }
    everyone = list(dict.fromkeys(i for ball in balls.values() for i in ball))
    seeds = study.seeds("neighbourhood")
    with study.progress.stage(f"persist {search.specification}", len(everyone)) as stage:
        measured = study.measured(
            study.asked(search, everyone), seeds, partition="neighbourhood", stage=stage
        )
    study.store.commit(
        [
            _record(study, search, anchor, group, balls[anchor], measured)
            for group, names in groups.items()
            for anchor in names
        ]
    )
    alone = [a for group in groups.values() for a in group if len(balls[a]) == 1]
    if alone:
        study.progress.say(
            f"{search.specification}: no neighbourhood of some anchors can be measured"
            f"{_told(library, alone)}."
        )
    payload = _tests(anchors, controls, balls, measured, alone=_told(library, alone)) | {
        "spec": search.specification,
        "role": search.role,
        "interface": study.interface,
        "mode": study.config.mode,
        "num_inputs": len(everyone),
        "num_seeds": len(seeds),
    }
    study.keep("persistence", search.specification, payload)
    return payload


def _matched(study: Study, search: Search, anchors: Anchors) -> dict[str, str]:
    evaluated = evaluations_of(study, search)
    usable = {i: hardness(e) for i, e in evaluated.items() if e.risk is not None}
    top = {a: usable[a] for a in anchors.top if a in usable}
    # A control must not itself be a failure that the search found.
    ceiling = float(np.median([e.risk for e in evaluated.values() if e.risk is not None]))
    pool = {
        i: h for i, h in usable.items() if i not in top and (evaluated[i].risk or 0.0) <= ceiling
    }
    try:
        return match_controls(top, pool)
    except NotTestable:
        return {}


def _told(library: Library, alone: Sequence[str]) -> str:
    """What a reason says of anchors without a valid neighbour, the first one named."""
    if not alone:
        return ""
    values = library.values(library.index(alone[0]))
    named = ", ".join(f"{n} {v}" for n, v in values.items())
    return f" ({len(alone)} anchors have no valid neighbour at all, the first is {named})"


def _record(
    study: Study,
    search: Search,
    anchor: str,
    group: GroupName,
    ball: Sequence[str],
    measured: Mapping[str, Aggregate],
) -> Neighbourhood:
    risks = tuple(measured[i].risk for i in ball)
    whole = [r for r in risks if r is not None]
    return Neighbourhood.of(
        anchor=anchor,
        spec=search.specification,
        interface=study.interface,
        group=group,
        ids=tuple(ball),
        seeds=study.seeds("neighbourhood"),
        losses=tuple(measured[i].losses for i in ball),
        measurements=tuple(measured[i].measurements for i in ball),
        statistic=study.statistic,
        risks=risks,
        mean_risk=float(np.mean(whole)) if len(whole) == len(risks) else None,
    )


def _tests(
    anchors: Anchors,
    controls: Mapping[str, str],
    balls: Mapping[str, Sequence[str]],
    measured: Mapping[str, Aggregate],
    *,
    alone: str,
) -> dict[str, Any]:
    """alone: names the first anchor without a valid neighbour; empty where there is none."""
    raw = {
        name: [_mean([measured[i].risk for i in balls[a]]) for a in group]
        for name, group in (("top", anchors.top), ("mid", anchors.mid), ("random", anchors.random))
    }
    paper = {f"top_vs_{other}": _paper(raw["top"], raw[other]) for other in ("mid", "random")}
    excess = {i: a.risk - (a.floor or 0.0) for i, a in measured.items() if a.risk is not None}
    names = set(anchors.top) | set(controls.values())
    kept = {
        a: [i for i in balls[a] if i in excess]
        for a in names
        if any(i in excess and i not in names for i in balls[a])
    }
    result: dict[str, Any] = {"raw_means": raw, "paper": paper, "controls": dict(controls)}
    top = {a: kept[a] for a in anchors.top if a in kept}
    control = {c: kept[c] for c in controls.values() if c in kept}
    if not top or not control:
        return result | {
            "default": {
                "value": "excess risk",
                "reason": f"{len(top)} top and {len(control)} matched control anchors have fresh "
                f"neighbours; 4 units of each are needed for a p-value{alone}",
            }
        }
    outcome = persistence_test(top, control, excess, value="excess risk")
    return result | {
        "default": {
            "value": outcome.value,
            "test": _plain(outcome.test),
            "reason": f"{outcome.reason}{alone}" if outcome.reason else "",
            "top": [asdict(u) for u in outcome.top],
            "control": [asdict(u) for u in outcome.control],
            "dropped": list(outcome.dropped),
        }
    }


def _paper(top: Sequence[float | None], other: Sequence[float | None]) -> dict[str, Any]:
    a = [v for v in top if v is not None]
    b = [v for v in other if v is not None]
    try:
        return {"test": _plain(paper_persistence(a, b)), "reason": ""}
    except NotTestable as e:
        return {"test": None, "reason": str(e)}


def _plain(test: PermutationTest | None) -> dict[str, Any] | None:
    return None if test is None else asdict(test)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
