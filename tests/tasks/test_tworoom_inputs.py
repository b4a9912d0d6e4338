"""TwoRoom's typed inputs, prefixes and validity rules."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dreamcheck.errors import SpecificationError
from dreamcheck.tasks.tworoom import PREFIX_TEMPLATES, TwoRoom
from dreamcheck.tasks.tworoom.parameters import FACTORS


@pytest.fixture
def task():
    return TwoRoom()


def test_an_empty_input_is_the_environment_s_declared_initial_state(task):
    state = task.reset([{}], [0])
    assert state.agent.tolist() == [[60.0, 112.0]] and state.target.tolist() == [[164.0, 112.0]]
    # axis vertical, thickness 10, radius 7, speed 5, one door; centres 49, half-extents 14.
    geometry = task.observe(state, ("geometry",))["geometry"]
    assert geometry.tolist() == [[1, 10, 7, 5, 1, 49, 49, 49, 14, 14, 14]]


def test_every_coordinate_sets_its_own_factor(task):
    state = task.reset(
        [
            {"door.number": 2, "door.position": 30, "door.position.1": 100, "door.position.2": 200},
            {"door.size": 20, "wall.axis": 0, "wall.thickness": 41, "agent.speed": 10.5},
            {"agent.radius": 8.5, "agent.color": "blue", "wall.color": "#0102Ff"},
        ],
        [0, 0, 0],
    )
    geometry = task.observe(state, ("geometry",))["geometry"]
    assert geometry[0].tolist() == [1, 10, 7, 5, 2, 30, 100, 200, 14, 14, 14]
    assert geometry[1].tolist() == [0, 41, 7, 10.5, 1, 49, 49, 49, 20, 20, 20]
    assert geometry[2].tolist() == [1, 10, 8.5, 5, 1, 49, 49, 49, 14, 14, 14]
    assert state.layout.agent_colour.tolist() == [[255, 0, 0], [255, 0, 0], [0, 0, 255]]
    assert state.layout.wall_colour[2].tolist() == [1, 2, 255]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"wall.colour": "red"}, r"inputs\[1\] has the coordinate 'wall.colour' = 'red'"),
        ({"start_x": 13.9}, r"start_x = 13.9 is outside its domain \[14, 209\]"),
        ({"goal_y": float("nan")}, "goal_y = nan is outside its domain"),
        ({"start_x": "20"}, "start_x = '20' must be a number"),
        ({"wall.axis": 0.5}, r"wall.axis = 0.5 is outside its domain: an integer in \[0, 1\]"),
        ({"door.number": True}, "door.number = True must be a number"),
        ({"agent.speed": 11}, r"agent.speed = 11 is outside its domain \[1.75, 10.5\]"),
        ({"agent.color": "mauve"}, "agent.color = 'mauve' .* a name of red, .* or \"#rrggbb\""),
        ({"agent.color": 3}, "agent.color = 3 is outside its domain"),
        ({"prefix": "sideways"}, "prefix = 'sideways' is not one of hold, right"),
    ],
)
def test_an_input_that_cannot_be_is_refused_by_name_value_and_domain(task, row, message):
    with pytest.raises(SpecificationError, match=message):
        task.reset([{}, row], [0, 0])


def test_seeds_that_are_not_seeds_are_refused(task):
    for seed in (-1, 1.5, True):
        with pytest.raises(SpecificationError, match="is not a seed"):
            task.reset(None, [seed])
    with pytest.raises(SpecificationError, match="one seed per input"):
        task.reset([{}], [0, 1])


def test_a_start_inside_the_wall_is_accepted(task):
    assert task.reset([{"start_x": 112.0}], [0]).agent[0, 0] == 112


def test_prefixes_have_ten_steps_of_their_template(task):
    inputs = [{"prefix": name} for name in PREFIX_TEMPLATES]
    actions = task.prefix(inputs, len(inputs))
    assert actions.shape == (9, 10, 2)
    assert (actions == actions[:, :1]).all()
    by_name = dict(zip(PREFIX_TEMPLATES, actions[:, 0], strict=True))
    assert by_name["hold"].tolist() == [0, 0] and by_name["up"].tolist() == [0, -1]
    assert by_name["down-left"] == pytest.approx([-(0.5**0.5), 0.5**0.5])
    speeds = np.linalg.norm(actions[:, 0], axis=1)
    assert speeds == pytest.approx([0.0] + [1.0] * 8)


def test_inputs_without_prefixes_have_none_and_a_mixture_is_refused(task):
    assert task.prefix(None, 3).shape == (3, 0, 2)
    assert task.prefix([{"start_x": 20.0}], 1).shape == (1, 0, 2)
    with pytest.raises(SpecificationError, match=r"inputs\[1\] has no prefix"):
        task.prefix([{"prefix": "up"}, {}], 2)


def test_rules_agree_with_the_simulator_row_by_row(task, random_inputs):
    inputs = random_inputs(1500, seed=9)
    columns = {name: np.array([row[name] for row in inputs]) for name in inputs[0]}
    state = task.reset(inputs, [0] * len(inputs))
    zero = np.zeros((len(inputs), 2))
    still = (task.step(state, zero).agent == state.agent).all(axis=1)
    rules = task.rules()
    np.testing.assert_array_equal(rules["still_start"](columns), still)
    goal = task.with_state(state, state.target)
    stands = (task.step(goal, zero).agent == goal.agent).all(axis=1)
    reachable = rules["goal_reachable"](columns)
    assert not (reachable & ~stands).any()
    fits = [row["door.size"] >= 1.1 * row["agent.radius"] for row in inputs]
    np.testing.assert_array_equal(rules["door_fits"](columns), fits)
    assert 0.2 < still.mean() < 0.9 and 0.2 < reachable.mean() < 0.9


def test_a_goal_behind_a_wall_without_a_passable_door_is_unreachable(task):
    columns = {
        # A door at y 0 to 8 lies outside the arena (centres stay within 21 to 203).
        "door.position": np.array([4, 4, 49]),
        "door.size": np.array([4, 4, 14]),
        "start_x": np.array([40.0, 40.0, 40.0]),
        "goal_x": np.array([180.0, 60.0, 180.0]),
    }
    assert task.rules()["goal_reachable"](columns).tolist() == [False, True, True]


def test_missing_columns_take_initial_values(task):
    columns = {"start_x": np.array([20.0, 21.0, 99.0, 105.0]), "start_y": np.full(4, 100.0)}
    # The border holds centres at 21 and more; the wall's reach begins at 100.
    assert task.rules()["still_start"](columns).tolist() == [False, True, True, False]
    assert task.rules()["goal_reachable"](columns).tolist() == [True] * 4
    assert task.rules()["door_fits"](columns).tolist() == [True] * 4


def test_rules_take_a_million_rows(task):
    rng = np.random.default_rng(0)
    n = 10**6
    columns = {"start_x": rng.uniform(14, 209, n), "start_y": rng.uniform(14, 209, n)}
    columns["agent.speed"] = rng.uniform(2, 10, n)
    started = time.process_time()
    masks = [rule(columns) for rule in task.rules().values()]
    # Not a timed test: only a loop over rows would come anywhere near this.
    assert time.process_time() - started < 10
    assert all(m.shape == (n,) and m.dtype == bool for m in masks)


def test_every_factor_s_initial_value_is_in_its_own_domain(task):
    initial = {name: factor.initial for name, factor in FACTORS.items()}
    plain, named = task.reset([{}], [0]), task.reset([initial], [0])
    for name in ("agent_speed", "door_position", "agent_colour", "wall_colour", "render_target"):
        np.testing.assert_array_equal(getattr(plain.layout, name), getattr(named.layout, name))
