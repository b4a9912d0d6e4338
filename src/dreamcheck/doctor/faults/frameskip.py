"""Data recorded at another rate than the model's frameskip assumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_episodes
from dreamcheck.doctor.subject import Subject


class Rate:
    """Grades: log of the factor between the recorded and the assumed rate."""

    check = "frameskip"
    unit = "log of the factor of the rate"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; every frame kept twice; rows dropped so that one block spans too much."""

        def build(keep: str) -> Subject:
            subject = base.subject()

            def rows(n: int) -> np.ndarray:
                if keep == "twice":
                    return np.repeat(np.arange(n), 2)
                return np.arange(0, n, 2 if keep == "second" else 4)

            subject.episodes = with_episodes(subject.episodes, keep=rows)
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            Case("every-second", float(np.log(2)), True, lambda: build("second")),
            Case("doubled", float(np.log(2)), True, lambda: build("twice")),
            Case("every-fourth", float(np.log(4)), True, lambda: build("fourth")),
        ]


GENERATOR = Rate()
