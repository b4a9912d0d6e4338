"""Routes: a disc has a width, and legal physics respects it."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import UsageError
from dreamcheck.planning.routes import (
    SweptTwoRoom,
    clearance,
    illegal_steps,
    wall_boxes,
    with_collision,
)
from dreamcheck.tasks.tworoom import TwoRoom


def layout(n=1):
    return TwoRoom().reset(None, [0] * n).layout


def test_the_wall_is_solid_above_and_below_its_door():
    low, high = wall_boxes(layout())
    # Declared layout: wall 107-117, door 35-63.
    assert low[0, 0].tolist() == [107, 0] and high[0, 0].tolist() == [117, 35]
    assert low[0, 1].tolist() == [107, 63] and high[0, 1].tolist() == [117, 224]


def test_overlapping_doors_leave_no_wall_between_them():
    inputs = [{"door.number": 2, "door.position": 49, "door.position.1": 60}]
    low, high = wall_boxes(TwoRoom().reset(inputs, [0]).layout)
    solid = [(a, b) for (_, a), (_, b) in zip(low[0], high[0], strict=True) if a <= b]
    assert solid == [(0.0, 35.0), (74.0, 224.0)]


def test_clearance_is_the_distance_to_the_wall_minus_the_radius():
    points = np.array([[[112.0, 49.0], [112.0, 42.0], [112.0, 41.0], [100.0, 120.0]]])
    # Door middle: 14 to each edge, minus 7. A disc passes legally within 42-56.
    assert clearance(points, layout())[0].tolist() == [7.0, 0.0, -1.0, 0.0]


def test_a_step_through_the_doors_edge_is_illegal_and_one_through_its_middle_is_not():
    edge = np.array([[[108.0, 62.0], [99.5, 67.0]]])
    middle = np.array([[[104.0, 49.0], [109.0, 49.0]]])
    along = np.array([[[99.5, 100.0], [99.5, 105.0]]])
    assert [bool(illegal_steps(p, layout())[0, 0]) for p in (edge, middle, along)] == [
        True,
        False,
        False,
    ]


def test_steps_after_a_row_has_stopped_are_legal():
    path = np.full((1, 4, 2), np.nan)
    path[0, :2] = [[50.0, 50.0], [52.0, 50.0]]
    assert not illegal_steps(path, layout()).any()


def wander(task, n=400, steps=40):
    rng = np.random.default_rng(0)
    state = task.reset(None, range(n))
    state = task.with_state(state, np.stack([rng.uniform(90, 134, n), rng.uniform(21, 90, n)], 1))
    legal = clearance(state.agent[:, None], state.layout)[:, 0] >= 0
    drift = rng.uniform(-1, 1, (n, 2))
    path = [state.agent]
    for _ in range(steps):
        state = task.step(state, np.clip(drift + 0.3 * rng.normal(size=(n, 2)), -1, 1))
        path.append(state.agent)
    return np.stack(path, axis=1)[legal], state.layout.take(np.flatnonzero(legal))


def test_legal_physics_allows_no_illegal_step_and_the_native_physics_many():
    native, rows = wander(TwoRoom())
    assert illegal_steps(native, rows).any(axis=1).mean() > 0.1
    swept, rows = wander(SweptTwoRoom())
    assert not illegal_steps(swept, rows).any()
    assert clearance(swept, rows).min() > -0.01


def test_legal_physics_equals_the_native_one_away_from_the_wall():
    rng = np.random.default_rng(1)
    start = np.stack([rng.uniform(21, 90, 200), rng.uniform(21, 203, 200)], axis=1)
    one, two = TwoRoom(), SweptTwoRoom()
    action = rng.uniform(-1, 1, (200, 2))
    a = one.step(one.with_state(one.reset(None, range(200)), start), action)
    b = two.step(two.with_state(two.reset(None, range(200)), start), action)
    assert np.array_equal(a.agent, b.agent)
    assert two.version != one.version


def test_swept_collision_is_tworooms_own():
    assert isinstance(with_collision(TwoRoom(), "swept"), SweptTwoRoom)

    class Other:
        name = "other"

    with pytest.raises(UsageError, match="collision = 'swept'"):
        with_collision(Other(), "swept")
