"""What a check is: it looks at a subject and returns one finding, never a bare number.

A check lives in ``doctor/checks/NAME.py`` as ``CHECK``, the faults it must find in
``doctor/faults/NAME.py`` as ``GENERATOR``. Neither can do without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from dreamcheck.doctor.subject import Subject
from dreamcheck.doctor.thresholds import Threshold


class Verdict(StrEnum):
    """What a check says, from the best to the worst; ``SKIPPED`` was not looked at."""

    FINE = "fine"
    SKIPPED = "skipped"
    CANNOT_TELL = "cannot tell"
    WARN = "warn"
    WRONG = "wrong"

    @property
    def severity(self) -> int:
        """0 for fine, 4 for wrong."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its unit, e.g. 0.31 "of a frozen world's error"."""

    value: float
    unit: str


@dataclass(frozen=True)
class Finding:
    """One check's answer.

    measured: every number the verdict rests on, by name; the first is the headline.
    limit: the smallest fault this measurement can see here (noise, sample size), in the headline's
        unit; None where no number says so.
    threshold: what the headline was held against, with its source.
    evidence: lines a reader can check: counts, examples, where it was seen.
    fix: what to do; empty when fine. needs: what a skipped check would need.
    """

    check: str
    verdict: Verdict
    measured: Mapping[str, Measure] = field(default_factory=dict)
    limit: Measure | None = None
    threshold: Threshold | None = None
    evidence: tuple[str, ...] = ()
    fix: str = ""
    needs: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON and records."""
        return {**asdict(self), "verdict": self.verdict.value, "evidence": list(self.evidence)}


@runtime_checkable
class Check(Protocol):
    """One thing that can be wrong with an evaluation.

    name: that of its file. title: a short sentence, what was asked. group: "model", "data",
    "environment", "protocol" or "results". needs: names of ``Subject.NEEDS``; where one is
    missing the check is skipped and the finding names it.
    """

    @property
    def name(self) -> str:
        """That of its file."""
        ...

    @property
    def title(self) -> str:
        """What is asked, as the sentence that holds when all is fine."""
        ...

    @property
    def group(self) -> str:
        """One of ``registry.GROUPS``."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of ``subject.NEEDS``."""
        ...

    def examine(self, subject: Subject) -> Finding:
        """The finding. ``seconds`` is filled in by the caller.

        Raises:
            Abstention: it cannot be measured here; becomes "cannot tell" with the message.
        """
        ...


@dataclass(frozen=True)
class Case:
    """One subject whose condition is known.

    name: unique within its generator. grade: size of the fault in the generator's unit, 0 when
    clean. faulty: whether the check has to answer warn or wrong. build: makes the subject anew.
    """

    name: str
    grade: float
    faulty: bool
    build: Callable[[], Subject]


@runtime_checkable
class Base(Protocol):
    """A sound model, task and data that faults are put into; see ``doctor.bases``.

    name: "tworoom-small", "linear toy", ... seed: varies episodes and draws between repetitions.
    """

    name: str
    seed: int

    def subject(self, **changes: Any) -> Subject:
        """A fresh sound subject (its model a copy that may be broken), parts replaced by name."""
        ...


@runtime_checkable
class FaultGenerator(Protocol):
    """Graded faults for the check of the same name.

    unit: of the grades. uses_model: False when the cases are the same for every base, so that the
    benchmark makes them once per seed.
    """

    check: str
    unit: str
    uses_model: bool

    def cases(self, base: Base) -> Sequence[Case]:
        """At least one clean case and two grades, from barely to badly, in rising order."""
        ...


def fine(check: Check, **parts: Any) -> Finding:
    """A finding of ``fine``; parts as in ``finding``."""
    return finding(check, Verdict.FINE, **parts)


def finding(
    check: Check,
    verdict: Verdict,
    *,
    measured: Mapping[str, tuple[float, str]] | None = None,
    limit: tuple[float, str] | None = None,
    threshold: Threshold | None = None,
    evidence: Sequence[str] = (),
    fix: str = "",
    needs: str = "",
) -> Finding:
    """A finding from plain pairs (value, unit)."""
    return Finding(
        check=check.name,
        verdict=verdict,
        measured={k: Measure(float(v), u) for k, (v, u) in (measured or {}).items()},
        limit=None if limit is None else Measure(float(limit[0]), limit[1]),
        threshold=threshold,
        evidence=tuple(evidence),
        fix=fix,
        needs=needs,
    )
