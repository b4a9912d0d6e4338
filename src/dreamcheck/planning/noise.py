"""Where a planner's random numbers come from: the identity of an episode, never its batch-mates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.streams import stream


class Noise(Protocol):
    """Standard normal numbers for every iteration of one solve.

    identity: what the numbers belong to, written to the record.
    """

    identity: str

    def normal(self, iteration: int, *, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 [rows, *shape]; row b belongs to episode b."""
        ...


class EpisodeNoise:
    """One stream per (episode, planner stream, replan) and iteration (law 5, protocol.md P15).

    The first K rows of a larger draw equal a draw of K rows, so that a search with ten times the
    samples contains the smaller search's candidates in its first iteration.

    Args:
        root_seed: the protocol's seed.
        identities: one per row, e.g. "4014:0/stream 2/replan 1".
    """

    def __init__(self, root_seed: int, identities: Sequence[str]) -> None:
        self.root_seed = root_seed
        self.identities = tuple(identities)
        self.identity = f"per episode, seed {root_seed}"

    def normal(self, iteration: int, *, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 [rows, *shape]."""
        if rows != len(self.identities):
            raise UsageError(
                f"{rows} episodes are planned but {len(self.identities)} identities name their "
                "random streams; give one identity per episode."
            )
        return np.stack(
            [
                stream(self.root_seed, "planner", f"{name}/{iteration}").standard_normal(
                    shape, dtype=np.float32
                )
                for name in self.identities
            ]
        )


class CommonNoise:
    """Common random numbers: every episode and every model meets the same candidates' noise."""

    def __init__(self, root_seed: int, name: str = "common") -> None:
        self.root_seed = root_seed
        self.name = name
        self.identity = f"common, seed {root_seed}, {name}"

    def normal(self, iteration: int, *, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 [rows, *shape], all rows alike."""
        one = stream(self.root_seed, "planner", f"{self.name}/{iteration}").standard_normal(
            shape, dtype=np.float32
        )
        return np.broadcast_to(one, (rows, *shape)).copy()


class SharedNoise:
    """One generator drawn from in order of arrival: the release's mode, for replication only.

    Outcomes then depend on every episode planned before; the record says ``rng_mode = shared``.
    """

    identity = "shared"

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def normal(self, iteration: int, *, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 [rows, *shape]."""
        return self.generator.standard_normal((rows, *shape), dtype=np.float32)


class GivenNoise:
    """Injected numbers, to compare two planners candidate by candidate.

    Args:
        values: [iterations, rows or 1, *shape]; more samples than asked for are cut.
    """

    identity = "given"

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.asarray(values, dtype=np.float32)

    def normal(self, iteration: int, *, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """float32 [rows, *shape]."""
        if iteration >= len(self.values):
            raise UsageError(
                f"iteration {iteration} was asked for but only {len(self.values)} were given."
            )
        block = self.values[iteration]
        if (
            block.shape[2:] != shape[1:]
            or block.shape[1] < shape[0]
            or block.shape[0] not in (1, rows)
        ):
            raise UsageError(
                f"given noise has shape {block.shape} an iteration; {(rows, *shape)} is needed."
            )
        return np.broadcast_to(block[:, : shape[0]], (rows, *shape)).copy()
