"""Actions in other units than the simulator's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, habits, room, seed_of, walks
from dreamcheck.doctor.subject import Subject


class Rescaled:
    """Grades: relative error of the actions' scale."""

    check = "action_units"
    unit = "relative"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From two percent (inside the tolerance's doubt) to fivefold, and z-scored at 0.15."""
        data = walks(seed_of(base))

        def build(grade: float) -> Subject:
            made = changed(data, actions=lambda a, e: np.asarray(a * (1 + grade)))
            return Subject(task=room(), episodes=made, seed=seed_of(base))

        smaller = [
            # Less than the box: only the gain tells.
            Case(f"smaller-{g:g}", g, True, lambda g=g: build(-g))  # type: ignore[misc]
            for g in (0.1, 0.5)
        ]
        return [*graded((0.0, 0.02, 0.06, 0.15, 1.0, 4.0), build), *smaller, *habits(base)]


GENERATOR = Rescaled()
