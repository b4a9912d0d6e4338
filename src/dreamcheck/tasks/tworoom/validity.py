"""Validity rules: which inputs the search may use, decided on whole columns at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from dreamcheck.tasks.tworoom import physics
from dreamcheck.tasks.tworoom.inputs import GOAL, START
from dreamcheck.tasks.tworoom.parameters import (
    DOOR_FIT,
    FACTORS,
    MAX_DOORS,
    WALL_CENTRE,
    Layout,
    initial_arrays,
)

Columns = Mapping[str, np.ndarray]

_MOTION = ("agent_speed", "agent_radius", "wall_axis", "wall_thickness") + (
    "door_number",
    "door_position",
    "door_size",
)


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
    layout = _layout(columns)
    radius = layout.agent_radius.astype(np.float64)[:, None]
    exists = np.arange(MAX_DOORS) < layout.door_number[:, None]
    fits = (exists & (layout.door_size >= DOOR_FIT * radius)).any(axis=1)
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
    return physics.walls_of(_layout(columns))


def _layout(columns: Columns) -> Layout:
    """A layout of one row, or of N where a column varies: only arrays that motion reads matter."""
    names = [n for n in columns if n in FACTORS and FACTORS[n].field in _MOTION]
    arrays = initial_arrays(_num_rows(columns) if names else 1)
    for name in names:
        factor = FACTORS[name]
        column = np.asarray(columns[name])
        if factor.entry is not None:
            arrays[factor.field][:, factor.entry] = column
        elif arrays[factor.field].ndim == 2:
            arrays[factor.field][:] = column[:, None]
        else:
            arrays[factor.field][:] = column
    return Layout(**arrays)
