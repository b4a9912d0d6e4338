"""Blocks of which only a part of the actions was kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, habits, room, seed_of, walks
from dreamcheck.doctor.subject import Subject
from dreamcheck.streams import stream


class Held:
    """Grades: share of blocks whose five rows all hold the block's first action."""

    check = "action_aggregation"
    unit = "share of blocks"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From one block in twenty to all of them; clean data twice."""
        data = walks(seed_of(base))

        def build(share: float) -> Subject:
            rng = stream(seed_of(base), "doctor-fault", "held")

            def held(actions: np.ndarray, e: int) -> np.ndarray:
                out = actions.copy()
                for b in range(0, len(out) - 5, 5):
                    if rng.random() < share:
                        out[b : b + 5] = out[b]
                return out

            return Subject(task=room(), episodes=changed(data, actions=held), seed=seed_of(base))

        return [*graded((0.0, 0.25, 0.5, 0.75, 1.0), build), *habits(base)]


GENERATOR = Held()
