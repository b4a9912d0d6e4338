"""TwoRoom's motion and measurements: hand-worked steps and laws."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Task
from dreamcheck.tasks.tworoom import TwoRoom


@pytest.fixture
def task():
    return TwoRoom()


def at(task, x, y, **variation):
    values = {"start_x": x, "start_y": y, "goal_x": 180.0, "goal_y": 180.0}
    return task.reset([values | {k.replace("__", "."): v for k, v in variation.items()}], [0])


def one(task, state, action):
    actions = np.array([action], np.float32)
    after = task.step(state, actions)
    return after.agent[0].tolist(), {
        k: v[0].item() for k, v in task.measure(state, actions, after).items()
    }


def test_tworoom_is_a_task(task):
    assert isinstance(task, Task)


def test_an_unblocked_step_is_speed_times_action(task):
    position, measured = one(task, at(task, 50, 60), (1, -0.5))
    assert position == [55.0, 57.5]  # speed 5
    assert measured["path"] == pytest.approx(5 * np.hypot(1, 0.5))
    assert not measured["contact"] and measured["discontinuity"] == 0
    # From (50, 60) to (55, 57.5), target (180, 180).
    assert measured["progress"] == pytest.approx(np.hypot(130, 120) - np.hypot(125, 122.5))


def test_actions_beyond_the_box_are_clamped(task):
    assert one(task, at(task, 50, 60), (3, -7))[0] == [55.0, 55.0]


def test_the_wall_stops_an_agent_half_a_pixel_before_its_reach(task):
    # Half-thickness 5 and radius 7: the reach is 100, so 99.5. Sliding along y goes on.
    position, measured = one(task, at(task, 98, 120), (1, 1))
    assert position == [99.5, 125.0] and measured["contact"]
    assert measured["discontinuity"] == 0
    assert one(task, at(task, 126, 120), (-1, 0))[0] == [124.5, 120.0]


@pytest.mark.parametrize(
    ("y", "passes"), [(33.25, True), (33.125, False), (64.75, True), (64.875, False)]
)
def test_a_door_lets_centres_through_with_a_margin_of_1_75(task, y, passes):
    # Door centre 49, half-extent 14, margin 1.75: 33.25 to 64.75, ends included.
    position, _ = one(task, at(task, 98, y), (1, 0))
    assert position == [103.0 if passes else 99.5, y]


def test_leaving_the_doorway_sideways_teleports(task):
    # spec/protocol.md section 1.
    position, measured = one(task, at(task, 108, 62), (0, 1))
    assert position == [99.5, 67.0]
    # |dp| = hypot(8.5, 5) = 9.8615, the action explains 5.
    assert measured["discontinuity"] == pytest.approx(np.hypot(8.5, 5) - 5)
    assert measured["contact"]


def test_a_horizontal_wall_is_the_vertical_one_with_x_and_y_swapped(task, random_inputs):
    inputs = [row | {"wall.axis": 1} for row in random_inputs(200)]
    swapped = [
        row
        | {"wall.axis": 0, "start_x": row["start_y"], "start_y": row["start_x"]}
        | {"goal_x": row["goal_y"], "goal_y": row["goal_x"]}
        for row in inputs
    ]
    a, b = task.reset(inputs, [0] * 200), task.reset(swapped, [0] * 200)
    rng = np.random.default_rng(1)
    for _ in range(40):
        actions = rng.uniform(-1, 1, (200, 2))
        a, b = task.step(a, actions), task.step(b, actions[:, ::-1])
        np.testing.assert_array_equal(a.agent, b.agent[:, ::-1])


def test_sixty_of_400_default_resets_are_moved_by_a_zero_action_by_up_to_6_5_px(task):
    # spec/protocol.md section 1, seeds 0 to 399.
    state = task.reset(None, list(range(400)))
    zero = np.zeros((400, 2))
    measured = task.measure(state, zero, task.step(state, zero))
    assert (measured["path"] > 0).sum() == 60
    assert 6.4 < measured["path"].max() < 6.6
    # A zero action explains nothing: all of it is the environment's doing.
    np.testing.assert_array_equal(measured["discontinuity"], measured["path"])


def test_success_is_strictly_below_16_px(task):
    state = task.reset(None, [0, 1])
    state = task.with_goal(state, np.full((2, 2), 100.0))
    state = task.with_state(state, np.array([[116.0, 100.0], [115.99, 100.0]]))
    assert task.distance(state)[0] == 16
    assert task.succeeded(state).tolist() == [False, True]


def test_a_row_depends_on_itself_only(task, random_inputs):
    inputs = random_inputs(100)
    rng = np.random.default_rng(2)
    actions = rng.uniform(-1.2, 1.2, (30, 100, 2))
    batch = task.reset(inputs, [0] * 100)
    single = task.reset([inputs[37]], [0])
    for chosen in actions:
        batch, single = task.step(batch, chosen), task.step(single, chosen[37:38])
    keys = ("pixels", "state", "goal", "geometry", "step")
    together = task.observe(batch, keys, image_size=56)
    for key, value in task.observe(single, keys, image_size=56).items():
        np.testing.assert_array_equal(value[0], together[key][37])


def test_a_branch_goes_the_same_way_and_leaves_its_origin_alone(task, random_inputs):
    rng = np.random.default_rng(3)
    state = task.reset(random_inputs(50), [0] * 50)
    state = task.step(state, rng.uniform(-1, 1, (50, 2)))
    index = np.array([7, 7, 31, 0])
    kept, copy = state.agent.copy(), task.branch(state, index)
    for _ in range(20):
        actions = rng.uniform(-1, 1, (50, 2))
        state, copy = task.step(state, actions), task.step(copy, actions[index])
        np.testing.assert_array_equal(copy.agent, state.agent[index])
    a, b = (task.observe(s, ("pixels", "step"), image_size=32) for s in (state, copy))
    np.testing.assert_array_equal(a["pixels"][index], b["pixels"])
    assert b["step"].tolist() == [21] * 4
    copy.agent[:] = 0
    assert not np.array_equal(kept, state.agent) and (state.agent > 0).all()


def test_a_step_leaves_its_argument_as_it_was(task):
    state = task.reset(None, [5])
    before = state.agent.copy()
    task.step(state, np.ones((1, 2)))
    np.testing.assert_array_equal(state.agent, before)


def test_ordinary_moves_have_no_discontinuity_and_jumps_have(task, random_inputs):
    rng = np.random.default_rng(4)
    inputs = random_inputs(2000)
    columns = {k: np.array([row[k] for row in inputs]) for k in inputs[0]}
    inputs = [r for r, ok in zip(inputs, task.rules()["still_start"](columns), strict=True) if ok]
    state = task.reset(inputs, [0] * len(inputs))
    jumps = 0
    for _ in range(60):
        actions = rng.uniform(-1, 1, (len(inputs), 2))
        after = task.step(state, actions)
        measured = task.measure(state, actions, after)
        jumped = measured["discontinuity"] > 0
        # From a valid start only a doorway's edge moves more than the wall's pushback of 0.5 px.
        walls = state.walls
        across = np.where(walls.axis == 1, state.agent[:, 0], state.agent[:, 1])
        in_doorway = (across > walls.near) & (across < walls.far)
        assert (measured["discontinuity"][~in_doorway] < 0.501).all()
        assert not (jumped & ~measured["contact"]).any()
        jumps += int((measured["discontinuity"] > 0.501).sum())
        state = after
    assert jumps > 20


def test_wrong_shapes_nan_actions_and_positions_off_the_picture_are_refused(task):
    state = task.reset(None, [0, 1])
    with pytest.raises(UsageError, match=r"shape \(2, 10\)"):
        task.step(state, np.zeros((2, 10)))
    with pytest.raises(UsageError, match=r"actions\[1, 0\] is NaN"):
        task.step(state, np.array([[0, 0], [np.nan, 0]]))
    with pytest.raises(UsageError, match="off the picture"):
        task.with_state(state, np.array([[0.1, 0.2], [-0.3, 0.5]]))
    with pytest.raises(UsageError, match="no observation 'depth'"):
        task.observe(state, ("depth",))
