"""Environments that share their seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, seed_of, table
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject


class Repeated:
    """Grades: share of the rows that repeat another one's seed."""

    check = "duplicate_seeds"
    unit = "share of rows"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From one row in twenty-five to all rows on one seed; distinct seeds are clean."""

        def build(grade: float) -> Subject:
            made = table(base, "seeds", rates=(0.6,))
            count = round(grade * len(made.rows))
            rows = [
                replace(r, seed=1000 + len(made.rows) - 1 if i < count else r.seed)
                for i, r in enumerate(made.rows)
            ]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        return graded((0.0, 0.04, 0.1, 0.3, 1.0), build)


GENERATOR = Repeated()
