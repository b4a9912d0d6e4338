"""Missing numbers inside episodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, habits, seed_of, walks
from dreamcheck.doctor.subject import Subject
from dreamcheck.streams import stream


class Holes:
    """Grades: rows with a NaN that should have none."""

    check = "nan_audit"
    unit = "rows"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """One row, five, fifty; holes in actions, then in states."""
        data = walks(seed_of(base))

        def build(grade: float) -> Subject:
            rng = stream(seed_of(base), "doctor-fault", "holes")
            rows = {(int(rng.integers(len(data.lengths))), int(rng.integers(0, 59)))}
            while len(rows) < grade:
                rows.add((int(rng.integers(len(data.lengths))), int(rng.integers(0, 59))))

            def holed(actions: np.ndarray, e: int) -> np.ndarray:
                for where, t in rows:
                    if where == e and grade > 0:
                        actions[t, 0] = np.nan
                return actions

            return Subject(episodes=changed(data, actions=holed), seed=seed_of(base))

        def state() -> Subject:
            def holed(states: np.ndarray, e: int) -> np.ndarray:
                if e == 3:
                    states[4, 1] = np.inf
                return states

            return Subject(episodes=changed(data, state=holed), seed=seed_of(base))

        return [
            *graded((0.0, 1.0, 5.0, 50.0), build),
            Case("state-1", 1.0, True, state),
            *habits(base),
        ]


GENERATOR = Holes()
