"""Validity rules: which inputs the search may use, decided on whole columns at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from dreamcheck.tasks.tworoom import physics
from dreamcheck.tasks.tworoom.inputs import GOAL, START
from dreamcheck.tasks.tworoom.parameters import DOOR_FIT, FACTORS, WALL_CENTRE

Columns = Mapping[str, np.ndarray]

_DOOR_POSITIONS = ("door.position", "door.position.1", "door.position.2")


def still_start(columns: Columns) -> np.ndarray:
    """A zero action leaves the start where it is, bool [N].

    False for starts that the border or the wall pushes away on the first step.
    """
    return _stands(columns, START)


def goal_reachable(columns: Columns) -> np.ndarray:
    """An agent can stand at the goal, and some opening leads there from the start, bool [N].

    The first part is still_start's test, made at the goal. The second holds if start and goal share
    a room, or if some door lets a centre through within the border's bounds.
    """
    walls = _walls(columns)
    vertical = walls.axis == 1
    start, goal = _points(columns, START), _points(columns, GOAL)
    sides = [np.where(vertical, p[:, 0], p[:, 1]) < WALL_CENTRE for p in (start, goal)]
    low = np.maximum(walls.door_low, walls.low[:, None])
    high = np.minimum(walls.door_high, walls.high[:, None])
    opening = (low <= high).any(axis=1)
    return _stands(columns, GOAL) & ((sides[0] == sides[1]) | opening)


def door_fits(columns: Columns) -> np.ndarray:
    """Some door's half-extent is at least 1.1 agent radii, bool [N]: the original's constraint."""
    # As the original compares them: a float32 radius, in float64.
    radius = _factor(columns, "agent.radius").astype(np.float32).astype(np.float64)
    # All doors have one size, and there is at least one.
    fits = _factor(columns, "door.size") >= DOOR_FIT * radius
    return np.broadcast_to(fits, (_num_rows(columns),)).copy()


RULES: Mapping[str, Callable[[Columns], np.ndarray]] = MappingProxyType(
    {"still_start": still_start, "goal_reachable": goal_reachable, "door_fits": door_fits}
)
"""Rules by name. Columns that are missing take the environment's initial values."""


def _stands(columns: Columns, names: Mapping[str, float]) -> np.ndarray:
    point = _points(columns, names)
    moved = physics.advance(point, np.zeros((1, 2), np.float32), _walls(columns)) != point
    return np.broadcast_to(~moved.any(axis=1), (_num_rows(columns),)).copy()


def _num_rows(columns: Columns) -> int:
    return max((len(c) for c in columns.values()), default=1)


def _points(columns: Columns, names: Mapping[str, float]) -> np.ndarray:
    point = np.empty((_num_rows(columns), 2), np.float32)
    for axis, (name, value) in enumerate(names.items()):
        point[:, axis] = columns.get(name, value)
    return point


def _walls(columns: Columns) -> physics.Walls:
    doors = [_factor(columns, name) for name in _DOOR_POSITIONS]
    return physics.walls_from(
        agent_speed=_factor(columns, "agent.speed"),
        agent_radius=_factor(columns, "agent.radius"),
        wall_axis=_factor(columns, "wall.axis"),
        wall_thickness=_factor(columns, "wall.thickness").astype(np.int64),
        door_number=_factor(columns, "door.number"),
        door_position=np.stack(np.broadcast_arrays(*doors), axis=1),
        door_size=_factor(columns, "door.size")[:, None],
    )


def _factor(columns: Columns, name: str) -> np.ndarray:
    """The factor's column, or its initial value as one row for all."""
    return np.asarray(columns.get(name, [float(FACTORS[name].initial)]))
