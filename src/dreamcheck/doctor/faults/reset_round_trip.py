"""Simulators that set another state than they are given."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._altered import Altered
from dreamcheck.doctor.faults._rooms import graded, room, seed_of, walks
from dreamcheck.doctor.subject import Subject


class Misplaced:
    """Grades: px by which the set state is off; 100 for swapped coordinates."""

    check = "reset_round_trip"
    unit = "px"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From a tenth of a pixel to swapped coordinates; goal pictures of another place."""
        data = walks(seed_of(base))

        def build(grade: float) -> Subject:
            task = Altered(room(), offset=grade) if grade < 100 else Altered(room(), swap=True)
            return Subject(task=task, episodes=data, seed=seed_of(base))

        def goal(offset: float) -> Subject:
            return Subject(
                task=Altered(room(), goal_offset=offset), episodes=data, seed=seed_of(base)
            )

        return [
            *graded((0.0, 0.1, 3.0, 100.0), build),
            *[Case(f"goal-{g:g}", g, True, lambda g=g: goal(g)) for g in (8.0, 60.0)],  # type: ignore[misc]
        ]


GENERATOR = Misplaced()
