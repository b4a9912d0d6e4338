"""Sound TwoRoom episodes and results, made in milliseconds, for generators to break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.results import ResultSet, Row
from dreamcheck.doctor.subject import Subject
from dreamcheck.planning.protocol import FreshPolicy
from dreamcheck.planning.recorded import fresh_episodes
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Task
from dreamcheck.tasks.tworoom import TwoRoom

SIDE = 56


def room() -> Task:
    """The simulator."""
    return cast(Task, TwoRoom())


@lru_cache(maxsize=16)
def walks(
    seed: int, *, episodes: int = 20, length: int = 61, policy: Any = "exploratory"
) -> ArrayEpisodes:
    """Episodes of a policy, states only, with the terminated flag."""
    made = fresh_episodes(
        room(),
        FreshPolicy(policy=policy, num_episodes=episodes, length=length),
        seed=seed,
    )
    return cast(ArrayEpisodes, made.episodes)


@lru_cache(maxsize=8)
def films(seed: int) -> ArrayEpisodes:
    """Eight short episodes with their frames at 56 px."""
    data = walks(seed, episodes=8, length=31)
    task: Any = room()
    states = np.concatenate([data.state(e) for e in data])
    placed = task.with_state(task.reset(None, [0] * len(states)), states)
    return changed(data, pixels=task.observe(placed, ("pixels",), image_size=SIDE)["pixels"])


def changed(
    data: ArrayEpisodes,
    *,
    actions: Callable[[np.ndarray, int], np.ndarray] | None = None,
    state: Callable[[np.ndarray, int], np.ndarray] | None = None,
    pixels: np.ndarray | None = None,
) -> ArrayEpisodes:
    """A copy with each episode's actions or states passed through a function of it and its number."""
    acts = [np.array(data.actions(e), np.float64) for e in data]
    states = [np.array(data.state(e), np.float64) for e in data]
    if actions is not None:
        acts = [actions(a, e) for e, a in enumerate(acts)]
    if state is not None:
        states = [state(s, e) for e, s in enumerate(states)]
    if pixels is None and data.has_pixels:
        pixels = np.concatenate([data.frames(e, np.arange(len(states[e]))) for e in data])
    return ArrayEpisodes(
        lengths=data.lengths,
        actions=np.concatenate(acts),
        pixels=pixels,
        state=np.concatenate(states),
        columns=data.columns,
        extra=data.extra,
    )


def skipping(data: ArrayEpisodes, keep: int, *, repeat: bool = False) -> ArrayEpisodes:
    """Every ``keep``-th row only (or every row that often, with ``repeat``)."""
    acts, states = [], []
    for e in data:
        a, s = np.array(data.actions(e), np.float64), np.array(data.state(e), np.float64)
        rows = np.arange(len(s)) // keep * keep if repeat else np.arange(0, len(s), keep)
        acts.append(np.concatenate([a[rows[:-1]] if not repeat else a[:-1], a[-1:]]))
        states.append(s[rows])
    return ArrayEpisodes(
        lengths=np.array([len(s) for s in states]),
        actions=np.concatenate(acts),
        state=np.concatenate(states),
        columns=data.columns,
    )


def graded(
    grades: Sequence[float], build: Callable[[float], Subject], *, clean: Sequence[float] = (0.0,)
) -> list[Case]:
    """One case for every grade; those in ``clean`` are sound."""
    return [
        Case(f"grade-{g:g}", g, g not in clean, lambda g=g: build(g))  # type: ignore[misc]
        for g in grades
    ]


def seed_of(base: Base) -> int:
    """The repetition's seed."""
    return int(base.seed)


def table(
    base: Base, role: str, *, rates: Sequence[float], episodes: int = 50, epochs: bool = False
) -> ResultSet:
    """Independent outcomes of one run for each rate, on the same distinct reset seeds."""
    rng = stream(seed_of(base), "doctor-fault", role)
    rows = [
        Row(
            checkpoint="model",
            episode=str(i),
            success=bool(rng.random() < rate),
            repeat="0" if epochs else str(r),
            epoch=r if epochs else None,
            seed=1000 + i,
        )
        for r, rate in enumerate(rates)
        for i in range(episodes)
    ]
    return ResultSet(tuple(rows))


def habits(base: Base) -> list[Case]:
    """Sound data of two other behaviour policies: random, and goal-seeking through the door."""

    def build(policy: str) -> Subject:
        data = walks(seed_of(base), episodes=30, policy=policy)
        train = walks(seed_of(base) + 5000, episodes=30, policy=policy)
        return Subject(task=room(), episodes=data, train=train, seed=seed_of(base))

    return [
        Case(f"sound-{p}", 0.0, False, lambda p=p: build(p))  # type: ignore[misc]
        for p in ("random", "goal-seeking")
    ]
