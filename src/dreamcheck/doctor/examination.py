"""Running checks over a subject, within a time budget, and what they add up to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dreamcheck.doctor.contract import Check, Finding, Verdict, finding
from dreamcheck.doctor.operating import operating
from dreamcheck.doctor.registry import all_checks
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, DreamcheckError, ExitCode
from dreamcheck.progress import Progress


@dataclass(frozen=True)
class Examination:
    """Findings in the order they were made, and the seconds they took together."""

    findings: tuple[Finding, ...]
    seconds: float

    @property
    def worst(self) -> Verdict:
        """The most severe verdict of what was examined; skipped when nothing was."""
        return max(
            (f.verdict for f in self.findings if f.verdict is not Verdict.SKIPPED),
            key=lambda v: v.severity,
            default=Verdict.SKIPPED,
        )

    @property
    def exit_code(self) -> ExitCode:
        """4 when something is wrong, 3 for a warning or what cannot be told, else 0."""
        if self.worst is Verdict.WRONG:
            return ExitCode.GUARD_REFUSED
        if self.worst in (Verdict.WARN, Verdict.CANNOT_TELL):
            return ExitCode.ABSTAINED
        return ExitCode.DONE

    def of(self, check: str) -> Finding:
        """The finding of a check.

        Raises:
            KeyError: it was not run.
        """
        for f in self.findings:
            if f.check == check:
                return f
        raise KeyError(check)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; each finding with its check's operating characteristics."""
        titles = {c.name: (c.title, c.group) for c in all_checks()}
        rows = []
        for f in self.findings:
            title, group = titles.get(f.check, (f.check, ""))
            rows.append(
                {**f.to_dict(), "title": title, "group": group, "operating": operating(f.check)}
            )
        counts = {v.value: sum(f.verdict is v for f in self.findings) for v in Verdict}
        return {
            "worst": self.worst.value,
            "counts": counts,
            "findings": rows,
            "seconds": self.seconds,
        }


def examine(
    subject: Subject,
    *,
    checks: Sequence[Check] | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Every check's finding; one that lacks a part, or begins after the budget, is skipped.

    Read-only: no weight, buffer, mode or file is changed.

    Args:
        checks: which; all by default. seconds: budget, over ``subject.seconds``.
    """
    checks = all_checks() if checks is None else checks
    if seconds is not None:
        subject.seconds = seconds
    subject.started = time.monotonic()
    progress = progress or Progress(quiet=True)
    found = []
    with progress.stage("examining", len(checks), unit="checks") as stage:
        for check in checks:
            found.append(run_check(check, subject))
            stage.advance(note=f"{check.name}: {found[-1].verdict.value}")
    return Examination(tuple(found), time.monotonic() - subject.started)


def run_check(check: Check, subject: Subject) -> Finding:
    """One check's finding, with its seconds; never raises for what a subject can be."""
    missing = subject.missing(check.needs)
    if missing:
        return finding(check, Verdict.SKIPPED, needs=missing)
    if subject.out_of_time:
        return finding(
            check,
            Verdict.SKIPPED,
            needs=f"more time: the budget of {subject.seconds:g} s was spent before it",
        )
    begun = time.monotonic()
    try:
        result = check.examine(subject)
    except Abstention as e:
        result = finding(check, Verdict.CANNOT_TELL, evidence=[str(e)], needs=str(e))
    except DreamcheckError as e:
        result = finding(
            check,
            Verdict.CANNOT_TELL,
            evidence=[str(e)],
            fix="make this readable first; the check could not look at it",
        )
    except Exception as e:  # a user's model or task may raise anything; the others go on
        result = finding(
            check,
            Verdict.CANNOT_TELL,
            evidence=[f"the check stopped with {type(e).__name__}: {e}"],
            fix="run the model or task alone on these inputs; the error is theirs or ours",
        )
    return replace(result, seconds=time.monotonic() - begun)
