"""How many different situations were evaluated?"""

from __future__ import annotations

from collections import Counter

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.results import ResultSet
from dreamcheck.doctor.subject import Subject


class DuplicateSeeds:
    """Effective sample size of the reported rows: distinct starts or environment seeds.

    With c_i rows in situation i and n rows in all it is n^2 / sum c_i^2 (Kish), per repeat.
    """

    name = "duplicate_seeds"
    title = "Evaluated episodes are different ones"
    group = "results"
    needs: tuple[str, ...] = ("results",)

    def examine(self, subject: Subject) -> Finding:
        """Smallest effective over nominal sample size of the runs."""
        results: ResultSet = subject.results
        worst, what, size, distinct = 1.0, "", 0, 0
        for run, rows in results.runs().items():
            counts = Counter(r.situation for r in rows)
            n = len(rows)
            effective = n * n / sum(c * c for c in counts.values()) / n
            if effective <= worst:
                worst, size, distinct = effective, n, len(counts)
                most, times = counts.most_common(1)[0]
                what = f"{run}: {n} rows, {len(counts)} situations; {most} {times} time(s)"
        warn = subject.thresholds.get(self.name, "effective")
        wrong = subject.thresholds.get(self.name, "wrong")
        verdict = Verdict.FINE
        if worst < warn.value:
            verdict = Verdict.WRONG if worst < wrong.value else Verdict.WARN
        return finding(
            self,
            verdict,
            measured={
                "effective": (worst, "of the nominal sample size"),
                "rows": (size, "rows"),
                "situations": (distinct, "situations"),
            },
            limit=(1 - warn.value, "of the nominal sample size"),
            threshold=wrong if verdict is Verdict.WRONG else warn,
            evidence=[what],
            fix="draw episodes without replacement and give each environment its own seed; until "
            "then state the number of situations as n" if verdict is not Verdict.FINE else "",
        )  # fmt: skip


CHECK = DuplicateSeeds()
