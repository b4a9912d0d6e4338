"""Random streams keyed by identity, never by arrival order or batch-mates (law 5)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def stream(root_seed: int, role: str, identity: str | int = "") -> np.random.Generator:
    """The generator of one role and identity: the same on every worker and every resume.

    Args:
        root_seed: the study's or protocol's seed, 0 or greater.
        role: what the numbers are for ("policy", "scout", "bootstrap", ...).
        identity: what they belong to (an input id, an episode, an environment seed).
    """
    name = f"{role}\x1f{identity}".encode()
    words = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype="<u4")
    return np.random.default_rng([root_seed, *(int(w) for w in words)])


class RowStreams:
    """One generator per row, drawn together: row i of a batch never depends on its batch-mates.

    Every call draws the same amount for every row, so a row's numbers depend only on its own
    generator and on how often the batch has drawn. Draws are buffered per row, which keeps a
    batch of thousands fast.
    """

    def __init__(self, generators: Sequence[np.random.Generator], *, block: int = 256) -> None:
        self._generators = list(generators)
        self._block = block
        self._buffers: dict[str, np.ndarray] = {}
        self._used: dict[str, int] = {}

    @classmethod
    def of(cls, root_seed: int, role: str, identities: Sequence[str | int]) -> RowStreams:
        """One stream per identity; normal and uniform numbers come from separate substreams."""
        return cls([stream(root_seed, role, i) for i in identities])

    def __len__(self) -> int:
        return len(self._generators)

    def normal(self, width: int) -> np.ndarray:
        """Standard normal numbers, float64 [rows, width]."""
        return self._take("normal", width)

    def uniform(self, width: int) -> np.ndarray:
        """Uniform numbers on [0, 1), float64 [rows, width]."""
        return self._take("uniform", width)

    def _take(self, kind: str, width: int) -> np.ndarray:
        if width > self._block:
            raise ValueError(f"a draw of {width} numbers exceeds the buffer of {self._block}")
        used = self._used.get(kind, self._block)
        if used + width > self._block:
            # A short tail is thrown away: which numbers a row sees then depends on the sequence
            # of widths only, which is the same for every row.
            self._buffers[kind] = (
                np.stack(
                    [
                        g.standard_normal(self._block)
                        if kind == "normal"
                        else g.random(self._block)
                        for g in self._generators
                    ]
                )
                if self._generators
                else np.empty((0, self._block))
            )
            used = 0
        self._used[kind] = used + width
        return self._buffers[kind][:, used : used + width]
