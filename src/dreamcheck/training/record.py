"""Recorded episodes made with a simulator: default resets, one behaviour policy, keyed streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.digest import Value
from dreamcheck.errors import UsageError
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.protocol import Policy, Task
from dreamcheck.training.progress import Progress, Silent
from dreamcheck.training.recipe import DataRecipe


def task_of(recipe: DataRecipe) -> Task:
    """The simulator a recipe names."""
    if recipe.task == "tworoom":
        from dreamcheck.tasks.tworoom import TwoRoom

        return cast(Task, TwoRoom())  # its tuples are of a fixed length, the protocol's are not
    if recipe.task == "pusht":
        from dreamcheck.tasks.pusht import PushT

        return cast(Task, PushT())
    raise UsageError(
        f"data.task = {recipe.task!r} is not a simulator we train on; use tworoom or pusht."
    )


def policy_of(recipe: DataRecipe) -> Policy:
    """The behaviour policy a recipe names."""
    if recipe.task == "pusht":
        from dreamcheck.tasks.pusht.policies import make_policy

        return make_policy(recipe.policy)
    from dreamcheck.tasks.tworoom import policies

    known = {
        "exploratory": policies.Exploratory,
        "goal-seeking": policies.GoalSeeking,
        "random": policies.Random,
    }
    if recipe.policy not in known:
        raise UsageError(
            f"data.policy = {recipe.policy!r} is not known; use one of {', '.join(known)}."
        )
    return known[recipe.policy]()


def record_episodes(
    task: Task,
    policy: Policy,
    *,
    env_seeds: np.ndarray,
    steps: int,
    image_size: int,
    root_seed: int = 0,
    inputs: Sequence[Mapping[str, Value]] | None = None,
    progress: Progress | None = None,
) -> ArrayEpisodes:
    """Episodes of ``steps`` environment steps, frames in memory.

    Episode i depends on env_seeds[i], the root seed and the policy only: not on how many others
    are recorded beside it.

    Args:
        env_seeds: one default reset each.
        image_size: side of the frames, a size the task can draw.
        inputs: where to start, one per seed, an action prefix included; None: default resets.

    Returns:
        E episodes of steps + 1 frames, with the task's state columns and "goal" as an extra.
    """
    progress = progress or Silent()
    e = len(env_seeds)
    state = task.reset(inputs, [int(s) for s in env_seeds])
    prefix = task.prefix(inputs, e)
    rngs = RowStreams.of(root_seed, "behaviour", [int(s) for s in env_seeds])
    pixels = np.empty((e, steps + 1, 3, image_size, image_size), np.uint8)
    states = np.empty((e, steps + 1, len(task.columns)), np.float32)
    actions = np.full((e, steps + 1, task.action_box.width), np.nan, np.float32)
    goals = None
    progress.start("recording episodes", steps + 1)
    for t in range(steps + 1):
        seen = task.observe(state, ("state", "goal", "geometry", "pixels"), image_size=image_size)
        pixels[:, t], states[:, t] = seen["pixels"], seen["state"]
        if goals is None:
            goals = np.empty((e, steps + 1, *seen["goal"].shape[1:]), np.float32)
        goals[:, t] = seen["goal"]
        if t < steps:
            seen["step"] = np.full(e, t)
            chosen = policy.act(seen, rngs)
            actions[:, t] = prefix[:, t] if t < prefix.shape[1] else chosen
            state = task.step(state, actions[:, t])
        progress.advance(t + 1)
    progress.finish()
    assert goals is not None
    return ArrayEpisodes(
        lengths=np.full(e, steps + 1),
        actions=actions.reshape(-1, actions.shape[-1]),
        pixels=pixels.reshape(-1, *pixels.shape[2:]),
        state=states.reshape(-1, states.shape[-1]),
        columns=task.columns,
        extra={"goal": goals.reshape(-1, *goals.shape[2:])},
    )


def constants_of(recipe: DataRecipe) -> dict[str, Value]:
    """Task coordinates that default resets never vary, with the value they have."""
    if recipe.task == "pusht":
        return {}  # agent, block and goal are all drawn by the seed
    from dreamcheck.tasks.tworoom.parameters import FACTORS

    return {name: factor.initial for name, factor in FACTORS.items()}
