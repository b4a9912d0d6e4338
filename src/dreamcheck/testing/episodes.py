"""The contract of ``Episodes``, as checks anyone can run."""

from __future__ import annotations

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError
from dreamcheck.streams import stream


def check_episodes(episodes: Episodes, *, sample: int = 20, pixels: bool = True) -> None:
    """Check everything the contract promises, on up to ``sample`` episodes.

    Args:
        pixels: False for data without frames.

    Raises:
        AssertionError: the first promise that is broken, in words.
    """
    assert isinstance(episodes, Episodes), f"{type(episodes).__name__} lacks a part of Episodes"
    lengths = np.asarray(episodes.lengths)
    assert lengths.ndim == 1 and len(lengths) and np.issubdtype(lengths.dtype, np.integer), (
        f"lengths is {lengths.dtype} {lengths.shape}; expected integers [E], E >= 1"
    )
    assert lengths.min() >= 1, f"episode {int(lengths.argmin())} has no frames"
    count = min(sample, len(lengths))
    chosen = np.sort(stream(0, "conformance", len(lengths)).permutation(len(lengths))[:count])
    widths, shapes = set(), set()
    for e in chosen.tolist():
        n = int(lengths[e])
        widths.add(_check_actions(episodes, e, n))
        state = np.asarray(episodes.state(e))
        assert state.shape == (n, len(episodes.columns)), (
            f"state of episode {e} is {state.shape}; {n} frames and {len(episodes.columns)} named "
            "columns"
        )
        if pixels:
            shapes.add(_check_frames(episodes, e, n))
    assert len(widths) == 1, f"episodes have actions of different widths {sorted(widths)}"
    assert len(shapes) <= 1, f"episodes have frames of different shapes {sorted(shapes)}"
    first = episodes.digest
    assert isinstance(first, str) and first == episodes.digest, "digest is no stable string"
    try:
        episodes.actions(len(lengths))
    except (UsageError, IndexError):
        return
    raise AssertionError(f"episode {len(lengths)} of {len(lengths)} was answered, not refused")


def _check_actions(episodes: Episodes, e: int, n: int) -> int:
    actions = np.asarray(episodes.actions(e))
    assert actions.ndim == 2 and len(actions) == n, (
        f"actions of episode {e} are {actions.shape}; one row per frame is expected, [{n}, A]"
    )
    assert np.isnan(actions[-1]).all(), (
        f"the last action of episode {e} is {actions[-1].tolist()}, not NaN: there is no frame "
        "after it. If the first row is the odd one, the actions are shifted by a step"
    )
    inside = np.isnan(actions[:-1]).any(axis=1)
    assert not inside.any(), (
        f"the action of episode {e} at step {int(inside.argmax())} is NaN, inside the episode"
    )
    return actions.shape[1]


def _check_frames(episodes: Episodes, e: int, n: int) -> tuple[int, ...]:
    ts = np.array([n - 1, 0])
    frames = episodes.frames(e, ts)
    assert frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[:2] == (2, 3), (
        f"frames of episode {e} are {frames.dtype} {frames.shape}; expected uint8 [2, 3, H, W]"
    )
    assert np.array_equal(frames[::-1], episodes.frames(e, ts[::-1])), (
        f"frames of episode {e} come in another order than they were asked for"
    )
    try:
        episodes.frames(e, [n])
    except (UsageError, IndexError):
        return frames.shape[2:]
    raise AssertionError(f"frame {n} of episode {e}, which has {n}, was answered, not refused")
