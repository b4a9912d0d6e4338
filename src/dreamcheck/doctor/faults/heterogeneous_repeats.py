"""Repeats of different quality under one name, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, seed_of, table
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject


class Different:
    """Grades: difference of the best and worst repeat's success rate."""

    check = "heterogeneous_repeats"
    unit = "success rate"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From ten points to eighty; copies of one run; equal repeats are clean."""

        def build(grade: float) -> Subject:
            rates = tuple(0.5 + grade * x for x in (-0.5, 0.0, 0.5))
            return Subject(results=table(base, "repeats", rates=rates), seed=seed_of(base))

        def copies() -> Subject:
            one = table(base, "repeats", rates=(0.5,)).rows
            rows = [replace(r, repeat=str(k)) for k in range(3) for r in one]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        return [*graded((0.0, 0.1, 0.3, 0.5, 0.8), build), Case("copies", 1.0, True, copies)]


GENERATOR = Different()
