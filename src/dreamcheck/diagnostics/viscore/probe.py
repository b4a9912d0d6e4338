"""The probe: the fixed instrument of frames, action blocks and states that a score is read with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import UsageError

Frames = Callable[[np.ndarray], np.ndarray]
"""Row numbers [N] -> uint8 [N, 3, H, W]."""


@dataclass(frozen=True)
class Probe:
    """F rows of recorded data, one per action block. Another probe is another scale.

    act_blocks: float32 [F, A], raw; block t is executed from row t to row t + 1; may hold NaN.
    ep_ptr: int64 [E + 1]; episode e owns rows ep_ptr[e] ... ep_ptr[e + 1] - 1.
    state: float32 [F, S] and the names of its columns.
    ep_ids: episode numbers drawn from the data, short ones included.
    frames: reads frames lazily; None when latents are given instead.
    frames_digest: names the frames' content (a data set's digest).
    """

    act_blocks: np.ndarray
    ep_ptr: np.ndarray
    state: np.ndarray
    columns: tuple[str, ...]
    frameskip: int = 5
    ep_ids: tuple[int, ...] = ()
    frames: Frames | None = field(default=None, repr=False, compare=False)
    frames_digest: str = ""

    def __post_init__(self) -> None:
        rows = len(self.act_blocks)
        if self.act_blocks.ndim != 2:
            raise UsageError(f"act_blocks has shape {self.act_blocks.shape}; expected [F, A].")
        if self.state.shape != (rows, len(self.columns)):
            raise UsageError(
                f"state has shape {self.state.shape}; expected [{rows}, {len(self.columns)}] for "
                f"{rows} probe rows and the columns {', '.join(self.columns) or '(none)'}."
            )
        if np.isinf(self.act_blocks).any():
            row = int(np.flatnonzero(np.isinf(self.act_blocks).any(axis=1))[0])
            raise UsageError(
                f"the action block of probe row {row} holds an infinity. A missing action is "
                "recorded as NaN; an infinite one would spoil every action's normalisation."
            )
        ptr = self.ep_ptr
        if (
            ptr.ndim != 1
            or len(ptr) < 2
            or ptr[0] != 0
            or ptr[-1] != rows
            or (np.diff(ptr) < 1).any()
        ):
            raise UsageError(
                f"ep_ptr = {ptr.tolist()[:6]}... must start at 0, rise, and end at the number of "
                f"rows ({rows})."
            )

    @classmethod
    def from_arrays(
        cls,
        *,
        act_blocks: np.ndarray,
        ep_ptr: np.ndarray,
        state: np.ndarray | None = None,
        columns: Sequence[str] = (),
        frameskip: int = 5,
        frames: Frames | None = None,
        frames_digest: str = "",
    ) -> Probe:
        """A probe from arrays that follow the shapes above."""
        blocks = np.asarray(act_blocks, dtype=np.float32)
        if state is None:
            state = np.zeros((len(blocks), 0))
        return cls(
            act_blocks=blocks,
            ep_ptr=np.asarray(ep_ptr, dtype=np.int64),
            state=np.asarray(state, dtype=np.float32),
            columns=tuple(columns),
            frameskip=frameskip,
            ep_ids=tuple(range(len(ep_ptr) - 1)),
            frames=frames,
            frames_digest=frames_digest,
        )

    @property
    def num_rows(self) -> int:
        """F."""
        return len(self.act_blocks)

    @property
    def episodes(self) -> list[tuple[int, int]]:
        """First row and one past the last row of every episode."""
        return [(int(a), int(b)) for a, b in zip(self.ep_ptr[:-1], self.ep_ptr[1:], strict=True)]

    @cached_property
    def has_action(self) -> np.ndarray:
        """bool [F]: the block holds no NaN."""
        return ~np.isnan(self.act_blocks).any(axis=1)

    @cached_property
    def normalized_blocks(self) -> np.ndarray:
        """float32 [F, A]: per column, minus the mean over (std + 1e-8), NaN entries left out.

        Every column takes its own non-NaN rows (a block may be missing one sub-step), so the five
        sub-steps of a block keep five means. NaN stays NaN.

        Source: spec/viscore.md section 1.
        """
        if not self.has_action.any():
            raise UsageError(
                "every action block of the probe holds a NaN; the actions were not recorded, or "
                "their column has another name."
            )
        raw = self.act_blocks.astype(np.float64)
        mean, std = np.nanmean(raw, axis=0), np.nanstd(raw, axis=0)
        return ((raw - mean) / (std + 1e-8)).astype(np.float32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of arrays, frameskip, column names and the frames' digest."""
        arrays = {"act_blocks": self.act_blocks, "ep_ptr": self.ep_ptr, "state": self.state}
        return digest(
            [
                "viscore-probe",
                digest_arrays(arrays),
                list(self.columns),
                self.frameskip,
                list(self.ep_ids),
                self.frames_digest,
            ]
        )


def build_probe(
    episodes: Episodes, *, frameskip: int = 5, num_episodes: int = 300, seed: int = 0
) -> Probe:
    """The probe of a data set: drawn episodes, every frameskip-th frame, concatenated blocks.

    Args:
        episodes: recorded data; its last action per episode may be NaN and stays NaN.
        frameskip: environment steps in one block.
        num_episodes: most episodes drawn.
        seed: another seed is another instrument.

    Returns:
        Probe with lazily read frames.

    Raises:
        UsageError: no episode is as long as two blocks.

    Source: spec/viscore.md section 2.
    """
    lengths = np.asarray(episodes.lengths)
    n = len(lengths)
    if n == 0:
        raise UsageError("the data set holds no episodes, so there is nothing to probe with.")
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(n, size=min(num_episodes, n), replace=False))
    blocks, states, rows = [], [], []
    ep_ptr = [0]
    for e in ids:
        num = int(lengths[e]) // frameskip
        if num < 2:
            continue
        actions = np.asarray(episodes.actions(int(e)), dtype=np.float32)
        blocks.append(actions[: num * frameskip].reshape(num, -1))
        ts = np.arange(num) * frameskip
        states.append(np.asarray(episodes.state(int(e)), dtype=np.float32)[ts])
        rows += [(int(e), int(t)) for t in ts]
        ep_ptr.append(ep_ptr[-1] + num)
    if not blocks:
        raise UsageError(
            f"none of the {len(ids)} drawn episodes has {2 * frameskip} frames (longest: "
            f"{int(lengths.max())}), so no episode spans two blocks of frameskip = {frameskip}."
        )
    where = np.asarray(rows, dtype=np.int64)

    def frames(index: np.ndarray) -> np.ndarray:
        wanted = where[np.asarray(index, dtype=np.int64)]
        out: list[np.ndarray] = []
        start = 0
        # Runs of one episode are read together: a video or HDF5 chunk is opened once.
        for stop in range(1, len(wanted) + 1):
            if stop == len(wanted) or wanted[stop, 0] != wanted[start, 0]:
                out.append(episodes.frames(int(wanted[start, 0]), wanted[start:stop, 1]))
                start = stop
        return np.concatenate(out)

    return Probe(
        act_blocks=np.concatenate(blocks),
        ep_ptr=np.asarray(ep_ptr, dtype=np.int64),
        state=np.concatenate(states),
        columns=tuple(c.name for c in episodes.columns),
        frameskip=frameskip,
        ep_ids=tuple(int(e) for e in ids),
        frames=frames,
        frames_digest=episodes.digest,
    )
