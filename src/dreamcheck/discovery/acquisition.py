"""Parts of the acquisitions that several methods share. Source: spec/discovery.md section 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.discovery.geometry import GridGeometry
from dreamcheck.discovery.graph import Graph

NO_PARENT = -3.0
"""z_par of a candidate that no anchor's replacement reaches."""

LARGE_POOL = 1 << 14


@dataclass(frozen=True, slots=True)
class Frontier:
    """Unseen replacements of some anchors.

    candidates: library indices, ascending.
    parents: for each, the best-scoring anchor it replaces a coordinate of (library index).
    parent_scores: that anchor's score.
    """

    candidates: np.ndarray
    parents: np.ndarray
    parent_scores: np.ndarray


def frontier(
    graph: Graph, *, anchors: np.ndarray, scores: np.ndarray, unseen: np.ndarray
) -> Frontier:
    """The union of R(h) over the anchors, less what was seen, with each candidate's best parent.

    Args:
        anchors: library indices, best first.
        scores: theirs, descending.
        unseen: bool [N].
    """
    around = [graph.replacements(int(h)) for h in anchors]
    around = [r[unseen[r]] for r in around]
    candidates = np.unique(np.concatenate(around))
    parents = np.empty(len(candidates), dtype=np.int64)
    parent_scores = np.empty(len(candidates))
    # From the worst anchor to the best: the best one that reaches a candidate writes last.
    for h, score, reached in reversed(list(zip(anchors, scores, around, strict=True))):
        at = np.searchsorted(candidates, reached)
        parents[at] = h
        parent_scores[at] = score
    return Frontier(candidates=candidates, parents=parents, parent_scores=parent_scores)


def proximity(squared: np.ndarray, *, scale: float) -> np.ndarray:
    """kappa: max over anchors of exp(-d^2 / (2 s^2)), from the nearest one's squared distance."""
    return np.exp(-squared / (2.0 * scale**2))


def nearest(geometry: GridGeometry, pool: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared psi distance of each candidate to its nearest centre, [len(pool)].

    A pool that is most of a large library is not crossed with the centres: that matrix would be
    gigabytes.
    """
    if len(pool) > LARGE_POOL:
        return geometry.min_squared_distance(centres)[pool]
    return geometry.squared_distances(pool, centres).min(axis=1)
