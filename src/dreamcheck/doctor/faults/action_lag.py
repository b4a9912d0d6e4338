"""Action columns shifted by a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.checks.action_lag import shifted
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, habits, seed_of, walks
from dreamcheck.doctor.subject import Subject


class Shifted:
    """Grades: share of episodes whose actions stand a row too late; above 1, all by that many rows."""

    check = "action_lag"
    unit = "share of episodes"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """A part of the episodes, all of them, and a shift of two rows."""
        data = walks(seed_of(base))

        def build(grade: float) -> Subject:
            count = round(min(grade, 1.0) * len(data.lengths))
            by = 2 if grade > 1 else 1

            def late(actions: np.ndarray, e: int) -> np.ndarray:
                return shifted(actions, by) if e < count else actions

            return Subject(episodes=changed(data, actions=late), seed=seed_of(base))

        return [*graded((0.0, 0.1, 0.25, 0.5, 1.0, 2.0), build), *habits(base)]


GENERATOR = Shifted()
