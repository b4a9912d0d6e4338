"""What a protocol needs of recorded episodes: lengths, states, terminated flags, targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes, Episodes
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.planning.protocol import FreshPolicy
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.protocol import Column, MakesPolicies, Policy, Task

TERMINATED = ("terminated", "done")
TARGET = ("goal_state", "target", "target_state", "pos_target")
FRESH_SEED = 1_000_000
"""Environment seeds of fresh episodes start here, past those of any training recipe."""


@dataclass(frozen=True)
class Recorded:
    """Episodes as planning sees them.

    source: "recorded" or "fresh". digest: of the content.
    """

    episodes: Episodes
    source: str
    digest: str

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E]."""
        return np.asarray(self.episodes.lengths)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The state's columns."""
        return tuple(self.episodes.columns)

    def state(self, e: int) -> np.ndarray:
        """[L, S]."""
        return np.asarray(self.episodes.state(e), np.float64)

    def _extra(self, names: Sequence[str]) -> np.ndarray | None:
        """A per-frame array by one of its names, flat over all frames; None where absent."""
        extra = getattr(self.episodes, "extra", None) or {}
        for name in names:
            if name in extra:
                return np.asarray(extra[name])
        return None

    def terminated(self) -> np.ndarray | None:
        """Whether the last frame carries the terminated flag, bool [E]; None without a flag."""
        flags = self._extra(TERMINATED)
        if flags is None:
            return None
        return flags[np.cumsum(self.lengths) - 1].reshape(len(self.lengths)).astype(bool)

    def need_terminated(self, rule: str) -> np.ndarray:
        """The flags.

        Raises:
            UsageError: the data have none.
        """
        flags = self.terminated()
        if flags is None:
            raise UsageError(
                f"episode_filter = {rule!r} reads the `terminated` flag at each episode's last "
                f"frame, and these data have none ({' or '.join(TERMINATED)} among the per-frame "
                "arrays). Record it, map a column to it, or use episode_filter = 'none'."
            )
        return flags

    def target(self, e: int, t: int) -> np.ndarray:
        """The recorded target at a frame, [S].

        Raises:
            UsageError: the data have none.
        """
        targets = self._extra(TARGET)
        if targets is None:
            raise UsageError(
                "goal_rule = 'recorded_target' needs a target per frame, and these data have none "
                f"({', '.join(TARGET)}). Record it, or use goal_rule = 'fixed_offset'."
            )
        start = int(np.cumsum(self.lengths)[e] - self.lengths[e])
        return np.asarray(targets[start + t], np.float64)

    def has_target(self) -> bool:
        """Whether targets are recorded."""
        return self._extra(TARGET) is not None

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A]; the last row is NaN."""
        return np.asarray(self.episodes.actions(e), np.float64)


def recorded(episodes: Episodes) -> Recorded:
    """Recorded data for planning.

    Raises:
        UsageError: no episodes, or no state columns (starts and goals are placed by state).
    """
    if len(np.asarray(episodes.lengths)) == 0:
        raise UsageError("the data hold no episodes: there is nothing to start from.")
    if not episodes.columns:
        raise UsageError(
            "the data hold no state columns: starts and goals cannot be placed in the simulator. "
            "Map the recorded state columns, or use start_rule = 'fresh_policy'."
        )
    return Recorded(episodes, "recorded", episodes.digest)


def fresh_seeds(settings: FreshPolicy, *, seed: int) -> list[int]:
    """Environment seeds of a protocol's fresh episodes; another protocol seed shares none."""
    first = FRESH_SEED + seed * settings.num_episodes
    return [first + i for i in range(settings.num_episodes)]


def policy_named(task: Task, name: str) -> Policy:
    """A behaviour policy of the task.

    Raises:
        Abstention: the task makes none.
        UsageError: it has no policy of that name.
    """
    if not isinstance(task, MakesPolicies):
        raise Abstention(f"task {task.name} makes no policies: no fresh episodes can be recorded.")
    return task.make_policy(name)


def fresh_episodes(task: Task, settings: FreshPolicy, *, seed: int) -> Recorded:
    """Episodes generated now: default resets, one stream per environment seed, states only.

    Their frames are rendered by the task where they are needed. An episode runs its full length;
    ``terminated`` says whether its last state satisfies the task's own success test.
    """
    seeds = fresh_seeds(settings, seed=seed)
    policy = policy_named(task, settings.policy)
    state = task.reset(None, seeds)
    streams = RowStreams.of(seed, "fresh-policy", [str(s) for s in seeds])
    keys = ("state", "goal", "geometry", "step")
    states, actions = [], []
    goal = task.observe(state, ("goal",))["goal"]
    for t in range(settings.length):
        observed = task.observe(state, keys)
        states.append(observed["state"])
        if t == settings.length - 1:
            actions.append(np.full((len(seeds), task.action_box.width), np.nan))
            break
        chosen = policy.act(observed, streams)
        actions.append(np.asarray(chosen, np.float64))
        state = task.step(state, chosen)
    solved = task.succeeded(state)
    n, length = len(seeds), settings.length
    flags = np.zeros((n, length), bool)
    flags[:, -1] = solved
    flat = ArrayEpisodes(
        lengths=np.full(n, length),
        actions=np.stack(actions, axis=1).reshape(n * length, -1),
        state=np.stack(states, axis=1).reshape(n * length, -1),
        columns=task.columns,
        extra={
            "terminated": flags.reshape(-1),
            "goal_state": np.repeat(np.asarray(goal, np.float64), length, axis=0),
        },
    )
    return Recorded(flat, "fresh", flat.digest)
