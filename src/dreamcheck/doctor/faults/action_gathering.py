"""Blocks put together in another way than the network was trained with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.checks.action_gathering import gatherings
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_conventions
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.conventions import Conventions


class Mixed(Conventions):
    """Conventions whose blocks are a mixture of the right ones and another gathering."""

    mixed: float = 0.0
    other: str = ""

    def blocks(self, actions: np.ndarray) -> np.ndarray:
        """As declared, mixed."""
        right = super().blocks(actions)
        wrong = gatherings(self, np.asarray(actions, dtype=np.float64))[self.other]
        return ((1 - self.mixed) * right + self.mixed * np.nan_to_num(wrong)).astype(np.float32)


class Gathered:
    """Grades: share of the wrong gathering in a block."""

    check = "action_gathering"
    unit = "share of the wrong gathering"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; dimension by dimension, from a tenth to all of it; the first action held."""

        def build(share: float, other: str) -> Subject:
            subject = base.subject()
            assert subject.model is not None
            c = subject.model.conventions
            spoiled = Mixed(**c.model_dump(), mixed=share, other=other)
            subject.model = with_conventions(subject.model, spoiled)
            return subject

        by_dimension, held = "every action, dimension by dimension", "first action held"
        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"by-dimension-{s:g}", s, True, lambda s=s: build(s, by_dimension))  # type: ignore[misc]
                for s in (0.1, 0.3, 1.0)
            ),
            Case("first-held", 1.0, True, lambda: build(1.0, held)),
        ]


GENERATOR = Gathered()
