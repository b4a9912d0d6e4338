"""Matched futures: what really happened after the same history under the same actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.errors import SpecificationError, UsageError
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.protocol import Policy, State, Task


@dataclass(frozen=True)
class Horizons:
    """Lengths of one forecast.

    history: observed latents H (model frames).
    forecast: predicted latents K.
    frameskip: environment steps between two model frames.
    """

    history: int
    forecast: int
    frameskip: int

    def __post_init__(self) -> None:
        for f in fields(self):
            if getattr(self, f.name) < 1:
                raise UsageError(f"{f.name} = {getattr(self, f.name)} must be at least 1.")

    @property
    def frames(self) -> int:
        """Model frames in all, H + K."""
        return self.history + self.forecast

    @property
    def steps(self) -> int:
        """Environment steps T from the first observed to the last forecast frame."""
        return (self.frames - 1) * self.frameskip

    @property
    def observed_steps(self) -> int:
        """Environment steps up to the last observed frame."""
        return (self.history - 1) * self.frameskip


@dataclass(frozen=True)
class Futures:
    """B recorded rollouts of T environment steps.

    frames: uint8 [B, H + K, 3, s, s] at model frames, or None when nobody asked for pixels.
    states: float64 [B, T + 1, S] at every environment step, in the task's columns.
    goals: [B, G].
    actions: float64 [B, T, A] raw, in environment units.
    measures: per environment step, each [B, T]: contact, path, progress, discontinuity.
    success: bool [B, T + 1].
    at_history: the task's own state at the last observed frame, for branching.
    """

    horizons: Horizons
    frames: np.ndarray | None
    states: np.ndarray
    goals: np.ndarray
    actions: np.ndarray
    measures: Mapping[str, np.ndarray]
    success: np.ndarray
    at_history: State

    @property
    def frame_states(self) -> np.ndarray:
        """States at model frames, [B, H + K, S]."""
        return self.states[:, :: self.horizons.frameskip]

    def forecast_sum(self, name: str) -> np.ndarray:
        """A measure summed over the forecast part, [B]."""
        return self.measures[name][:, self.horizons.observed_steps :].sum(axis=1)


OBSERVED_BY_POLICIES = ("state", "goal", "geometry")


def collect(
    task: Task,
    policy: Policy,
    inputs: Sequence[Mapping[str, Value]] | None,
    seeds: Sequence[int],
    *,
    horizons: Horizons,
    root_seed: int = 0,
    image_size: int | None = None,
) -> Futures:
    """Roll the environment: the input's action prefix first, then the policy.

    Row i depends on inputs[i] and seeds[i] only: the policy's noise is the stream of its
    environment seed, so two inputs on one seed meet the same noise.

    Args:
        inputs: one per row, or None for default resets.
        seeds: environment seeds, one per row.
        image_size: side of the frames to render at model frames; None renders nothing.

    Source: spec/discovery.md section 2.
    """
    n = len(seeds)
    if inputs is not None and len(inputs) != n:
        raise UsageError(f"{len(inputs)} inputs but {n} seeds; give one seed per row.")
    state = task.reset(inputs, seeds)
    prefix = task.prefix(inputs, n)
    if prefix.shape[1] > horizons.steps:
        raise SpecificationError(
            f"the action prefix has {prefix.shape[1]} steps but the rollout only "
            f"{horizons.steps}; lengthen the forecast or shorten the prefix."
        )
    rngs = RowStreams.of(root_seed, "policy", [int(s) for s in seeds])
    keys = ("pixels",) if image_size is not None else ()
    observation = task.observe(state, (*OBSERVED_BY_POLICIES, *keys), image_size=image_size)
    goals = np.asarray(observation["goal"], dtype=np.float64)
    states = [np.asarray(observation["state"], dtype=np.float64)]
    frames = [observation["pixels"]] if keys else []
    success = [task.succeeded(state)]
    actions: list[np.ndarray] = []
    measures: dict[str, list[np.ndarray]] = {}
    at_history = state
    for t in range(horizons.steps):
        # The policy draws at every step, also under the prefix: where it takes over does not
        # shift its noise, so inputs with and without a prefix stay paired.
        observation["step"] = np.full(n, t)
        chosen = policy.act(observation, rngs)
        if t < prefix.shape[1]:
            chosen = prefix[:, t]
        after = task.step(state, chosen)
        for name, values in task.measure(state, chosen, after).items():
            measures.setdefault(name, []).append(values)
        state = after
        at_frame = (t + 1) % horizons.frameskip == 0
        observation = task.observe(
            state,
            (*OBSERVED_BY_POLICIES, *(keys if at_frame else ())),
            image_size=image_size if at_frame else None,
        )
        actions.append(np.asarray(chosen, dtype=np.float64))
        states.append(np.asarray(observation["state"], dtype=np.float64))
        success.append(task.succeeded(state))
        if keys and at_frame:
            frames.append(observation["pixels"])
        if t + 1 == horizons.observed_steps:
            at_history = state
    return Futures(
        horizons=horizons,
        frames=np.stack(frames, axis=1) if frames else None,
        states=np.stack(states, axis=1),
        goals=goals,
        actions=np.stack(actions, axis=1),
        measures={k: np.stack(v, axis=1) for k, v in measures.items()},
        success=np.stack(success, axis=1),
        at_history=at_history,
    )


def replay(task: Task, state: State, actions: np.ndarray) -> np.ndarray:
    """States [B, n + 1, S] of the recorded actions [B, n, A] from a given state."""
    out = [np.asarray(task.observe(state, ("state",))["state"], dtype=np.float64)]
    for t in range(actions.shape[1]):
        state = task.step(state, actions[:, t])
        out.append(np.asarray(task.observe(state, ("state",))["state"], dtype=np.float64))
    return np.stack(out, axis=1)
