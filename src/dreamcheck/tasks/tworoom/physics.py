"""TwoRoom's motion, batched, equal to the original's bit for bit.

The original keeps positions as float32 tensors and decides in Python floats. So do we: a
displacement is computed and rounded in float32, bounds and comparisons in float64, and what is
written back is rounded to float32 again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.tasks.tworoom.parameters import (
    BORDER,
    DOOR_MARGIN,
    FRAME_SIDE,
    MAX_DOORS,
    PUSHBACK,
    WALL_CENTRE,
    Layout,
)


@dataclass(frozen=True, slots=True)
class Walls:
    """What motion depends on, derived once per layout; arrays [B] or [1], float64 px.

    low, high: where the border stops a centre. near, far: the wall's two faces, one radius out.
    door_low, door_high: [B, 3], where a centre passes; empty (low > high) for absent doors.
    """

    speed: np.ndarray
    axis: np.ndarray
    low: np.ndarray
    high: np.ndarray
    near: np.ndarray
    far: np.ndarray
    door_low: np.ndarray
    door_high: np.ndarray


def walls_of(layout: Layout) -> Walls:
    """The bounds that a layout's rows put on motion."""
    return walls_from(
        agent_speed=layout.agent_speed,
        agent_radius=layout.agent_radius,
        wall_axis=layout.wall_axis,
        wall_thickness=layout.wall_thickness,
        door_number=layout.door_number,
        door_position=layout.door_position,
        door_size=layout.door_size,
    )


def walls_from(
    *,
    agent_speed: np.ndarray,
    agent_radius: np.ndarray,
    wall_axis: np.ndarray,
    wall_thickness: np.ndarray,
    door_number: np.ndarray,
    door_position: np.ndarray,
    door_size: np.ndarray,
) -> Walls:
    """The bounds that these factors put on motion; each [B] (doors [B, 3]), or one row for all."""
    radius = agent_radius.astype(np.float32).astype(np.float64)
    half = (wall_thickness // 2).astype(np.float64)
    reach = door_size.astype(np.float64) + DOOR_MARGIN
    exists = np.arange(MAX_DOORS) < door_number[:, None]
    return Walls(
        speed=agent_speed.astype(np.float32),
        axis=wall_axis,
        low=BORDER + radius,
        high=FRAME_SIDE - BORDER - radius,
        near=WALL_CENTRE - half - radius,
        far=WALL_CENTRE + half + radius,
        door_low=np.where(exists, door_position - reach, np.inf),
        door_high=np.where(exists, door_position + reach, -np.inf),
    )


def command(agent: np.ndarray, actions: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Where the agent would be with nothing in its way, float32 [B, 2]."""
    bounded = np.clip(np.asarray(actions, np.float32), np.float32(-1), np.float32(1))
    return agent + bounded * speed[:, None]


def advance(agent: np.ndarray, actions: np.ndarray, walls: Walls) -> np.ndarray:
    """The next positions.

    Args:
        agent: float32 [B, 2], px.
        actions: [B, 2], clamped to [-1, 1] here.
        walls: of the same rows, or of one row for all.

    Returns:
        float32 [B, 2], px.
    """
    wanted = command(agent, actions, walls.speed).astype(np.float64)
    # The border comes first; its bound is rounded to float32 before the wall is looked at.
    held = np.clip(wanted, walls.low[:, None], walls.high[:, None]).astype(np.float32)
    vertical = walls.axis == 1
    across_before = np.where(vertical, agent[:, 0], agent[:, 1]).astype(np.float64)
    across = np.where(vertical, held[:, 0], held[:, 1]).astype(np.float64)
    along = np.where(vertical, held[:, 1], held[:, 0]).astype(np.float64)
    from_low = across_before < WALL_CENTRE
    entering = np.where(from_low, across > walls.near, across < walls.far)
    stopped = entering & ~in_door(along, walls)
    if stopped.any():
        put = np.where(from_low, walls.near - PUSHBACK, walls.far + PUSHBACK).astype(np.float32)
        held[:, 0] = np.where(stopped & vertical, put, held[:, 0])
        held[:, 1] = np.where(stopped & ~vertical, put, held[:, 1])
    return held


def in_door(along: np.ndarray, walls: Walls) -> np.ndarray:
    """Whether a centre at this coordinate along the wall passes through some door, bool [B]."""
    passes = (walls.door_low <= along[:, None]) & (along[:, None] <= walls.door_high)
    return np.asarray(passes.any(axis=1))


def distance(agent: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Euclidean distance, float32 [B], px, rounded as the original's float32 norm rounds it.

    That norm squares the first difference in float32 and adds the second's square with one
    rounding (a fused multiply-add); float64 holds that sum before the rounding.
    """
    delta = (agent - target).astype(np.float32)
    first = (delta[:, 0] * delta[:, 0]).astype(np.float64)
    second = delta[:, 1].astype(np.float64) ** 2
    return np.sqrt((first + second).astype(np.float32))
