"""The contract of ``Task``, as checks anyone can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import CannotBranch, Task

MEASURES = ("contact", "path", "progress", "discontinuity")


def check_task(task: Task, *, seeds: Sequence[int] = range(8), steps: int = 12) -> None:
    """Check everything the contract promises, on default resets and random actions.

    Args:
        seeds: at least 2 environment seeds.
        steps: environment steps to take.

    Raises:
        AssertionError: the first promise that is broken, in words.
    """
    assert isinstance(task, Task), f"{type(task).__name__} lacks an attribute of Task"
    seeds = [int(s) for s in seeds]
    n, box = len(seeds), task.action_box
    low, high = np.asarray(box.low), np.asarray(box.high)
    assert (low < high).all(), f"action box {box} is empty in a dimension"
    state = task.reset(None, seeds)
    _check_observation(task, state, n)
    _same(task, state, task.reset(None, seeds), "resetting twice with the same seeds")
    _same(
        task,
        task.reset(None, seeds[:1]),
        _row(task, seeds, 0),
        "resetting a seed alone or beside others",
    )
    prefix = task.prefix(None, n)
    assert prefix.ndim == 3 and prefix.shape[0] == n and prefix.shape[2] == box.width, (
        f"prefix(None, {n}) is {prefix.shape}; expected [{n}, P, {box.width}]"
    )
    actions = stream(0, "conformance actions", steps).uniform(low, high, (steps, n, box.width))
    states = [state]
    for t in range(steps):
        before = _state(task, states[-1]).copy()
        after = task.step(states[-1], actions[t])
        assert np.array_equal(_state(task, states[-1]), before), (
            f"step {t} changed the state it was given; return a new one"
        )
        _check_measures(task, states[-1], actions[t], after, n)
        states.append(after)
    _check_rows(task, seeds, actions, states)
    far = task.step(state, np.broadcast_to(10 * high, (n, box.width)))
    at_bound = task.step(state, np.broadcast_to(high, (n, box.width)))
    _same(task, far, at_bound, "an action beyond the box and one on its bound (clamping)")
    _check_branch(task, states, actions)


def _state(task: Task, state: Any) -> np.ndarray:
    return np.asarray(task.observe(state, ("state",))["state"])


def _same(task: Task, a: Any, b: Any, what: str) -> None:
    assert np.array_equal(_state(task, a), _state(task, b)), f"{what} gave different states"


def _row(task: Task, seeds: list[int], i: int) -> Any:
    """The one-row state of seed i, taken out of a larger reset."""
    try:
        return task.branch(task.reset(None, seeds), np.array([i]))
    except CannotBranch:
        return task.reset(None, seeds[i : i + 1])


def _check_observation(task: Task, state: Any, n: int) -> None:
    seen = task.observe(state, ("state", "goal"))
    assert set(seen) == {"state", "goal"}, f"observe returned {sorted(seen)}, not what was asked"
    assert seen["state"].shape == (n, len(task.columns)), (
        f"state is {seen['state'].shape} but {len(task.columns)} columns are named for {n} rows"
    )
    assert seen["goal"].ndim == 2 and len(seen["goal"]) == n, (
        f"goal is {seen['goal'].shape}; expected [{n}, G]"
    )
    for size in task.sizes:
        pixels = task.observe(state, ("pixels",), image_size=size)["pixels"]
        assert pixels.dtype == np.uint8 and pixels.shape == (n, 3, size, size), (
            f"pixels at image_size = {size} are {pixels.dtype} {pixels.shape}; expected uint8 "
            f"[{n}, 3, {size}, {size}]"
        )
    goal = task.goal_observation(state, image_size=task.sizes[-1])
    assert goal["pixels"].shape[0] == n, "goal_observation must show one goal per row"
    distance, success = task.distance(state), task.succeeded(state)
    assert distance.shape == (n,) and (distance >= 0).all(), "distance must be [B], 0 or more"
    assert success.shape == (n,) and success.dtype == bool, "succeeded must be bool [B]"


def _check_measures(task: Task, before: Any, action: np.ndarray, after: Any, n: int) -> None:
    measures = task.measure(before, action, after)
    missing = [m for m in MEASURES if m not in measures]
    assert not missing, f"measure lacks {', '.join(missing)}"
    for name, values in measures.items():
        values = np.asarray(values)
        assert values.shape == (n,) and np.isfinite(values.astype(float)).all(), (
            f"measure {name!r} is {values.shape} or not finite; expected [{n}]"
        )
    assert (np.asarray(measures["discontinuity"]) >= 0).all(), "discontinuity is below 0"


def _check_rows(task: Task, seeds: list[int], actions: np.ndarray, states: list[Any]) -> None:
    last = len(seeds) - 1
    state = task.reset(None, [seeds[last]])
    for t in range(len(actions)):
        state = task.step(state, actions[t, last : last + 1])
        alone, together = _state(task, state)[0], _state(task, states[t + 1])[last]
        assert np.array_equal(alone, together), (
            f"row {last} alone and beside {last} others differ after step {t}: {alone.tolist()} "
            f"and {together.tolist()}. Row i must depend on row i only"
        )


def _check_branch(task: Task, states: list[Any], actions: np.ndarray) -> None:
    middle = len(actions) // 2
    try:
        index = np.array([1, 0, 1])
        copies = task.branch(states[middle], index)
    except CannotBranch:
        return
    for t in range(middle, len(actions)):
        copies = task.step(copies, actions[t][index])
    expected = _state(task, states[-1])[index]
    assert np.array_equal(_state(task, copies), expected), (
        "branched copies under the same actions ended elsewhere: a branch must be exact, or raise "
        "CannotBranch"
    )
