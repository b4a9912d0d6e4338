from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import SpecificationError, UsageError
from dreamcheck.imagination.futures import Horizons, collect, replay
from dreamcheck.tasks.tworoom import TwoRoom
from dreamcheck.tasks.tworoom.policies import GoalSeeking

INPUT = {"start_x": 40, "start_y": 100, "goal_x": 80, "goal_y": 160, "prefix": "right"}
OTHER = {"start_x": 156, "start_y": 52, "goal_x": 36, "goal_y": 160, "prefix": "hold"}


def test_a_rollout_has_the_declared_lengths():
    h = Horizons(history=3, forecast=4, frameskip=5)
    f = collect(TwoRoom(), GoalSeeking(), [INPUT], [7], horizons=h, image_size=56)
    assert h.steps == 30 and h.observed_steps == 10
    assert f.actions.shape == (1, 30, 2) and f.states.shape == (1, 31, 2)
    assert f.frames.shape == (1, 7, 3, 56, 56) and f.frame_states.shape == (1, 7, 2)


def test_the_prefix_is_executed_before_the_policy():
    h = Horizons(history=3, forecast=1, frameskip=5)
    f = collect(TwoRoom(), GoalSeeking(), [INPUT], [7], horizons=h)
    # "right" is (1, 0) for ten steps of 5 px: from x = 40 to 90, short of the wall at 100.
    assert np.allclose(f.actions[0, :10], [1, 0])
    assert np.allclose(f.states[0, 10], [90, 100])
    assert not np.allclose(f.actions[0, 10], [1, 0])


def test_a_row_is_the_same_alone_and_among_others():
    h = Horizons(history=2, forecast=3, frameskip=5)
    together = collect(TwoRoom(), GoalSeeking(), [INPUT, OTHER, INPUT], [3, 4, 5], horizons=h)
    alone = collect(TwoRoom(), GoalSeeking(), [OTHER], [4], horizons=h)
    assert np.array_equal(together.actions[1], alone.actions[0])
    assert np.array_equal(together.states[1], alone.states[0])


def test_a_seed_means_something_although_the_simulator_is_deterministic():
    h = Horizons(history=2, forecast=3, frameskip=5)
    f = collect(TwoRoom(), GoalSeeking(), [INPUT, INPUT, INPUT], [3, 4, 3], horizons=h)
    assert not np.array_equal(f.states[0], f.states[1])
    assert np.array_equal(f.states[0], f.states[2])


def test_replaying_the_recorded_actions_gives_the_recorded_states():
    h = Horizons(history=2, forecast=3, frameskip=5)
    task = TwoRoom()
    f = collect(task, GoalSeeking(), [INPUT, OTHER], [3, 4], horizons=h)
    again = replay(task, f.at_history, f.actions[:, h.observed_steps :])
    assert np.array_equal(again, f.states[:, h.observed_steps :])


def test_a_prefix_longer_than_the_rollout_is_refused():
    h = Horizons(history=1, forecast=1, frameskip=5)
    with pytest.raises(SpecificationError, match="prefix has 10 steps"):
        collect(TwoRoom(), GoalSeeking(), [INPUT], [7], horizons=h)


def test_one_seed_per_input():
    h = Horizons(history=1, forecast=3, frameskip=5)
    with pytest.raises(UsageError, match="1 inputs but 2 seeds"):
        collect(TwoRoom(), GoalSeeking(), [INPUT], [7, 8], horizons=h)
