"""PushT through stable-worldmodel: exact branches, both success criteria, workers that die."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

pytest.importorskip("stable_worldmodel.envs.pusht.env", reason="needs the [swm] extra")

from dreamcheck.errors import SpecificationError, UsageError
from dreamcheck.imagination.futures import Horizons, collect
from dreamcheck.streams import RowStreams
from dreamcheck.tasks import get_task
from dreamcheck.tasks.pusht import PushT, Weak
from dreamcheck.tasks.pusht.simulator import Origin, Simulators, _advance
from dreamcheck.tasks.pusht.task import folded
from dreamcheck.tasks.pusht.workers import SimulatorDied, Workers
from dreamcheck.testing.task import check_task

pytestmark = pytest.mark.swm

INPUT = dict(agent_x=96, agent_y=96, block_x=256, block_y=256, goal_x=416, goal_y=96)


@pytest.fixture(scope="module")
def task():
    return PushT(workers=0)


def rolled(task, state, steps, *, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        state = task.step(state, rng.uniform(-1, 1, (len(state), 2)).astype(np.float32))
    return state


def test_it_keeps_the_contract_of_a_task(task):
    check_task(task, seeds=range(4), steps=8)


def test_a_default_reset_is_the_environments_own(task):
    gym = pytest.importorskip("gymnasium")
    from stable_worldmodel.envs.pusht.env import PushT as Original

    assert gym is not None
    env = Original()
    env.reset(seed=7)
    state = task.reset(None, [7])
    rng = np.random.default_rng(1)
    for _ in range(10):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        theirs = env.step(action)
        state = task.step(state, action[None])
        assert np.array_equal(state.values[0], theirs[0]["state"])
        assert bool(task.succeeded(state)[0]) == bool(theirs[2])
        assert state.contacts[0] == theirs[-1]["n_contacts"]


def test_a_branch_replays_from_seed_and_prefix_with_difference_zero(task):
    middle = rolled(task, task.reset(None, [3, 4]), 12)
    twice = task.branch(middle, np.array([1, 1, 0]))
    a = rolled(task, twice, 6, seed=5)
    b = rolled(task, task.branch(middle, np.array([1, 1, 0])), 6, seed=5)
    assert np.array_equal(a.values, b.values)
    # An older state steps as if nothing had happened since.
    first = task.step(middle, np.full((2, 2), 0.3))
    rolled(task, first, 3)
    assert np.array_equal(task.step(middle, np.full((2, 2), 0.3)).values, first.values)


def test_a_drawn_pose_is_the_picture_the_simulator_would_have_drawn():
    simulators = Simulators()
    simulators.build(0, Origin(3), np.zeros((0, 2), np.float32))
    env = simulators._live[0]
    rng = np.random.default_rng(0)
    for _ in range(12):
        _advance(env, rng.uniform(-1, 1, 2))
        assert np.array_equal(type(env).render(env), simulators.draw(env._get_obs()[None, :5])[0])


def test_small_pictures_are_the_block_means_of_the_large_one():
    frames = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), np.uint8)
    for fold in (1, 2, 4):
        side = 224 // fold
        blocks = frames.reshape(3, side, fold, side, fold, 3).astype(np.float64)
        assert np.array_equal(folded(frames, fold), np.round(blocks.mean(axis=(2, 4))))
    # 0, 1, 1 and 0 of a block sum to 2 / 4: half to even is 0; 1, 1, 2 and 2 give 2, not 1.5.
    block = np.array([[0, 1], [1, 0]], np.uint8)[None, :, :, None].repeat(3, axis=3)
    assert folded(block, 2).ravel().tolist() == [0, 0, 0]
    assert (
        folded(np.array([[1, 1], [2, 2]], np.uint8)[None, :, :, None].repeat(3, axis=3), 2)[
            0, 0, 0, 0
        ]
        == 2
    )


def test_inputs_place_agent_block_and_goal_and_leave_the_angle_to_the_seed(task):
    state = task.reset([INPUT, INPUT], [0, 1])
    assert np.allclose(state.values[0, :4], [96, 96, 256, 256], atol=3)  # one physics step
    assert np.array_equal(state.goal[:, 2:4], [[416, 96], [416, 96]])
    assert state.values[0, 4] != state.values[1, 4]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**INPUT, "agent_x": 700}, "agent_x = 700 is outside its domain"),
        ({"door": 1}, "which PushT does not know"),
        ({"agent_x": 96}, "gives agent_x alone"),
    ],
)
def test_a_bad_coordinate_is_named(task, row, words):
    with pytest.raises(SpecificationError, match=words):
        task.reset([row], [0])


def test_success_without_the_agent_is_wider_than_the_environments(task):
    state = task.reset(None, range(40))
    goal = state.goal.copy()
    goal[:, 2:5] = state.values[:, 2:5]  # the block stands on its goal, the agent does not
    from dataclasses import replace

    moved = replace(state, goal=goal)
    assert task.succeeded_without_agent(moved).all()
    assert not task.succeeded(moved).all()


def test_progress_sums_to_the_share_of_the_block_goal_distance_that_was_won(task):
    states = [task.reset(None, range(6))]
    rngs = RowStreams.of(0, "policy", range(6))
    total = np.zeros(6)
    for _ in range(30):
        seen = task.observe(states[-1], ("state", "goal"))
        action = Weak().act(seen, rngs)
        states.append(task.step(states[-1], action))
        total += task.measure(states[-2], action, states[-1])["progress"]
    last = states[-1]
    g = np.linalg.norm(last.values[:, 2:4] - last.goal[:, 2:4], axis=1) / last.first_distance
    assert np.allclose(total, 1 - g)


def test_the_weak_policy_touches_the_block(task):
    futures = collect(task, Weak(), None, range(12), horizons=Horizons(3, 3, 5))
    assert futures.measures["contact"].sum(axis=1).mean() > 5
    assert futures.measures["path"].sum(axis=1).mean() > 20


def test_the_version_names_the_appearance(task):
    assert task.appearance in task.version and "stable-worldmodel" in task.package_version


def test_the_registry_knows_it_and_workers_change_nothing():
    many, one = PushT(workers=2), get_task("pusht")
    a = rolled(many, many.reset(None, range(5)), 6)
    b = rolled(one, one.reset(None, range(5)), 6)
    assert np.array_equal(a.values, b.values)
    assert np.array_equal(
        many.observe(a, ("pixels",), image_size=56)["pixels"],
        one.observe(b, ("pixels",), image_size=56)["pixels"],
    )
    # A worker that dies is replaced, and its episodes are replayed: nothing changes.
    os.kill(many._pool._processes[1].pid, signal.SIGKILL)
    a, b = rolled(many, a, 4, seed=9), rolled(one, b, 4, seed=9)
    assert many._pool.deaths == 1 and np.array_equal(a.values, b.values)
    many.close()


def test_a_worker_that_dies_twice_on_an_episode_is_an_error_that_names_the_seed(monkeypatch):
    workers = Workers(1)
    monkeypatch.setattr(Workers, "_receive", lambda self, worker: None)
    monkeypatch.setattr(Workers, "_send", lambda self, worker, message: None)
    workers._last_code = -11
    with pytest.raises(SimulatorDied, match=r"died twice \(exit code -11\).*seeds 42"):
        workers.build([(0, Origin(42), np.zeros((3, 2), np.float32))])


def test_nan_actions_are_refused(task):
    with pytest.raises(UsageError, match="actions\\[0, 1\\] is NaN"):
        task.step(task.reset(None, [0]), np.array([[0.0, np.nan]]))
