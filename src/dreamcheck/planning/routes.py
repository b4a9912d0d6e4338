"""TwoRoom routes: the environment looks at the end points of a step, a disc has a width.

A swept-disc check counts the steps in which the agent's disc cuts through a wall; ``SweptTwoRoom``
re-runs the task under physics that does not allow it (a public evaluator found 37 % success as
released, 6 % after removing illegal routes, 24 % re-run legally).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dreamcheck.tasks.tworoom.parameters import FRAME_SIDE, MAX_DOORS, WALL_CENTRE, Layout
from dreamcheck.tasks.tworoom.task import TwoRoom, TwoRoomState

TOLERANCE = 1e-3
"""How deep a disc may sink into a wall before it counts, px: float32 positions resolve 1.5e-5."""


def wall_boxes(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Solid pieces of each row's wall between its doors: low and high corners [B, 4, 2], px.

    Corners are (across, along). Pieces that do not exist are empty (low > high).
    """
    b = len(layout)
    half = (layout.wall_thickness // 2).astype(np.float64)
    exists = np.arange(MAX_DOORS) < layout.door_number[:, None]
    start = np.where(exists, layout.door_position - layout.door_size, np.inf).astype(np.float64)
    stop = np.where(exists, layout.door_position + layout.door_size, np.inf).astype(np.float64)
    order = np.argsort(start, axis=1)
    start, stop = np.take_along_axis(start, order, 1), np.take_along_axis(stop, order, 1)
    low, high = np.full((b, MAX_DOORS + 1), -1.0), np.full((b, MAX_DOORS + 1), -2.0)
    reached = np.zeros(b)
    for i in range(MAX_DOORS):
        solid = np.minimum(start[:, i], FRAME_SIDE) > reached
        low[:, i] = np.where(solid, reached, -1.0)
        high[:, i] = np.where(solid, np.minimum(start[:, i], FRAME_SIDE), -2.0)
        reached = np.where(np.isfinite(stop[:, i]), np.maximum(reached, stop[:, i]), FRAME_SIDE)
        reached = np.where(np.isfinite(start[:, i]), reached, FRAME_SIDE)
    tail = reached < FRAME_SIDE
    low[:, -1] = np.where(tail, reached, -1.0)
    high[:, -1] = np.where(tail, FRAME_SIDE, -2.0)
    across = np.stack([WALL_CENTRE - half, WALL_CENTRE + half], axis=1)
    lows = np.stack([np.repeat(across[:, :1], MAX_DOORS + 1, axis=1), low], axis=2)
    highs = np.stack([np.repeat(across[:, 1:], MAX_DOORS + 1, axis=1), high], axis=2)
    return lows, highs


def clearance(points: np.ndarray, layout: Layout) -> np.ndarray:
    """Distance of centres to the nearest solid wall, minus the agent's radius: [B, n, 2] -> [B, n].

    Negative where the disc overlaps the wall.
    """
    lows, highs = wall_boxes(layout)
    vertical = (layout.wall_axis == 1)[:, None]
    across = np.where(vertical, points[..., 0], points[..., 1]).astype(np.float64)
    along = np.where(vertical, points[..., 1], points[..., 0]).astype(np.float64)
    p = np.stack([across, along], axis=-1)[:, :, None, :]
    gap = np.maximum(np.maximum(lows[:, None] - p, p - highs[:, None]), 0.0)
    distance = np.sqrt((gap**2).sum(axis=-1))
    distance = np.where((lows[:, None, :, 1] <= highs[:, None, :, 1]), distance, np.inf)
    return distance.min(axis=2) - layout.agent_radius.astype(np.float64)[:, None]


def step_clearance(
    before: np.ndarray, after: np.ndarray, layout: Layout, *, samples: int = 33
) -> np.ndarray:
    """Smallest clearance along the straight way of one step, [B].

    The distance to a convex piece is convex along a line, so sampled points miss its minimum by
    at most half a spacing (0.08 px for a step of 5 px).
    """
    share = np.linspace(0.0, 1.0, samples)[None, :, None]
    points = before[:, None].astype(np.float64) * (1 - share) + after[:, None] * share
    return clearance(points, layout).min(axis=1)


def illegal_steps(positions: np.ndarray, layout: Layout) -> np.ndarray:
    """Steps in which the disc cuts through a wall, bool [B, steps].

    Args:
        positions: [B, steps + 1, 2]; NaN after a row has stopped counts as legal. A step that only
            leaves an overlap it began in (a start drawn inside the wall) is legal.
    """
    b, n, _ = positions.shape
    out = np.zeros((b, n - 1), bool)
    for t in range(n - 1):
        before, after = positions[:, t], positions[:, t + 1]
        moved = np.isfinite(after).all(axis=1)
        if not moved.any():
            break
        rows = layout.take(np.flatnonzero(moved))
        least = step_clearance(before[moved], after[moved], rows)
        began = clearance(before[moved][:, None], rows)[:, 0]
        out[moved, t] = (least < -TOLERANCE) & (least < began - TOLERANCE)
    return out


class SweptTwoRoom(TwoRoom):
    """TwoRoom under legal physics: the disc stops where it touches a wall and slides along it."""

    version = TwoRoom.version + "+swept"

    def step(self, state: TwoRoomState, actions: np.ndarray) -> TwoRoomState:
        """The next state; a step that the native physics makes legally is left as it is."""
        after = super().step(state, actions)
        least = step_clearance(state.agent, after.agent, state.layout)
        began = clearance(state.agent[:, None], state.layout)[:, 0]
        illegal = (least < -TOLERANCE) & (least < began - TOLERANCE)
        if not illegal.any():
            return after
        rows = np.flatnonzero(illegal)
        legal = _slide(state.agent[rows], after.agent[rows], state.layout.take(rows))
        agent = after.agent.copy()
        agent[rows] = legal
        return replace(after, agent=agent)


def _slide(before: np.ndarray, wanted: np.ndarray, layout: Layout) -> np.ndarray:
    """The way to the wall, then what is left of the step along the wall's axis; float32 [n, 2]."""
    start = before.astype(np.float64)
    touch = _contact(start, wanted.astype(np.float64), layout)
    along = touch.copy()
    axis = np.where(layout.wall_axis == 1, 1, 0)
    rows = np.arange(len(along))
    along[rows, axis] = wanted[rows, axis]
    return _contact(touch, along, layout).astype(np.float32)


def _contact(start: np.ndarray, end: np.ndarray, layout: Layout) -> np.ndarray:
    """The last point on the way from start to end whose disc does not sink deeper into a wall."""
    share = np.linspace(0.0, 1.0, 129)
    points = start[:, None] * (1 - share[None, :, None]) + end[:, None] * share[None, :, None]
    room = clearance(points, layout)
    allowed = np.minimum(room[:, :1], 0.0) - TOLERANCE / 2
    blocked = room < allowed
    first = np.where(blocked.any(axis=1), blocked.argmax(axis=1), len(share))
    return points[np.arange(len(points)), np.maximum(first - 1, 0)]


def with_collision(task: Any, collision: str) -> Any:
    """The task under the protocol's collision rule.

    Raises:
        UsageError: "swept" for a task that is not TwoRoom.
    """
    from dreamcheck.errors import UsageError

    if collision == "native":
        return task
    if not isinstance(task, TwoRoom):
        raise UsageError(
            f"collision = 'swept' is TwoRoom's; task {task.name} has no swept physics. "
            "Use collision = 'native'."
        )
    return SweptTwoRoom()
