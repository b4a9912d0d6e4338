"""Neighbourhoods of a library: replacements and adjacent edits, without an N x N matrix.

Inputs are mixed-radix codes, so a neighbour is an addition and a lookup among the valid codes.
Source: spec/discovery.md section 1.
"""

from __future__ import annotations

import numpy as np

from dreamcheck.discovery.library import Library


class Graph:
    """Both graphs of one library. Everything is in library indices; invalid tuples never appear."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._replacements: dict[int, np.ndarray] = {}
        self._ordered = [c for c, k in enumerate(library.coordinates) if k.ordered]

    def replacements(self, index: int) -> np.ndarray:
        """R(x): valid tuples that differ from x in exactly one coordinate, sorted indices."""
        index = int(index)
        found = self._replacements.get(index)
        if found is None:
            library = self.library
            code = library.codes[index]
            digits = library.digits[index].astype(np.int64)
            codes = [
                code + (np.delete(np.arange(radix), digits[c]) - digits[c]) * library.strides[c]
                for c, radix in enumerate(library.radices)
            ]
            found = _valid(library.positions(np.concatenate(codes)))
            if len(self._replacements) > 100_000:
                self._replacements.clear()
            self._replacements[index] = found
        return found

    def replacements_of(self, index: int, coordinate: str) -> np.ndarray:
        """The part of R(x) that replaces one named coordinate, sorted indices."""
        c = self.library.names.index(coordinate)
        around = self.replacements(index)
        return around[self.library.digits[around, c] != self.library.digits[index, c]]

    def adjacent(self, index: int) -> np.ndarray:
        """Valid tuples one step away: one ordered coordinate moves to a neighbouring grid value."""
        return self._steps(np.array([int(index)]))

    def within(self, index: int, radius: int) -> np.ndarray:
        """N_r(x): tuples at shortest-path distance <= radius, x included, sorted indices.

        Distance is measured on the graph of valid tuples only.
        """
        return np.flatnonzero(self.distances(index, radius=radius) >= 0)

    def distances(self, index: int, *, radius: int | None = None) -> np.ndarray:
        """Shortest-path distance to every tuple, int32 [N]; -1 beyond the radius or unreachable."""
        distance = np.full(len(self.library), -1, dtype=np.int32)
        frontier = np.array([int(index)])
        distance[frontier] = 0
        step = 0
        while len(frontier) and (radius is None or step < radius):
            step += 1
            around = self._steps(frontier)
            frontier = around[distance[around] < 0]
            distance[frontier] = step
        return distance

    def isolated(self) -> np.ndarray:
        """Tuples without any valid tuple one adjacent step away, sorted indices."""
        library = self.library
        alone = np.ones(len(library), dtype=bool)
        for c in self._ordered:
            for move in (-1, 1):
                target = library.digits[:, c].astype(np.int64) + move
                inside = np.flatnonzero((target >= 0) & (target < library.radices[c]) & alone)
                found = library.positions(library.codes[inside] + move * library.strides[c]) >= 0
                alone[inside[found]] = False
        return np.flatnonzero(alone)

    def _steps(self, indices: np.ndarray) -> np.ndarray:
        library = self.library
        digits = library.digits[indices].astype(np.int64)
        codes = []
        for c in self._ordered:
            for move in (-1, 1):
                target = digits[:, c] + move
                inside = (target >= 0) & (target < library.radices[c])
                codes.append(library.codes[indices[inside]] + move * library.strides[c])
        if not codes:
            return np.empty(0, dtype=np.int64)
        return _valid(library.positions(np.concatenate(codes)))


def _valid(positions: np.ndarray) -> np.ndarray:
    return np.unique(positions[positions >= 0])
