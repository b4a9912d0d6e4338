"""Reference-component coverage: how much of one connected group of top inputs a search evaluated.

Source: spec/discovery.md section 4; the paper's Appendix D.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class ReferenceComponents:
    """Components of the oracle top-q% inputs in the replacement graph.

    top: library indices of the top set, best first.
    component: for each input of the library its component, -1 outside the top set: int [N].
    sizes: inputs per component.
    """

    top: np.ndarray
    component: np.ndarray
    sizes: tuple[int, ...]

    def coverage(self, evaluated: Iterable[int]) -> int:
        """C_q(T): the most evaluated inputs that lie in one component; 0 without a top input."""
        inside = self.component[np.unique(np.fromiter(evaluated, dtype=np.int64))]
        inside = inside[inside >= 0]
        return int(np.bincount(inside).max()) if len(inside) else 0


def top_set(
    library: Library, scores: np.ndarray, *, percent: int, failed: np.ndarray | None = None
) -> np.ndarray:
    """Indices of the ceil(percent% of N) highest scores, best first; ties by id.

    Args:
        failed: bool [N], inputs without a score; N counts the others only.

    Raises:
        UsageError: the percentage is not in 1..100, or a score is not finite.
    """
    if not 1 <= percent <= 100:
        raise UsageError(f"percent = {percent}; the top share is a whole number from 1 to 100.")
    failed = np.zeros(len(scores), dtype=bool) if failed is None else failed
    if not np.isfinite(scores[~failed]).all():
        raise UsageError("a reference top set needs a finite score for every input.")
    size = -(-percent * int((~failed).sum()) // 100)
    scores = np.where(failed, -np.inf, scores)
    ranked = np.argsort(-scores, kind="stable")
    last = scores[ranked[size - 1]]
    sure = ranked[scores[ranked] > last]
    tied = sorted(np.flatnonzero(scores == last).tolist(), key=library.id)
    return np.concatenate([sure, np.array(tied[: size - len(sure)], dtype=np.int64)])


def reference_components(
    library: Library,
    scores: np.ndarray,
    *,
    percent: int,
    failed: np.ndarray | None = None,
    graph: Graph | None = None,
) -> ReferenceComponents:
    """Components of the top set on the full reference subgraph, by union-find.

    Args:
        library: the searched library.
        scores: every input's reference score [N].
        percent: q.
        failed: inputs without a score, bool [N]; none of them is a top input.
        graph: the library's graph, if there is one already.
    """
    graph = graph or Graph(library)
    top = top_set(library, scores, percent=percent, failed=failed)
    member = np.zeros(len(library), dtype=bool)
    member[top] = True
    parent = np.arange(len(library))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for i in top.tolist():
        for j in graph.replacements(i).tolist():
            if member[j]:
                parent[root(i)] = root(j)
    component = np.full(len(library), -1, dtype=np.int64)
    names: dict[int, int] = {}
    for i in top.tolist():
        component[i] = names.setdefault(root(i), len(names))
    sizes = tuple(np.bincount(component[top], minlength=len(names)).tolist())
    return ReferenceComponents(top=top, component=component, sizes=sizes)
