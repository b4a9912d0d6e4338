"""Episodes that hold states only, with frames drawn by a simulator when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.digest import digest
from dreamcheck.tasks.protocol import Column, Restartable, Task


class DrawnEpisodes:
    """``Episodes`` whose frames are what a task shows at the recorded states.

    Only as good as the task's drawing: nothing here says that a recording looked like this.

    Args:
        episodes: with the task's state columns.
        task: can be placed at a state (``Restartable``).
        image_size: side of the frames, px, where the task draws that size; else its native one.
    """

    def __init__(self, episodes: Episodes, task: Task, *, image_size: int) -> None:
        self.episodes, self.task = episodes, task
        self.size = image_size if image_size in task.sizes else None
        self.columns: tuple[Column, ...] = tuple(episodes.columns)
        self.has_pixels = isinstance(task, Restartable) and len(self.columns) > 0

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E]."""
        return self.episodes.lengths

    @property
    def digest(self) -> str:
        """SHA-256 of the states and actions, and of what draws them."""
        return digest([self.episodes.digest, self.task.version, self.size])

    @property
    def extra(self) -> Mapping[str, np.ndarray]:
        """Further per-frame arrays, as recorded."""
        return getattr(self.episodes, "extra", None) or {}

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A]; the last row is NaN."""
        return self.episodes.actions(e)

    def state(self, e: int) -> np.ndarray:
        """[L, S]."""
        return self.episodes.state(e)

    def frames(self, e: int, ts: Sequence[int] | np.ndarray) -> np.ndarray:
        """uint8 [len(ts), 3, H, W], drawn now."""
        states = np.asarray(self.episodes.state(e), np.float64)[np.asarray(ts, np.int64)]
        blank: Any = self.task.reset(None, [0] * len(states))
        placed = cast(Restartable, self.task).with_state(blank, states)
        return self.task.observe(placed, ("pixels",), image_size=self.size)["pixels"]
