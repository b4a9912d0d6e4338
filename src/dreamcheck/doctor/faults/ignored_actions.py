"""Models whose actions are turned down, from a little left to nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import Spoiled
from dreamcheck.doctor.subject import Subject


class Deaf:
    """Grades: share of the actions that is lost."""

    check = "ignored_actions"
    unit = "share of the actions lost"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; 98 %, 99.5 % and all of the actions lost."""

        def build(lost: float) -> Subject:
            subject = base.subject()
            subject.model = Spoiled(
                subject.model,
                embed_actions=lambda model, blocks: model.embed_actions((1 - lost) * blocks),
            )
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"lost-{s:g}", s, True, lambda s=s: build(s))  # type: ignore[misc]
                for s in (0.98, 0.995, 1.0)
            ),
        ]


GENERATOR = Deaf()
