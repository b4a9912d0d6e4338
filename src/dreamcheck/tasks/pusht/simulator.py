"""One process's PushT environments: reset, replay, step and draw. The only file that imports it.

Traps of the original that are met here (stable-worldmodel 0.1.1):

- setting a state runs a physics step and loses contact caches, so a simulator is only ever reset
  by seed and replayed, never restored;
- ``reset`` renders a goal picture nobody asked for: drawing is switched off while resetting;
- a default reset ignores nothing of its seed, so options are added to the seed, not put in its
  place: block angle and goal keep the values that the seed draws.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError

FRAME_SIDE = 224
"""Side of the environment's own picture, px; the arena is 512 units wide."""
MISSING = (
    "the task 'pusht' needs stable-worldmodel with its environment packages, which cannot be "
    "imported ({error}). Install the extra: pip install 'dreamcheck[swm]'"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an episode starts: a seed, and what an input fixes beside it.

    agent, block, goal: positions in arena px, or None where the seed decides.
    """

    seed: int
    agent: tuple[float, float] | None = None
    block: tuple[float, float] | None = None
    goal: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a simulator shows after a reset or step.

    values, goal: float64 [7]: agent xy, block xy, block angle, agent velocity. contacts: of the
    last step, 0 after a reset.
    """

    values: np.ndarray
    goal: np.ndarray
    contacts: int


def environment_class() -> Any:
    """stable-worldmodel's PushT.

    Raises:
        UsageError: it is not installed.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from stable_worldmodel.envs.pusht.env import PushT
    except ImportError as error:
        raise UsageError(MISSING.format(error=error)) from error
    return PushT


class Simulators:
    """Live environments by number, and one more to draw with."""

    def __init__(self) -> None:
        self._make = environment_class()
        self._live: dict[int, Any] = {}
        self._idle: list[Any] = []
        self._canvas: Any = None

    def build(self, number: int, origin: Origin, actions: np.ndarray) -> Reading:
        """A live environment at the end of the replayed actions, float32 [t, 2]."""
        env = self._live.pop(number, None) or (self._idle.pop() if self._idle else self._new())
        self._live[number] = env
        _reset(env, origin)
        contacts = 0
        for action in actions:
            contacts = _advance(env, action)
        return _reading(env, contacts)

    def holds(self, number: int) -> bool:
        """Whether a live environment has that number."""
        return number in self._live

    def step(self, number: int, action: np.ndarray) -> Reading:
        """One environment step; action float32 [2] in [-1, 1]."""
        env = self._live[number]
        return _reading(env, _advance(env, action))

    def drop(self, numbers: list[int]) -> None:
        """Environments nobody will step again, kept for reuse."""
        for number in numbers:
            env = self._live.pop(number, None)
            if env is not None:
                self._idle.append(env)

    def draw(self, poses: np.ndarray) -> np.ndarray:
        """Pictures of agent xy, block xy and block angle [N, 5]: uint8 [N, 224, 224, 3].

        The picture depends on nothing else, so no physics step is run for it.
        """
        if self._canvas is None:
            self._canvas = self._new()
            _reset(self._canvas, Origin(0))
        env = self._canvas
        frames = np.empty((len(poses), FRAME_SIDE, FRAME_SIDE, 3), np.uint8)
        for i, pose in enumerate(np.asarray(poses, np.float64).tolist()):
            env.agent.position = tuple(pose[:2])
            env.block.angle = pose[4]
            env.block.position = tuple(pose[2:4])
            env.space.reindex_shapes_for_body(env.agent)
            env.space.reindex_shapes_for_body(env.block)
            frames[i] = type(env).render(env)
        return frames

    def _new(self) -> Any:
        env = self._make(resolution=FRAME_SIDE)
        env.render = lambda: None  # the goal picture of every reset
        return env


def _reset(env: Any, origin: Origin) -> None:
    if origin.agent is None and origin.block is None and origin.goal is None:
        env.reset(seed=origin.seed)
        return
    options: dict[str, Any] = {}
    if origin.goal is not None:
        env.reset(seed=origin.seed)
        goal = np.array(env.goal_state, np.float64)
        goal[2:4] = origin.goal
        options["goal_state"] = goal
    placed = {"agent.start_position": origin.agent, "block.start_position": origin.block}
    values = {k: np.array(v, np.float64) for k, v in placed.items() if v is not None}
    if values:
        options["variation_values"] = values
    env.reset(seed=origin.seed, options=options)


def _advance(env: Any, action: np.ndarray) -> int:
    info = env.step(np.asarray(action, np.float32))[-1]
    return int(info["n_contacts"])


def _reading(env: Any, contacts: int) -> Reading:
    return Reading(
        values=np.array(env._get_obs(), np.float64),
        goal=np.array(env.goal_state, np.float64),
        contacts=contacts,
    )
