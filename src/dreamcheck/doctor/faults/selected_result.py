"""The best of several runs, reported alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import graded, seed_of, table
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject


class Picked:
    """Grades: runs that were not reported beside the best one."""

    check = "selected_result"
    unit = "runs"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """One of two to one of twenty; all reported, the last, or one fixed beforehand are clean."""

        def runs(count: int, *, epochs: bool) -> tuple[ResultSet, list[float]]:
            made = table(base, f"runs-{count}", rates=(0.6,) * count, epochs=epochs)
            return made, [float(np.mean([r.success for r in v])) for v in made.runs().values()]

        def best(grade: float) -> Subject:
            count = int(grade) + 1
            made, rates = runs(count, epochs=False)
            keep = str(int(np.argmax(rates)))
            rows = [replace(r, reported=grade == 0 or r.repeat == keep) for r in made.rows]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        def epoch() -> Subject:
            made, rates = runs(10, epochs=True)
            keep = int(np.argmax(rates))
            rows = [replace(r, reported=r.epoch == keep) for r in made.rows]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        def last() -> Subject:
            made, _ = runs(10, epochs=True)
            rows = [replace(r, reported=r.epoch == 9) for r in made.rows]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        def part() -> Subject:
            made, _ = runs(1, epochs=False)
            rows = [replace(r, reported=r.success or i % 4 == 0) for i, r in enumerate(made.rows)]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        def everything() -> Subject:
            return Subject(results=runs(5, epochs=False)[0], seed=seed_of(base))

        def first() -> Subject:
            # Fixed beforehand but not said: caught when it happens to be the best, one in five.
            made, _ = runs(5, epochs=False)
            rows = [replace(r, reported=r.repeat == "0") for r in made.rows]
            return Subject(results=ResultSet(tuple(rows)), seed=seed_of(base))

        return [
            *graded((0.0, 1.0, 4.0, 19.0), best),
            Case("all-of-5", 0.0, False, everything),
            Case("last-epoch", 0.0, False, last),
            Case("first-of-5-undeclared", 0.0, False, first),
            Case("best-epoch-of-10", 9.0, True, epoch),
            Case("better-part", 1.0, True, part),
        ]


GENERATOR = Picked()
