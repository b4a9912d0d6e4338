"""How far a failure reaches: excess risk by graph distance from a confirmed input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.stats import basin_radius
from dreamcheck.streams import stream
from dreamcheck.study.config import Search
from dreamcheck.study.study import Study

RADIUS = 4
SHELL_SIZE = 8
"""Defaults of the protocol's shell_radius and shell_size. Ours."""

MOST = 8
"""Confirmed inputs whose basins are measured, the worst first."""


def basins(
    study: Study, search: Search, findings: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Basin radii of the confirmed shortlist, on the neighbourhood seeds.

    At each graph distance up to the protocol's radius a random sample of valid inputs is
    measured; the radius is where their mean excess falls to half of the anchor's own, all on seeds
    that selected neither.

    Source: spec/evidence.md section 4.
    """
    checks = study.config.checks
    size = SHELL_SIZE if checks.shell_size is None else checks.shell_size
    radius = checks.shell_radius or RADIUS
    anchors = sorted(
        (f for f in findings if f["group"] == "shortlist" and f["verdict"] == "confirmed"),
        key=lambda f: (-f["risk"], f["input"]),
    )[:MOST]
    if not anchors or size == 0:
        return []
    library, graph = study.library(search), study.graph(search)
    drawn = {
        f["input"]: shells(
            library, graph, f["input"], radius=radius, size=size, root_seed=study.config.root_seed
        )
        for f in anchors
    }
    everyone = list(dict.fromkeys(i for rings in drawn.values() for ring in rings for i in ring))
    with study.progress.stage(f"basins {search.specification}", len(everyone)) as stage:
        measured = study.measured(
            study.asked(search, everyone),
            study.seeds("neighbourhood"),
            partition="neighbourhood",
            stage=stage,
        )
    out = []
    for f in anchors:
        rows = [
            (distance, i, measured[i].risk, measured[i].floor)
            for distance, ring in enumerate(drawn[f["input"]])
            for i in ring
        ]
        whole = [(d, risk - (floor or 0.0)) for d, _, risk, floor in rows if risk is not None]
        payload: dict[str, Any] = {
            "spec": search.specification,
            "input": f["input"],
            "values": f["values"],
            "interface": study.interface,
            "partition": "neighbourhood",
            "seeds": list(study.seeds("neighbourhood")),
            "ids": [i for _, i, _, _ in rows],
            "distances": [d for d, _, _, _ in rows],
            "risks": [r for _, _, r, _ in rows],
            "floors": [floor for _, _, _, floor in rows],
            "num_failed": len(rows) - len(whole),
            "floor_measured": all(floor is not None for _, _, _, floor in rows),
            "reach": max(d for d, _, _, _ in rows),
        }
        payload |= _radius(whole)
        study.keep("basin", f"{search.specification}:{f['input']}", payload)
        out.append(payload)
    return out


def shells(
    library: Library, graph: Graph, anchor: str, *, radius: int, size: int, root_seed: int
) -> list[list[str]]:
    """Ids at distance 0 (the anchor), 1, 2, ... up to the radius; at most ``size`` of each.

    Distances are those of the adjacency graph of valid tuples. A distance at which nothing is
    left ends the list: an anchor whose every neighbour is invalid has one shell, itself.
    """
    distances = graph.distances(library.index(anchor), radius=radius)
    out = [[anchor]]
    for distance in range(1, radius + 1):
        ring = np.flatnonzero(distances == distance)
        if not len(ring):
            break
        order = stream(root_seed, "basin", f"{anchor}:{distance}").permutation(len(ring))
        out.append(library.ids(sorted(int(ring[k]) for k in order[:size])))
    return out


def _radius(rows: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Radius with its curve, mean excess by distance."""
    at = {d: [e for k, e in rows if k == d] for d in sorted({d for d, _ in rows})}
    curve = [
        {"distance": d, "mean": float(np.mean(values)), "num_inputs": len(values)}
        for d, values in at.items()
    ]
    if 0 not in at:
        return {"radius": None, "reason": "the anchor itself failed to be measured", "curve": curve}
    if len(at) == 1:
        return {
            "radius": None,
            "reason": "every neighbour of this input is invalid, or failed: it has no basin",
            "curve": curve,
        }
    estimate = basin_radius([d for d, _ in rows], [e for _, e in rows])
    return {
        "radius": estimate.value if estimate.defined else None,
        "reason": estimate.reason,
        "curve": curve,
    }
