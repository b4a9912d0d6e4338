"""A check of one recomputed value against a published one, and the report all of them make."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamcheck.digest import plain
from dreamcheck.errors import EvidenceError, ExitCode


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a recomputed number may lie from the published one.

    absolute, relative: the larger of the two bounds applies; both 0 means exact equality.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def allows(self, expected: float, got: float) -> bool:
        """True when got is within reach of expected; NaN agrees with NaN only."""
        if math.isnan(expected) or math.isnan(got):
            return math.isnan(expected) and math.isnan(got)
        if expected == got:
            return True
        return abs(got - expected) <= max(self.absolute, self.relative * abs(expected))

    def __str__(self) -> str:
        if self.absolute == 0 and self.relative == 0:
            return "exact"
        parts = [f"±{self.absolute:g}"] if self.absolute else []
        return " or ".join(parts + ([f"{self.relative:g} relative"] if self.relative else []))


@dataclass(frozen=True, slots=True)
class Check:
    """One published value and what came out here.

    id: which entry and field, as ``section/entry/field``.
    expected: the published value; got: the recomputed one, None where nothing was computed.
    tolerance: allowed difference, in words or as a number.
    ok: whether they agree.
    """

    id: str
    expected: Any
    got: Any
    tolerance: str
    ok: bool

    def line(self) -> str:
        """One plain line: verdict, id, both values, tolerance."""
        verdict = "ok  " if self.ok else "MISS"
        return (
            f"{verdict} {self.id}: expected {shown(self.expected)}, got {shown(self.got)} "
            f"({self.tolerance})"
        )

    def record(self) -> dict[str, Any]:
        """The JSON object {"id", "expected", "got", "tolerance", "ok"}."""
        return {
            "id": self.id,
            "expected": self.expected,
            "got": self.got,
            "tolerance": self.tolerance,
            "ok": self.ok,
        }


def shown(value: Any, *, limit: int = 120) -> str:
    """A value on one line, cut when it is long."""
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(slots=True)
class Report:
    """All checks of one reproduction and every value it computed.

    title: what was reproduced.
    checks: in the order of the published file.
    values: everything computed, in the published file's schema, also without a published value.
    notes: what a reader must know beside the numbers.
    """

    title: str
    checks: list[Check] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def misses(self) -> list[Check]:
        """The checks that failed."""
        return [c for c in self.checks if not c.ok]

    @property
    def ok(self) -> bool:
        """True when there were checks and all of them agree."""
        return bool(self.checks) and not self.misses

    @property
    def exit_code(self) -> ExitCode:
        """0 when everything agrees, 5 otherwise; no check at all is a failure too."""
        return ExitCode.DONE if self.ok else ExitCode.INTEGRITY

    def lines(self, *, only_misses: bool = False) -> list[str]:
        """One line per check, then notes and the count."""
        listed = self.misses if only_misses else self.checks
        summary = f"{self.title}: {len(self.checks) - len(self.misses)} of {len(self.checks)} agree"
        return [c.line() for c in listed] + [f"note {n}" for n in self.notes] + [summary]

    def to_dict(self) -> dict[str, Any]:
        """{"checks": [...], "values": {...}}, JSON-ready; non-finite numbers become null."""
        return {
            "checks": [finite(c.record()) for c in self.checks],
            "values": finite(self.values),
        }

    def write_json(self, path: Path) -> None:
        """Write it as JSON; a half-written file is never left behind."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", "utf-8")
        part.replace(path)

    def raise_for_misses(self) -> None:
        """Raise EvidenceError (exit code 5) naming the first misses, when there are any."""
        if self.ok:
            return
        if not self.checks:
            raise EvidenceError(f"{self.title}: nothing was checked")
        first = "; ".join(c.line() for c in self.misses[:3])
        raise EvidenceError(
            f"{self.title}: {len(self.misses)} of {len(self.checks)} published values were not "
            f"reproduced. First: {first}. The data or the expected file differ from the release, "
            "or a definition is wrong"
        )


def finite(value: Any) -> Any:
    """JSON-ready copy in which NaN and infinities are null."""
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    ready = plain(value)
    return None if ready in ("nan", "inf", "-inf") and not isinstance(value, str) else ready


def compare(check_id: str, expected: Any, got: Any, *, tolerance: Tolerance | None = None) -> Check:
    """One check of a scalar, a list or a mapping; lists and mappings agree in every part.

    Integers, booleans, texts and None agree when equal; floats within the tolerance. A missing
    key or a list of another length is a miss.
    """
    reach = tolerance or Tolerance()
    return Check(check_id, expected, got, str(reach), _agrees(expected, got, reach))


def _agrees(expected: Any, got: Any, reach: Tolerance) -> bool:
    if isinstance(expected, Mapping):
        return (
            isinstance(got, Mapping)
            and set(expected) <= set(got)
            and all(_agrees(v, got[k], reach) for k, v in expected.items())
        )
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return (
            isinstance(got, Sequence)
            and not isinstance(got, str)
            and len(expected) == len(got)
            and all(_agrees(a, b, reach) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return isinstance(expected, bool) and isinstance(got, bool) and expected == got
    if isinstance(expected, (int, float)):
        return isinstance(got, (int, float)) and reach.allows(float(expected), float(got))
    return bool(expected == got)
