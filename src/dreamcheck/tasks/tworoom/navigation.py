"""The way from one room to the other: waypoints through doors, for any wall and any doors.

Coordinates here are ``u`` across the wall, counted from its middle and signed so that the goal's
side is positive, and ``v`` along the wall. A crossing has two waypoints at one height ``v`` of the
door: two pixels before the wall's reach and two pixels behind it (for the default wall 14 px from
its middle, spec/protocol.md S14).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.tasks.tworoom.parameters import BORDER, DOOR_MARGIN, FRAME_SIDE, WALL_CENTRE

GEOMETRY = (
    "wall_axis",
    "wall_thickness",
    "agent_radius",
    "agent_speed",
    "door_number",
    "door_position",
    "door_position.1",
    "door_position.2",
    "door_size",
    "door_size.1",
    "door_size.2",
)
"""What ``observe(state, ("geometry",))`` returns, in order."""

_CLEARANCE = 2.0
_ALIGNED = 4.0
"""How near the first waypoint counts as reached, px."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Heights at which an agent crosses, [B, 3] px.

    low, high: where its disc passes; where no disc fits, the middle of where its centre does.
    usable: the door exists and some centre within the border's bounds passes.
    """

    low: np.ndarray
    high: np.ndarray
    usable: np.ndarray


def doors_of(geometry: np.ndarray) -> Doors:
    """The crossings that the rows' geometry offers."""
    radius, number = geometry[:, 2, None], geometry[:, 4, None]
    centre, size = geometry[:, 5:8], geometry[:, 8:11]
    floor, ceiling = BORDER + radius, FRAME_SIDE - BORDER - radius
    low, high = (
        np.maximum(centre - size + radius, floor),
        np.minimum(centre + size - radius, ceiling),
    )
    reach = size + DOOR_MARGIN
    least, most = np.maximum(centre - reach, floor), np.minimum(centre + reach, ceiling)
    middle = (least + most) / 2
    fits = low <= high
    return Doors(
        low=np.where(fits, low, middle),
        high=np.where(fits, high, middle),
        usable=(np.arange(3) < number) & (least <= most),
    )


def waypoint(
    agent: np.ndarray, goal: np.ndarray, geometry: np.ndarray, *, heights: int = 1
) -> np.ndarray:
    """Where to head for now on the way from agent to goal, float64 [B, 2], px.

    Args:
        agent, goal: [B, 2], px.
        geometry: [B, 11], in the order of GEOMETRY.
        heights: 1: cross where the straight line meets the door, the shortest way of all doors.
            n > 1: try n heights per door and take the one with the fewest steps, a step being one
            speed in the larger of the two directions.
    """
    geometry = np.asarray(geometry, np.float64)
    vertical = geometry[:, 0] == 1
    u, v = _turned(agent, vertical)
    goal_u, goal_v = _turned(goal, vertical)
    sign = np.where(goal_u >= 0, 1.0, -1.0)
    u, goal_u = u * sign, goal_u * sign
    reach = geometry[:, 1] // 2 + geometry[:, 2]
    height, found = _crossing(u, v, goal_u, goal_v, geometry, heights)
    inside = np.abs(u) < reach
    before = u <= -reach
    aligned = (u >= -reach - _CLEARANCE - _ALIGNED) & (np.abs(v - height) <= _ALIGNED)
    to_near = before & ~aligned
    # Within one doorway the goal is straight ahead; elsewhere in the wall it is behind its edge.
    in_wall = goal_u < reach
    shared = _share_a_door(v, goal_v, geometry)
    to_far = (inside & ~(in_wall & shared)) | (before & aligned)
    to_goal = ~found | ~(to_near | to_far)
    # A goal inside the wall is entered straight from in front of it, not past another door.
    in_front = to_goal & ~inside & in_wall & ~shared & (np.abs(v - goal_v) > _ALIGNED)
    out_u = np.where(to_near, -reach - _CLEARANCE, reach + _CLEARANCE)
    out_u = np.where(to_goal & ~in_front, goal_u, out_u) * sign + WALL_CENTRE
    out_v = np.where(to_goal, goal_v, height)
    return np.where(vertical[:, None], np.stack([out_u, out_v], 1), np.stack([out_v, out_u], 1))


def need_geometry(observation: object, policy: str) -> np.ndarray:
    """The observation's geometry.

    Raises:
        UsageError: it has none.
    """
    try:
        return np.asarray(observation["geometry"], np.float64)  # type: ignore[index]
    except KeyError:
        raise UsageError(
            f"the policy {policy!r} steers through doors and was not told where they are: observe "
            "the task with the key 'geometry' as well"
        ) from None


def _turned(point: np.ndarray, vertical: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    point = np.asarray(point, np.float64)
    across = np.where(vertical, point[:, 0], point[:, 1]) - WALL_CENTRE
    return across, np.where(vertical, point[:, 1], point[:, 0])


def _share_a_door(v: np.ndarray, goal_v: np.ndarray, geometry: np.ndarray) -> np.ndarray:
    """Whether one door lets a centre through at both heights, bool [B]."""
    centre, reach = geometry[:, 5:8], geometry[:, 8:11] + DOOR_MARGIN
    exists = np.arange(3) < geometry[:, 4, None]
    both = np.maximum(np.abs(v[:, None] - centre), np.abs(goal_v[:, None] - centre)) <= reach
    return np.asarray((exists & both).any(axis=1))


def _crossing(
    u: np.ndarray,
    v: np.ndarray,
    goal_u: np.ndarray,
    goal_v: np.ndarray,
    geometry: np.ndarray,
    heights: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The height to cross at, [B], and whether any door is usable, bool [B]."""
    doors = doors_of(geometry)
    edge = geometry[:, 1] // 2 + geometry[:, 2] + _CLEARANCE
    if heights == 1:
        share = np.clip(-u / np.maximum(goal_u - u, 1e-9), 0, 1)
        straight = (v + share * (goal_v - v))[:, None]
        tried = np.clip(straight, doors.low, doors.high)
        usable = doors.usable
    else:
        grid = np.linspace(0, 1, heights)
        span = doors.high - doors.low
        tried = (doors.low[..., None] + span[..., None] * grid).reshape(len(u), -1)
        usable = np.repeat(doors.usable, heights, axis=1)
    du, dg = (np.abs(u + edge))[:, None], np.abs(goal_u - edge)[:, None]
    inside = (np.abs(u) < edge)[:, None]
    dv, dh = np.abs(tried - v[:, None]), np.abs(tried - goal_v[:, None])
    if heights == 1:
        cost = np.hypot(du, dv) + np.hypot(dg, dh)
    else:
        cost = (np.maximum(du, dv) + np.maximum(dg, dh)) / geometry[:, 3, None]
    # In a doorway the door at hand is the way: leaving it sideways is a jump.
    cost = np.where(inside, dv, cost)
    cost = np.where(usable, cost, np.inf)
    best = np.argmin(cost, axis=1)
    return tried[np.arange(len(u)), best], np.asarray(usable.any(axis=1))
