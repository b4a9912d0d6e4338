"""Policies that are shown the recorded action they should choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, room, seed_of, walks
from dreamcheck.doctor.results import ResultSet, Row
from dreamcheck.doctor.subject import Subject
from dreamcheck.streams import RowStreams, stream


class Peeking:
    """Grades: share of the recorded action in the policy's first one."""

    check = "history_leak"
    unit = "share of the action"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From a fifth to a copy; a goal-seeking policy of its own is the clean one."""
        data = walks(seed_of(base), episodes=80)

        def build(grade: float) -> Subject:
            rng = stream(seed_of(base), "doctor-fault", "peeking")
            rows = []
            for e in range(len(data.lengths)):
                t = int(rng.integers(1, 30))
                state = data.state(e)
                way = state[t + 25] - state[t]
                own = way / max(float(np.abs(way).max()), 1e-6) + rng.normal(0, 0.3, 2)
                action = (1 - grade) * own + grade * data.actions(e)[t]
                rows.append(
                    Row(
                        checkpoint="policy",
                        episode=str(e),
                        success=True,
                        start=t,
                        gap=25,
                        action=tuple(np.clip(action, -1, 1).tolist()),
                    )
                )
            return Subject(
                task=room(), episodes=data, results=ResultSet(tuple(rows)), seed=seed_of(base)
            )

        def habits() -> Subject:
            # The recorded policy and the evaluated one are the same kind: both know the door.
            task = room()
            made = walks(seed_of(base), episodes=80, policy="goal-seeking")
            picks = stream(seed_of(base), "doctor-fault", "habits").integers(1, 20, 80)
            ends = np.stack([made.state(e)[t + 25] for e, t in enumerate(picks)])
            now = np.stack([made.state(e)[t] for e, t in enumerate(picks)])
            live: Any = task
            state = live.with_goal(live.with_state(live.reset(None, list(range(80))), now), ends)
            chosen = live.make_policy("goal-seeking", noise=0.3).act(
                live.observe(state, ("state", "goal", "geometry", "step")),
                RowStreams.of(seed_of(base), "habits", list(range(80))),
            )
            rows = [
                Row("policy", str(e), True, start=int(t), gap=25, action=tuple(a.tolist()))
                for e, (t, a) in enumerate(zip(picks, chosen, strict=True))
            ]
            return Subject(
                task=task, episodes=made, results=ResultSet(tuple(rows)), seed=seed_of(base)
            )

        return [
            *graded((0.0, 0.2, 0.5, 0.8, 1.0), build),
            Case("same-habits", 0.0, False, habits),
        ]


GENERATOR = Peeking()
