"""Clips cut out of recorded episodes by the four conventions.

A clip with base b and n frames takes frames b, b + f, ..., b + f(n - 1), and between two of them
all f raw actions (dense). No clip crosses an episode's end, so none holds the last row's NaN.

Source: spec/protocol.md section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError


@dataclass(frozen=True)
class Clips:
    """B clips of n model frames.

    pixels: uint8 [B, n, 3, s, s], or None when not asked for.
    actions: float64 [B, (n - 1) * frameskip, A], raw, in environment units; the frameskip rows
        from i * frameskip on are those that leave frame i.
    states: float64 [B, n, S] at the frames.
    episodes, bases: int64 [B], where each clip was cut.
    """

    pixels: np.ndarray | None
    actions: np.ndarray
    states: np.ndarray
    episodes: np.ndarray
    bases: np.ndarray


class Windows:
    """Every clip of a given length in a given set of episodes, by number.

    Args:
        episodes: the recorded data.
        num_frames: model frames per clip, at least 2.
        frameskip: environment steps between two of them.
        subset: episode numbers to cut from; all of them by default.
    """

    def __init__(
        self,
        episodes: Episodes,
        *,
        num_frames: int,
        frameskip: int,
        subset: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        if num_frames < 2 or frameskip < 1:
            raise UsageError(
                f"num_frames = {num_frames} and frameskip = {frameskip}: a clip needs at least 2 "
                "frames, at least 1 environment step apart."
            )
        self.data = episodes
        self.num_frames = num_frames
        self.frameskip = frameskip
        lengths = np.asarray(episodes.lengths)
        chosen = np.arange(len(lengths)) if subset is None else np.asarray(subset, dtype=np.int64)
        # The last frame is at b + f(n - 1) <= L - 1.
        counts = np.maximum(lengths[chosen] - self.span, 0)
        if not counts.sum():
            longest = int(lengths[chosen].max()) if len(chosen) else 0
            raise UsageError(
                f"no episode holds a clip: {num_frames} frames at frameskip {frameskip} need "
                f"{self.span + 1} recorded frames, the longest episode has {longest}. Shorten the "
                "history or the forecast, or use longer episodes."
            )
        self._chosen = chosen
        self._ends = np.cumsum(counts)
        self._counts = counts

    @property
    def episodes(self) -> np.ndarray:
        """Numbers of the episodes that clips are cut from, int64."""
        return self._chosen

    @property
    def span(self) -> int:
        """Environment steps from a clip's first to its last frame."""
        return (self.num_frames - 1) * self.frameskip

    def __len__(self) -> int:
        return int(self._ends[-1])

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Clip numbers -> (episode numbers, base frames), int64."""
        index = np.asarray(index, dtype=np.int64)
        if len(index) and (index.min() < 0 or index.max() >= len(self)):
            raise UsageError(
                f"clip {int(index.max())} does not exist; there are {len(self)}, from 0."
            )
        slot = np.searchsorted(self._ends, index, side="right")
        return self._chosen[slot], index - (self._ends[slot] - self._counts[slot])

    def take(self, index: np.ndarray, *, pixels: bool = True) -> Clips:
        """The clips of the given numbers.

        Raises:
            UsageError: an action inside a clip is NaN; episode and step are named.
        """
        where, bases = self.locate(index)
        frames, actions, states = [], [], []
        for e, b in zip(where.tolist(), bases.tolist(), strict=True):
            ts = b + self.frameskip * np.arange(self.num_frames)
            rows = np.asarray(self.data.actions(e)[b : b + self.span], dtype=np.float64)
            if np.isnan(rows).any():
                step = b + int(np.flatnonzero(np.isnan(rows).any(axis=1))[0])
                raise UsageError(
                    f"the action of episode {e} at step {step} is NaN, inside the episode. Only "
                    "an episode's last action may be missing: split the episode there or repair "
                    "the recording."
                )
            actions.append(rows)
            states.append(np.asarray(self.data.state(e)[ts], dtype=np.float64))
            if pixels:
                frames.append(self.data.frames(e, ts))
        return Clips(
            pixels=np.stack(frames) if pixels and frames else None,
            actions=np.stack(actions),
            states=np.stack(states),
            episodes=where,
            bases=bases,
        )
