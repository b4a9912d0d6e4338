"""Distances and kernel sums over a whole library, from per-coordinate tables.

A product kernel on a grid factorises: exp(-d^2) is the product over coordinates of a table of
levels. Coordinates are split into two halves of nearly equally many distinct value combinations;
a sum over observations for every input is then one small matrix product instead of a library-sized
kernel matrix. Libraries too sparse in their grid for that are worked through in chunks.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dreamcheck.discovery.library import Library

CHUNK = 1 << 16


class Geometry(Protocol):
    """A representation of a library in which methods measure distance.

    ``weights`` divides: one inverse squared length scale per coordinate, or a scalar.
    """

    def kernel_sums(
        self, centres: np.ndarray, values: np.ndarray, *, weights: np.ndarray | float
    ) -> np.ndarray:
        """sum_i exp(-0.5 * w d^2(x, centre_i)) values[i, j], for every input: [m, N]."""
        ...

    def squared_distances(self, rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
        """[len(rows), len(centres)] squared distances."""
        ...

    def min_squared_distance(self, centres: np.ndarray) -> np.ndarray:
        """Squared distance to the nearest centre, for every input: [N]."""
        ...


class GridGeometry:
    """Distances in psi, which is a table per coordinate. Arguments are library indices."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.tables = library.level_distances
        self.num_coordinates = len(self.tables)
        self.ordered = all(c.ordered for c in library.coordinates)
        sizes = [len(t) for t in self.tables]
        split = _balanced_split(sizes)
        self._halves = (range(split), range(split, len(sizes)))
        first, self._row = _combinations(library, self._halves[0])
        second, self._column = _combinations(library, self._halves[1])
        self._combos = (first, second)
        n = len(library)
        # Worth it while the outer grid is not much larger than the library that sits in it.
        self.factorised = len(first) * len(second) <= max(4 * n, 1 << 16)
        self._flat: np.ndarray | None = None
        if self.factorised:
            flat = self._row.astype(np.int64) * len(second) + self._column
            whole = n == len(first) * len(second) and bool((np.diff(flat) == 1).all())
            self._flat = None if whole else flat

    def kernel_sums(
        self, centres: np.ndarray, values: np.ndarray, *, weights: np.ndarray | float
    ) -> np.ndarray:
        """sum_i exp(-0.5 sum_c w_c d_c^2(x, centre_i)) values[i, j]: float64 [m, N].

        Args:
            centres: library indices [n].
            values: [n, m].
            weights: inverse squared length scale per coordinate [d], or one for all.
        """
        digits = self.library.digits[centres]
        if self.factorised:
            a, b = self._half_kernels(digits, weights)
            out = np.empty((values.shape[1], len(self.library)))
            for j in range(values.shape[1]):
                grid = ((a * values[:, j]) @ b.T).ravel()
                out[j] = grid if self._flat is None else grid[self._flat]
            return out
        out = np.empty((values.shape[1], len(self.library)))
        for start in range(0, len(self.library), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(self.library)))
            out[:, rows] = (self._kernel_at(rows, digits, weights) @ values).T
        return out

    def kernel_columns(
        self, rows: np.ndarray, centres: np.ndarray, *, weights: np.ndarray | float
    ) -> np.ndarray:
        """Kernel between centres and rows, [len(centres), len(rows)] in Fortran order."""
        return self._kernel_at(rows, self.library.digits[centres], weights).T

    def coordinate_distances(self, indices: np.ndarray) -> np.ndarray:
        """Squared distance between inputs by coordinate, [d, n, n]."""
        digits = self.library.digits[indices]
        out = np.empty((self.num_coordinates, len(indices), len(indices)))
        for c, table in enumerate(self.tables):
            level = digits[:, c]
            out[c] = table[level[:, None], level]
        return out

    def squared_distances(self, rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
        """Squared psi distances, [len(rows), len(centres)]."""
        left, right = self.library.digits[rows], self.library.digits[centres]
        out = np.zeros((len(rows), len(centres)))
        for c, table in enumerate(self.tables):
            out += table[left[:, c][:, None], right[:, c]]
        return out

    def min_squared_distance(self, centres: np.ndarray) -> np.ndarray:
        """Squared psi distance to the nearest centre, [N]."""
        if not self.factorised:
            out = np.empty(len(self.library))
            for start in range(0, len(self.library), CHUNK):
                rows = np.arange(start, min(start + CHUNK, len(self.library)))
                out[rows] = self.squared_distances(rows, centres).min(axis=1)
            return out
        digits = self.library.digits[centres]
        a = self._half_distances(0, digits)
        b = self._half_distances(1, digits)
        grid = a[:, :1] + b[:, 0]
        scratch = np.empty_like(grid)
        for i in range(1, len(centres)):
            np.add(a[:, i : i + 1], b[:, i], out=scratch)
            np.minimum(grid, scratch, out=grid)
        flat = grid.ravel()
        return flat if self._flat is None else flat[self._flat]

    def _half_distances(
        self, half: int, digits: np.ndarray, weights: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Weighted squared distance of each combination of one half to each centre, [u, n]."""
        combos = self._combos[half]
        out = np.zeros((len(combos), len(digits)))
        for j, c in enumerate(self._halves[half]):
            w = weights if isinstance(weights, float) else weights[c]
            out += (w * self.tables[c])[combos[:, j][:, None], digits[:, c]]
        return out

    def _half_kernels(
        self, digits: np.ndarray, weights: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.exp(-0.5 * self._half_distances(0, digits, weights)),
            np.exp(-0.5 * self._half_distances(1, digits, weights)),
        )

    def _kernel_at(
        self, rows: np.ndarray, digits: np.ndarray, weights: np.ndarray | float
    ) -> np.ndarray:
        own = self.library.digits[rows]
        if len(rows) * 4 < len(self._combos[0]) + len(self._combos[1]) or not self.factorised:
            total = np.zeros((len(rows), len(digits)))
            for c, table in enumerate(self.tables):
                w = weights if isinstance(weights, float) else weights[c]
                total += (w * table)[own[:, c][:, None], digits[:, c]]
            return np.exp(-0.5 * total)
        a, b = self._half_kernels(digits, weights)
        out = a[self._row[rows]]
        out *= b[self._column[rows]]
        return out


class DenseGeometry:
    """Distances in a representation given as one row per input, [N, D]."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = np.ascontiguousarray(rows, dtype=np.float64)

    def kernel_sums(
        self, centres: np.ndarray, values: np.ndarray, *, weights: np.ndarray | float
    ) -> np.ndarray:
        """sum_i exp(-0.5 w d^2(x, centre_i)) values[i, j], [m, N]; one scalar weight."""
        distances = self.squared_distances(np.arange(len(self.rows)), centres)
        return (np.exp(-0.5 * float(weights) * distances) @ values).T

    def squared_distances(self, rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
        """Squared Euclidean distances, [len(rows), len(centres)]."""
        difference = self.rows[rows][:, None] - self.rows[centres][None]
        return (difference**2).sum(axis=2)

    def min_squared_distance(self, centres: np.ndarray) -> np.ndarray:
        """Squared distance to the nearest centre, [N]."""
        return self.squared_distances(np.arange(len(self.rows)), centres).min(axis=1)


def _balanced_split(sizes: list[int]) -> int:
    """Where to cut the coordinates so that both halves have nearly equally many combinations."""
    logs = np.log(np.array(sizes, dtype=float))
    left = np.concatenate([[0.0], np.cumsum(logs)])
    return int(np.argmin(np.abs(2 * left - left[-1])))


def _combinations(library: Library, half: range) -> tuple[np.ndarray, np.ndarray]:
    """Distinct level combinations of some coordinates, [u, len(half)], and each input's one, [N]."""
    if not len(half):
        return np.zeros((1, 0), dtype=np.int64), np.zeros(len(library), dtype=np.int32)
    code = np.zeros(len(library), dtype=np.int64)
    for c in half:
        code = code * library.radices[c] + library.digits[:, c]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    combos = library.digits[first][:, list(half)].astype(np.int64)
    return combos, inverse.astype(np.int32)
