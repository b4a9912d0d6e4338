"""Recorded actions multiplied by a factor: standardised, in other units, of another gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_episodes
from dreamcheck.doctor.subject import Subject


class Scaled:
    """Grades: natural logarithm of the factor."""

    check = "action_scale"
    unit = "log of the factor on the actions"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; a few percent up to sevenfold."""

        def build(factor: float) -> Subject:
            subject = base.subject()
            if factor != 1:
                subject.episodes = with_episodes(
                    subject.episodes,
                    actions=lambda a: factor * a,
                )
            return subject

        return [
            Case(f"x{k:g}", abs(float(np.log(k))), k != 1, lambda k=k: build(k))  # type: ignore[misc]
            for k in (1.0, 1.1, 1.5, 2.0, 5.0)
        ]


GENERATOR = Scaled()
