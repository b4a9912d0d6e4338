"""Actions recorded some rows beside the frames they move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_episodes
from dreamcheck.doctor.subject import Subject


class Shifted:
    """Grades: environment steps by which the actions are shifted."""

    check = "model_lag"
    unit = "environment steps"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; one step either way; two; a whole block."""

        def build(lag: int) -> Subject:
            subject = base.subject()

            def shifted(a: np.ndarray) -> np.ndarray:
                out = a.copy()
                out[:-1] = np.roll(a[:-1], lag, axis=0)
                return out

            subject.episodes = with_episodes(subject.episodes, actions=shifted)
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"lag{k:+d}", float(abs(k)), True, lambda k=k: build(k))  # type: ignore[misc]
                for k in (-1, 1, 2, 5)
            ),
        ]


GENERATOR = Shifted()
