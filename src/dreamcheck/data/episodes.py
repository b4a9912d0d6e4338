"""Recorded episodes behind one interface, and the in-memory implementation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import UsageError
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Column


@runtime_checkable
class Episodes(Protocol):
    """Recorded data: E episodes, episode e with lengths[e] frames.

    actions(e)[t] moves frame t to t + 1; the last row is NaN.
    """

    columns: tuple[Column, ...]

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E]."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        ...

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A] in environment units; the last row is NaN."""
        ...

    def frames(self, e: int, ts: Sequence[int] | np.ndarray) -> np.ndarray:
        """uint8 [len(ts), 3, H, W] RGB; read or rendered only when asked."""
        ...

    def state(self, e: int) -> np.ndarray:
        """[L, len(columns)]; width 0 where the data hold no state."""
        ...


@dataclass(frozen=True)
class Split:
    """Episode numbers of a split, disjoint."""

    train: np.ndarray
    heldout: np.ndarray


def split_episodes(episodes: Episodes, *, heldout: float = 0.1, seed: int = 0) -> Split:
    """A split by episode: no frame of a held-out episode is ever trained on.

    Args:
        heldout: share of episodes, strictly between 0 and 1; at least one on each side.
    """
    n = len(episodes.lengths)
    if n < 2:
        raise UsageError(f"{n} episode(s) cannot be split; at least 2 are needed.")
    order = stream(seed, "split", n).permutation(n)
    k = min(max(1, round(heldout * n)), n - 1)
    return Split(train=np.sort(order[k:]), heldout=np.sort(order[:k]))


class HasExtra(Protocol):
    """Episodes with further per-frame arrays, one episode at a time."""

    @property
    def lengths(self) -> np.ndarray: ...

    def extra_of(self, name: str, e: int) -> np.ndarray:
        """One episode's rows of a further per-frame array."""
        ...


class LazyExtra(Mapping[str, np.ndarray]):
    """Further columns by name, each read whole when first asked for, flat over all frames."""

    def __init__(self, episodes: HasExtra, names: Sequence[str]) -> None:
        self._episodes = episodes
        self._names = tuple(names)
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = np.concatenate(
                [self._episodes.extra_of(name, e) for e in range(len(self._episodes.lengths))]
            )
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class ArrayEpisodes:
    """Episodes held in arrays, flat over all frames of all episodes.

    Args:
        lengths: [E] frames per episode.
        actions: [F, A], F = sum of lengths; the row at every episode's end must be NaN.
        pixels: uint8 [F, 3, H, W], or None when frames cannot be shown.
        state: [F, S] or None.
        columns: names and units of the S state numbers.
        extra: further per-frame arrays [F, ...], by name.
    """

    def __init__(
        self,
        *,
        lengths: np.ndarray,
        actions: np.ndarray,
        pixels: np.ndarray | None = None,
        state: np.ndarray | None = None,
        columns: Sequence[Column] = (),
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._ends = np.cumsum(self._lengths)
        self._starts = self._ends - self._lengths
        total = int(self._lengths.sum())
        self._actions = np.asarray(actions)
        self._pixels = pixels
        self._state = np.zeros((total, 0)) if state is None else np.asarray(state)
        self.columns = tuple(columns)
        self.extra = dict(extra or {})
        for name, array in (
            ("actions", self._actions),
            ("pixels", pixels),
            ("state", self._state),
            *self.extra.items(),
        ):
            if array is not None and len(array) != total:
                raise UsageError(
                    f"{name} has {len(array)} rows but the episode lengths add up to {total}. "
                    "Every array is flat over all frames, episodes one after the other."
                )
        if len(self._lengths) and self._lengths.min() < 1:
            raise UsageError("an episode has no frames; leave empty episodes out.")
        if self._state.shape[1] != len(self.columns):
            raise UsageError(
                f"state has {self._state.shape[1]} columns but {len(self.columns)} are named."
            )
        last = self._actions[self._ends - 1] if len(self._ends) else self._actions
        if len(last) and not np.isnan(last).all():
            e = int(np.flatnonzero(~np.isnan(last).all(axis=1))[0])
            raise UsageError(
                f"the last action of episode {e} is {last[e].tolist()}, not NaN: there is no "
                "frame after it to move to. If your recorder stored one action per frame, set "
                "each episode's last row to NaN; if the first row is the odd one, the actions "
                "are shifted by a step."
            )

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E]."""
        return self._lengths

    @property
    def digest(self) -> str:
        """SHA-256 over lengths, actions, pixels, state, extras and column names."""
        arrays: dict[str, np.ndarray] = {
            "lengths": self._lengths,
            "actions": self._actions,
            "state": self._state,
        }
        if self._pixels is not None:
            arrays["pixels"] = self._pixels
        arrays |= {f"extra/{k}": v for k, v in self.extra.items()}
        return digest([digest_arrays(arrays), [(c.name, c.unit) for c in self.columns]])

    def subset(self, chosen: Sequence[int] | np.ndarray) -> ArrayEpisodes:
        """The chosen episodes, in the given order, as a copy."""
        slices = [self._slice(int(e)) for e in chosen]
        rows = np.concatenate([np.arange(s.start, s.stop) for s in slices] or [np.empty(0, int)])
        return ArrayEpisodes(
            lengths=self._lengths[np.asarray(chosen, dtype=np.int64)],
            actions=self._actions[rows],
            pixels=None if self._pixels is None else self._pixels[rows],
            state=self._state[rows],
            columns=self.columns,
            extra={k: v[rows] for k, v in self.extra.items()},
        )

    def joined(self, other: ArrayEpisodes) -> ArrayEpisodes:
        """These episodes followed by the other ones.

        Raises:
            UsageError: columns, extras or pixels of one are missing in the other.
        """
        if (
            self.columns != other.columns
            or set(self.extra) != set(other.extra)
            or self.has_pixels != other.has_pixels
        ):
            raise UsageError(
                f"episodes with columns {[c.name for c in self.columns]} and extras "
                f"{sorted(self.extra)} cannot be joined to ones with "
                f"{[c.name for c in other.columns]} and {sorted(other.extra)}."
            )
        return ArrayEpisodes(
            lengths=np.concatenate([self._lengths, other._lengths]),
            actions=np.concatenate([self._actions, other._actions]),
            pixels=None
            if self._pixels is None or other._pixels is None
            else np.concatenate([self._pixels, other._pixels]),
            state=np.concatenate([self._state, other._state]),
            columns=self.columns,
            extra={k: np.concatenate([v, other.extra[k]]) for k, v in self.extra.items()},
        )

    @property
    def has_pixels(self) -> bool:
        """Whether ``frames`` can be asked for."""
        return self._pixels is not None

    def extra_of(self, name: str, e: int) -> np.ndarray:
        """One episode's rows of a further per-frame array."""
        return self.extra[name][self._slice(e)]

    def _slice(self, e: int) -> slice:
        if not 0 <= e < len(self._lengths):
            raise UsageError(f"episode {e} does not exist; there are {len(self._lengths)}.")
        return slice(int(self._starts[e]), int(self._ends[e]))

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A]; the last row is NaN."""
        return self._actions[self._slice(e)]

    def state(self, e: int) -> np.ndarray:
        """[L, len(columns)]."""
        return self._state[self._slice(e)]

    def frames(self, e: int, ts: Sequence[int] | np.ndarray) -> np.ndarray:
        """uint8 [len(ts), 3, H, W]."""
        if self._pixels is None:
            raise UsageError(
                "these episodes hold no pixels; give `pixels`, or use a reader that renders them."
            )
        s = self._slice(e)
        ts = np.asarray(ts, dtype=np.int64)
        if len(ts) and (ts.min() < 0 or ts.max() >= s.stop - s.start):
            raise UsageError(
                f"frame {int(ts.max() if ts.max() >= s.stop - s.start else ts.min())} of episode "
                f"{e} does not exist; it has {s.stop - s.start} frames."
            )
        return self._pixels[s.start + ts]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._lengths)))
