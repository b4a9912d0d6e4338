"""Success rules as data: wrapped and symmetric angles, first hit, hold, at the end."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import UsageError
from dreamcheck.tasks.criteria import criteria_names, load_criteria, read_criteria
from dreamcheck.tasks.tworoom import TwoRoom

COLUMNS = ("agent_x", "agent_y")


def test_every_task_has_a_native_rule():
    for name in criteria_names():
        assert "native" in load_criteria(name).success
    with pytest.raises(UsageError, match="'chess'"):
        load_criteria("chess")


def test_the_native_rule_is_the_simulators_own_test():
    task = TwoRoom()
    state = task.reset(None, range(200))
    goal = task.observe(state, ("goal",))["goal"]
    near = task.with_state(
        state, np.clip(goal + np.linspace(-17, 17, 200)[:, None] * [0.9, 0.3], 0, 223)
    )
    rule = load_criteria("tworoom").rule("native")
    seen = task.observe(near, ("state",))["state"]
    assert np.array_equal(rule.satisfied(seen, goal, COLUMNS), task.succeeded(near))


def test_the_tolerance_is_strict():
    rule = load_criteria("tworoom").rule("native")
    states = np.array([[16.0, 0.0], [15.999, 0.0]])
    assert rule.satisfied(states, np.zeros((2, 2)), COLUMNS).tolist() == [False, True]


def test_first_hit_hold_and_end_are_three_numbers():
    criteria = load_criteria("tworoom")
    seen = np.array(
        [
            [0, 1, 0, 1, 1, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
        bool,
    )
    assert criteria.rule("native").first_success(seen).tolist() == [2, 9, -1]
    # Held for five: steps 4 to 8.
    assert criteria.rule("held").first_success(seen).tolist() == [8, -1, -1]
    assert criteria.rule("at_end").first_success(seen).tolist() == [-1, 9, -1]


def test_angles_wrap_and_a_symmetry_is_a_shorter_period(tmp_path):
    wrapped = load_criteria("reacher").rule("wrapped")
    plain = load_criteria("reacher").rule("native")
    names = ("qpos[0]", "qpos[1]")
    state, goal = np.array([[3.13, 0.0]]), np.array([[-3.13, 0.0]])
    # Across pi the joints are 2 pi - 6.26 = 0.0232 rad apart.
    assert wrapped.distance(state, goal, names)[0] == pytest.approx(0.0232, abs=1e-4)
    assert wrapped.satisfied(state, goal, names)[0] and not plain.satisfied(state, goal, names)[0]
    path = tmp_path / "square.toml"
    path.write_text(
        "task = 'x'\n[success.native]\n[[success.native.parts]]\ncolumns = ['angle']\n"
        "tolerance = 0.1\nunit = 'rad'\nperiod = 1.5707963267948966\n"
    )
    square = read_criteria(path).rule("native")
    assert square.satisfied(np.array([[1.6]]), np.array([[0.0]]), ("angle",))[0]


def test_the_agent_can_be_left_out_of_pusht():
    criteria = load_criteria("pusht")
    names = ("agent_x", "agent_y", "block_x", "block_y", "block_angle")
    state = np.array([[300.0, 0, 10, 10, 6.2]])
    goal = np.zeros((1, 5))
    assert criteria.rule("block_only").satisfied(state, goal, names)[0]
    assert not criteria.rule("native").satisfied(state, goal, names)[0]


def test_unknown_fields_rules_and_columns_are_named(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("task = 'x'\nradius = 3\n[success]\n")
    with pytest.raises(UsageError, match="radius"):
        read_criteria(path)
    with pytest.raises(UsageError, match="'closest'"):
        load_criteria("tworoom").rule("closest")
    with pytest.raises(UsageError, match="agent_x"):
        load_criteria("tworoom").rule("native").satisfied(
            np.zeros((1, 1)), np.zeros((1, 1)), ("block_x",)
        )
