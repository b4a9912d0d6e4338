"""TwoRoom's policies: they arrive, they keep to their streams, and the data cover the arena."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.errors import UsageError
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.protocol import Policy
from dreamcheck.tasks.tworoom import Exploratory, GoalSeeking, Oracle, Random, TwoRoom, Zero

KEYS = ("state", "goal", "geometry", "step")


def roll(task, state, policy, steps, *, identities=None):
    rngs = RowStreams.of(0, "policy", identities or list(range(len(state))))
    arrived = np.full(len(state), -1)
    states, actions = [state.agent], []
    for t in range(steps):
        actions.append(policy.act(task.observe(state, KEYS), rngs))
        state = task.step(state, actions[-1])
        arrived = np.where((arrived < 0) & task.succeeded(state), t + 1, arrived)
        states.append(state.agent)
    return arrived, np.stack(states, axis=1), np.stack(actions, axis=1)


@pytest.mark.parametrize("policy", [Oracle(), GoalSeeking(noise=0.0), GoalSeeking(noise=0.5)])
def test_every_default_reset_is_solved(policy):
    task = TwoRoom()
    arrived, _, _ = roll(task, task.reset(None, list(range(400))), policy, 120)
    assert (arrived > 0).all()


def test_the_oracle_arrives_under_every_valid_variation(random_inputs):
    task = TwoRoom()
    inputs = random_inputs(2000, seed=3)
    columns = {name: np.array([row[name] for row in inputs]) for name in inputs[0]}
    valid = np.logical_and.reduce([rule(columns) for rule in task.rules().values()])
    inputs = [row for row, ok in zip(inputs, valid, strict=True) if ok]
    assert len(inputs) > 250
    arrived, _, _ = roll(task, task.reset(inputs, [0] * len(inputs)), Oracle(), 250)
    missed = [inputs[i] for i in np.flatnonzero(arrived < 0)]
    assert not missed, missed[0]


def test_the_oracle_is_near_the_lower_bound_on_steps():
    # max(|dx|, |dy|) / speed within one room; a waypoint may cost one more (spec/protocol.md S14).
    task = TwoRoom()
    values = {"start_x": 30.0, "start_y": 40.0, "goal_x": 90.0, "goal_y": 190.0}
    arrived, _, _ = roll(task, task.reset([values], [0]), Oracle(), 60)
    # 150 px at 5 px a step is 30; success comes 16 px early.
    assert 26 <= arrived[0] <= 30


def test_the_oracle_never_teleports():
    task = TwoRoom()
    state = task.reset(None, list(range(400)))
    zero = np.zeros((400, 2))
    state = task.branch(state, np.flatnonzero((task.step(state, zero).agent == state.agent).all(1)))
    rngs = RowStreams.of(0, "policy", list(range(len(state))))
    for _ in range(80):
        chosen = Oracle().act(task.observe(state, KEYS), rngs)
        after = task.step(state, chosen)
        running = ~task.succeeded(state)
        assert not (task.measure(state, chosen, after)["discontinuity"][running] > 0).any()
        state = after


@pytest.mark.parametrize("policy", [Zero(), Random(), GoalSeeking(), Oracle(), Exploratory()])
def test_a_row_s_actions_do_not_depend_on_its_batch_mates(policy):
    assert isinstance(policy, Policy)
    task = TwoRoom()
    seeds = list(range(40))
    _, _, together = roll(task, task.reset(None, seeds), policy, 300, identities=seeds)
    _, _, alone = roll(task, task.reset(None, seeds[11:12]), policy, 300, identities=seeds[11:12])
    np.testing.assert_array_equal(alone[0], together[11])
    assert together.dtype == np.float32 and np.abs(together).max() <= 1


def test_digests_follow_parameters():
    assert GoalSeeking(noise=0.1).digest == GoalSeeking(noise=0.1).digest
    policies = [Zero(), Random(), GoalSeeking(noise=0.1), GoalSeeking(noise=0.2), Oracle()]
    policies += [Exploratory(), Exploratory(noise=0.1)]
    assert len({p.digest for p in policies}) == len(policies)


def test_exploration_covers_both_rooms_rests_and_holds():
    task = TwoRoom()
    _, states, actions = roll(task, task.reset(None, list(range(300))), Exploratory(), 100)
    cells = np.unique((states.reshape(-1, 2) // 14).astype(int), axis=0)
    # Centres reach 21 to 203: 14 x 14 cells, of which three columns are wall but for the doors.
    assert len(cells) >= 150
    assert 0.03 < (actions == 0).all(axis=2).mean() < 0.2
    crossed = (np.diff(states[..., 0] > 112, axis=1) != 0).any(axis=1)
    assert crossed.mean() > 0.3


def test_held_phases_end_after_at_most_their_longest_length():
    task = TwoRoom()
    policy = Exploratory(seek=0, wander=0, hold=1, noise=0.0, shortest=4, longest=9)
    _, _, actions = roll(task, task.reset(None, list(range(50))), policy, 90)
    for row in actions:
        starts = np.flatnonzero((np.diff(row, axis=0) != 0).any(axis=1)) + 1
        lengths = np.diff([0, *starts])
        assert lengths.min() >= 4 and lengths.max() <= 9


def test_two_rollouts_on_equal_streams_explore_alike():
    task = TwoRoom()
    a = roll(task, task.reset(None, [1, 2]), Exploratory(), 60)[2]
    b = roll(task, task.reset(None, [1, 2]), Exploratory(), 60)[2]
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a[0], a[1])


def test_steering_without_geometry_and_impossible_parameters_are_refused():
    task = TwoRoom()
    observation = task.observe(task.reset(None, [0]), ("state", "goal"))
    with pytest.raises(UsageError, match="key 'geometry'"):
        GoalSeeking().act(observation, RowStreams.of(0, "policy", [0]))
    with pytest.raises(UsageError, match="noise = -1"):
        GoalSeeking(noise=-1)
    with pytest.raises(UsageError, match=r"seek \+ wander \+ hold = 1.5"):
        Exploratory(seek=0.5, wander=0.5, hold=0.5)
