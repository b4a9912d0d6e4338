"""Single-coordinate edits: how many, and which, lead from one input of a library to another.

An edit replaces one coordinate by any other admissible value; every input on the way is valid.
Source: design.md (nominal input); spec/discovery.md section 1 (replacement neighbourhood).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library

MOST_EXPANDED = 20_000
"""Inputs whose replacements are looked up, at most; beyond it distances stay unknown."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One coordinate changed: its name, the value before and the value after."""

    name: str
    before: Value
    after: Value


class EditDistances:
    """Fewest valid edits from one input to every other.

    start: library index. distances: int32 [N], -1 where unreachable within ``most`` edits.
    complete: every input within ``most`` edits was reached; False where the library was too
        large to look at all of them.
    """

    def __init__(self, graph: Graph, start: int, *, most: int) -> None:
        self.graph = graph
        self.start = int(start)
        self.distances = np.full(len(graph.library), -1, dtype=np.int32)
        self.distances[self.start] = 0
        self.complete = True
        frontier = np.array([self.start])
        expanded = 0
        for distance in range(1, most + 1):
            if not len(frontier):
                break
            if expanded + len(frontier) > MOST_EXPANDED:
                self.complete = False
                break
            expanded += len(frontier)
            around = np.unique(np.concatenate([graph.replacements(int(i)) for i in frontier]))
            frontier = around[self.distances[around] < 0]
            self.distances[frontier] = distance

    def ring(self, distance: int) -> np.ndarray:
        """Indices at exactly that many edits, ascending."""
        return np.flatnonzero(self.distances == distance)

    def path(self, end: int) -> list[int]:
        """Indices of one shortest path, both ends included.

        Of several, the one whose last edits change the later coordinates: edits read in the
        specification's order.

        Raises:
            ValueError: the end was not reached.
        """
        if self.distances[end] < 0:
            raise ValueError(f"input {end} is not within reach of input {self.start}")
        digits = self.graph.library.digits
        path = [int(end)]
        while self.distances[path[-1]] > 0:
            here = path[-1]
            around = self.graph.replacements(here)
            nearer = around[self.distances[around] == self.distances[here] - 1]
            changed = (digits[nearer] != digits[here]).argmax(axis=1)
            path.append(int(nearer[np.lexsort((nearer, -changed))[0]]))
        return path[::-1]


def edits_between(library: Library, a: int, b: int) -> list[Edit]:
    """Coordinates in which two inputs differ, in the specification's order."""
    before, after = library.values(a), library.values(b)
    return [Edit(n, before[n], after[n]) for n in library.names if before[n] != after[n]]


def mixtures(library: Library, start: int, end: int) -> Iterator[int]:
    """Valid inputs that take some, not all, of the end's values and the start's elsewhere.

    Fewest changes first: what a known failure still needs of its changes to fail.
    """
    digits = library.digits.astype(np.int64)
    differ = np.flatnonzero(digits[start] != digits[end])
    for size in range(1, len(differ)):
        for chosen in combinations(differ, size):
            code = library.codes[start] + sum(
                int(digits[end, c] - digits[start, c]) * int(library.strides[c]) for c in chosen
            )
            position = int(library.positions(np.array([code]))[0])
            if position >= 0:
                yield position
