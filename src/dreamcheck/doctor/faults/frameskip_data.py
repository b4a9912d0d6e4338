"""Data that keep or repeat only some rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, habits, room, seed_of, skipping, walks
from dreamcheck.doctor.subject import Subject


def _held(data: ArrayEpisodes, steps: int) -> ArrayEpisodes:
    """Rows that span ``steps`` environment steps, the row's action held."""
    task: Any = room()
    at = np.stack([data.state(e)[0] for e in data])
    state = task.with_state(task.reset(None, list(range(len(at)))), at)
    rows = int(data.lengths.min())
    acts, seen = [], [at]
    for t in range(rows - 1):
        a = np.stack([data.actions(e)[t] for e in data])
        for _ in range(steps):
            state = task.step(state, a)
        acts.append(a)
        seen.append(task.observe(state, ("state",))["state"])
    acts.append(np.full_like(acts[0], np.nan))
    return ArrayEpisodes(
        lengths=np.full(len(at), rows),
        actions=np.stack(acts, axis=1).reshape(len(at) * rows, -1),
        state=np.stack(seen, axis=1).reshape(len(at) * rows, -1),
        columns=data.columns,
    )


class Skipped:
    """Grades: environment steps by which a row is off (1: one row per step)."""

    check = "frameskip_data"
    unit = "environment steps"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """One row in two, in three and in five."""
        data = walks(seed_of(base), episodes=40)

        def build(grade: float) -> Subject:
            made = _held(data, int(grade)) if grade else data
            return Subject(task=room(), episodes=made, seed=seed_of(base))

        repeated = Case(
            "repeated-2",
            2.0,
            True,
            lambda: Subject(task=room(), episodes=skipping(data, 2, repeat=True)),
        )
        return [*graded((0.0, 2.0, 3.0, 5.0), build), repeated, *habits(base)]


GENERATOR = Skipped()
