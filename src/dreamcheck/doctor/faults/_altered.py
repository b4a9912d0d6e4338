"""A simulator with one thing wrong, everything else passed on."""

from __future__ import annotations

from typing import Any

import numpy as np


class Altered:
    """A TwoRoom that is faster by ``gain``, places agents ``offset`` px off or with swapped
    coordinates, or pictures goals ``goal_offset`` px away from where they are.
    """

    def __init__(
        self,
        task: Any,
        *,
        gain: float = 1.0,
        offset: float = 0.0,
        swap: bool = False,
        goal_offset: float = 0.0,
    ) -> None:
        self._task, self._gain = task, gain
        self._offset, self._swap, self._goal_offset = offset, swap, goal_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def step(self, state: Any, actions: np.ndarray) -> Any:
        """A step of another size; positions stay on the picture."""
        after = self._task.step(state, actions)
        if self._gain == 1.0:
            return after
        moved = (after.agent - state.agent) * np.float32(self._gain)
        return self._task.with_state(after, np.clip(state.agent + moved, 0, 223))

    def with_state(self, state: Any, values: np.ndarray) -> Any:
        """The state, set wrongly."""
        placed = np.asarray(values)[:, ::-1] if self._swap else np.asarray(values) + self._offset
        return self._task.with_state(state, np.clip(placed, 0, 223))

    def goal_observation(self, state: Any, *, image_size: int | None = None) -> dict[str, Any]:
        """The goal's observation with a picture of another place."""
        shown = dict(self._task.goal_observation(state, image_size=image_size))
        if self._goal_offset:
            moved = self._task.with_goal(
                state, np.clip(state.target + np.float32(self._goal_offset), 0, 223)
            )
            shown["pixels"] = self._task.goal_observation(moved, image_size=image_size)["pixels"]
        return shown
