"""Models with one, some or all modules in training mode."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule


class Left:
    """Grades: share of the modules left in training mode."""

    check = "training_mode"
    unit = "share of modules"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean, one module, half of them, all."""

        def build(share: float) -> Subject:
            subject = base.subject()
            assert isinstance(subject.model, HasModule)
            modules = list(subject.model.module.modules())
            count = 0 if share == 0 else max(1, round(share * len(modules)))
            for m in modules[len(modules) - count :]:
                m.training = True
            return subject

        return [
            Case(f"share-{s:g}", s, s > 0, lambda s=s: build(s))  # type: ignore[misc]
            for s in (0.0, 0.01, 0.5, 1.0)
        ]


GENERATOR = Left()
