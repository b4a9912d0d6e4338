"""Conventions whose action statistics were fitted elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_conventions
from dreamcheck.doctor.subject import Subject


class Stale:
    """Grades: shift of the mean in deviations."""

    check = "action_scaler"
    unit = "deviations of the mean"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; the declared mean off by a tenth of a deviation up to two."""

        def build(shift: float) -> Subject:
            subject = base.subject()
            assert subject.model is not None
            c = subject.model.conventions
            mean = tuple((np.asarray(c.action_mean) + shift * np.asarray(c.action_std)).tolist())
            subject.model = with_conventions(
                subject.model, c.model_copy(update={"action_mean": mean})
            )
            return subject

        return [
            Case(f"shift-{s:g}", s, s > 0, lambda s=s: build(s))  # type: ignore[misc]
            for s in (0.0, 0.2, 0.5, 1.0, 2.0)
        ]


GENERATOR = Stale()
