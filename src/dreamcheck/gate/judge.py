"""From losses on the same fresh seeds to one word per case, and one for the checkpoint.

Source: spec/evidence.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from dreamcheck.gate.bank import Bank, BankEntry
from dreamcheck.stats import holm, sign_test

Word = Literal["fixed", "unchanged", "worse", "new", "not comparable"]
WORDS: tuple[Word, ...] = ("fixed", "unchanged", "worse", "new", "not comparable")
LEVEL = 0.05
"""Error rate of all claims of one direction over the bank, after Holm."""


@dataclass(frozen=True)
class Losses:
    """One checkpoint on the bank: per-seed losses by entry id (None: failed), and their risks."""

    identity: str
    label: str
    losses: Mapping[str, Sequence[float | None]]
    risks: Mapping[str, float | None]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseVerdict:
    """One entry's outcome.

    word: "fixed" and "worse" are exact one-sided sign tests over seeds, Holm over the bank; a
        failure is fixed only when its risk also falls to the level; "new" is an input that passed
        with the old model on these seeds, and fails with the new one, significantly higher.
    p_lower, p_higher: adjusted; the new model's loss is lower, or higher.
    """

    id: str
    role: str
    word: Word
    reason: str
    values: Mapping[str, Any] | None
    old_risk: float | None
    new_risk: float | None
    bank_risk: float
    lower: int
    higher: int
    p_lower: float | None
    p_higher: float | None


@dataclass(frozen=True)
class GateResult:
    """All cases of one gate run.

    regressed: any case is worse or new. null: the same counts for a second training run of the
    old recipe against the old checkpoint, where one was given: what chance of training alone does.
    """

    bank: str
    title: str
    levels: dict[str, float]
    unit: str
    seeds: tuple[int, ...]
    old: str
    new: str
    old_label: str
    new_label: str
    cases: tuple[CaseVerdict, ...]
    null: dict[str, int] | None
    null_label: str | None
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Cases by word."""
        return {w: sum(c.word == w for c in self.cases) for w in WORDS}

    @property
    def regressed(self) -> bool:
        """Whether the new checkpoint must be stopped."""
        return any(c.word in ("worse", "new") for c in self.cases)

    def mean_risk(self, role: str, *, of: Literal["old", "new", "bank"]) -> float | None:
        """Mean risk of a role's comparable cases; "bank" is as measured when the bank was made."""
        rows = [c for c in self.cases if c.role == role and c.word != "not comparable"]
        values = [getattr(c, f"{of}_risk") for c in rows]
        return float(np.mean(values)) if values else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        roles = sorted({c.role for c in self.cases})
        return {
            **{k: v for k, v in asdict(self).items() if k != "cases"},
            "regressed": self.regressed,
            "counts": {w.replace(" ", "_"): n for w, n in self.counts.items()},
            "mean_risk": {
                r: {of: self.mean_risk(r, of=of) for of in ("bank", "old", "new")} for r in roles
            },
            "cases": [asdict(c) for c in self.cases],
        }


def judge(bank: Bank, old: Losses, new: Losses) -> tuple[CaseVerdict, ...]:
    """The verdict of every entry, in the bank's order."""
    testable = [
        e
        for e in bank.entries
        if e.id not in old.failures
        and e.id not in new.failures
        and None not in (old.risks.get(e.id), new.risks.get(e.id))
    ]
    tests = {}
    for e in testable:
        change = np.array(new.losses[e.id], float) - np.array(old.losses[e.id], float)
        tests[e.id] = (
            sign_test(change, alternative="greater"),
            sign_test(-change, alternative="greater"),
        )
    higher = dict(zip(tests, holm([t[0].p for t in tests.values()]), strict=True)) if tests else {}
    lower = dict(zip(tests, holm([t[1].p for t in tests.values()]), strict=True)) if tests else {}
    return tuple(
        _word(bank, e, old, new, tests.get(e.id), lower.get(e.id), higher.get(e.id))
        for e in bank.entries
    )


def _word(
    bank: Bank, e: BankEntry, old: Losses, new: Losses, tests: Any, lower: Any, higher: Any
) -> CaseVerdict:
    level, unit = bank.measured.levels[e.specification], bank.measured.unit
    before, after = old.risks.get(e.id), new.risks.get(e.id)

    def case(word: Word, reason: str) -> CaseVerdict:
        return CaseVerdict(
            id=e.id,
            role=e.role,
            word=word,
            reason=reason,
            values=e.values,
            old_risk=before,
            new_risk=after,
            bank_risk=e.risk,
            lower=0 if tests is None else tests[1].wins,
            higher=0 if tests is None else tests[0].wins,
            p_lower=None if lower is None else float(lower),
            p_higher=None if higher is None else float(higher),
        )

    if tests is None or before is None or after is None:
        why = new.failures.get(e.id) or old.failures.get(e.id) or "no risk was measured"
        return case("not comparable", why)
    if higher <= LEVEL:
        if before <= level < after:
            return case("new", f"passed at {before:.2f}, fails at {after:.2f} {unit}")
        if not e.sentinel or after > level:
            return case("worse", f"{before:.2f} to {after:.2f} {unit}")
        return case("unchanged", f"higher, {before:.2f} to {after:.2f} {unit}, but still passes")
    if lower <= LEVEL and not e.sentinel:
        if after <= level:
            return case("fixed", f"{before:.2f} to {after:.2f} {unit}, below {level:.2f}")
        return case("unchanged", f"lower, {before:.2f} to {after:.2f} {unit}, but still fails")
    return case("unchanged", f"{before:.2f} and {after:.2f} {unit}")
