"""Does one-step error order planning success, at a short and at a long horizon? (H1-H5)"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy import stats as sps

from dreamcheck.errors import UsageError
from dreamcheck.planning.budget_response import BudgetResponse, budget_response
from dreamcheck.planning.guarding import audit_text
from dreamcheck.planning.paired import compare_arms, same_audit
from dreamcheck.planning.results import Evaluation, same_evaluated
from dreamcheck.stats.multiplicity import holm


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint's error and its two evaluations.

    one_step_error: mean prediction error over the frozen world's (C7); below 1 beats standing
        still. encoding: how it was measured.
    short, long: evaluations at the two horizons, each on the same cases for all checkpoints.
    attributes: context length, action width, ...: looked through for confounds (H4).
    """

    name: str
    one_step_error: float
    short: Evaluation
    long: Evaluation
    encoding: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def audit(self) -> str:
        """What the normalisation audit said before planning, in a few words (B8)."""
        return audit_text(self.short.realised.norm_audit)


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint at one horizon. gap_to_random: mean final distance minus the control's."""

    name: str
    one_step_error: float
    success: float
    low: float
    high: float
    mean_final_distance: float
    gap_to_random: float | None
    overshoot: bool | None
    encoding: str
    audit: str


@dataclass(frozen=True)
class Horizon:
    """One horizon over all checkpoints.

    monotone: success strictly rises as error strictly falls. rank_correlation: Spearman's of
        error and success over the num_checkpoints; None with fewer than three, or where one of
        them does not vary. best_by_error: what selection by one-step error picks; best: the most
        successful, all of them where several tie.
    pairs: every two checkpoints on the same cases (S3): difference, test, p, p_holm over this
        horizon's pairs, a_only and b_only (cases won by one alone, one stream), verdict.
    """

    label: str
    rows: tuple[Row, ...]
    monotone: bool
    rank_correlation: float | None
    num_checkpoints: int
    best_by_error: str
    best: str
    pairs: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Dissociation:
    """The analysis over both horizons, and the sentence it licenses.

    confounds: attributes aligned with ``split``, each with its values (H4).
    budget: per checkpoint, what the long horizon's larger budget alone brings (H3); empty where
        ``budget_reason`` says why.
    """

    short: Horizon
    long: Horizon
    dissociated: bool
    confounds: tuple[str, ...]
    sentence: str
    unit: str
    split: str = ""
    budget: tuple[BudgetResponse, ...] = ()
    budget_reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """The table for a console."""
        out = []
        for horizon in (self.short, self.long):
            out.append(f"{horizon.label}:")
            for r in horizon.rows:
                gap = "" if r.gap_to_random is None else f", {r.gap_to_random:+.1f} to random"
                out.append(
                    f"  {r.name}: one-step error {r.one_step_error:.3f}, success {r.success:.1%} "
                    f"[{r.low:.1%}, {r.high:.1%}], mean final distance "
                    f"{r.mean_final_distance:.1f} {self.unit}{gap}"
                )
            rank = horizon.rank_correlation
            said = "not defined" if rank is None else f"{rank:.2f}"
            out.append(
                f"  rank correlation of error and success: {said} (n = {horizon.num_checkpoints})"
            )
            out += [f"  {p['verdict']}" for p in horizon.pairs]
        out += [b.verdict for b in self.budget]
        if self.budget_reason:
            out.append(f"budget response not given: {self.budget_reason}")
        if self.confounds:
            out.append(f"aligned with {self.split}: {'; '.join(self.confounds)}")
        return (*out, self.sentence)


def dissociation(checkpoints: Sequence[Checkpoint]) -> Dissociation:
    """The analysis over two or more checkpoints, on common cases per horizon.

    Verdict "dissociated" exactly when success is monotone in one-step error at the short horizon
    and not at the long one.

    Raises:
        UsageError: fewer than two checkpoints, other cases, mixed encodings of the error, or stale
            normalisation statistics in some checkpoints and not in others.
    """
    if len(checkpoints) < 2:
        raise UsageError("a dissociation needs at least two checkpoints.")
    encodings = {c.encoding for c in checkpoints}
    if len(encodings) > 1:
        raise UsageError(
            f"one-step errors were measured under different encodings {sorted(encodings)}: ratios "
            "from different encodings are not comparable (C7)."
        )
    for a, b in itertools.combinations(checkpoints, 2):
        same_audit(a.short, b.short, a.name, b.name)
    short = _horizon([(c, c.short) for c in checkpoints])
    long = _horizon([(c, c.long) for c in checkpoints])
    dissociated = short.monotone and not long.monotone
    split, confounds = _confounds(checkpoints)
    budget, reason = _budget(checkpoints)
    return Dissociation(
        short=short,
        long=long,
        dissociated=dissociated,
        confounds=confounds,
        sentence=_sentence(short, long, dissociated),
        unit=checkpoints[0].short.unit,
        split=split,
        budget=budget,
        budget_reason=reason,
    )


def _horizon(arms: Sequence[tuple[Checkpoint, Evaluation]]) -> Horizon:
    first = arms[0][1]
    for _, e in arms[1:]:
        same_evaluated(first, e)
        if e.label != first.label:
            raise UsageError(f"{e.label} and {first.label} are two protocols, not one horizon.")
    ordered = sorted(arms, key=lambda pair: -pair[0].one_step_error)
    rows = []
    for checkpoint, e in ordered:
        if e.planner.success is None:
            raise UsageError("every start is already solved: there is no rate to order.")
        random = e.controls.get("random")
        gap = None
        if random is not None:
            gap = e.planner.mean_final_distance - random.mean_final_distance
        rows.append(
            Row(
                checkpoint.name,
                checkpoint.one_step_error,
                e.planner.success.value,
                e.planner.success.low,
                e.planner.success.high,
                e.planner.mean_final_distance,
                gap,
                e.planner.overshoot,
                checkpoint.encoding,
                checkpoint.audit,
            )
        )
    errors = np.array([r.one_step_error for r in rows])
    rates = np.array([r.success for r in rows])
    correlation = None
    if len(rows) >= 3 and np.ptp(errors) > 0 and np.ptp(rates) > 0:
        correlation = float(sps.spearmanr(errors, rates).statistic)
    found = [
        compare_arms(ea.planner, eb.planner, label=first.label, name_a=a.name, name_b=b.name)
        for (a, ea), (b, eb) in itertools.combinations(ordered, 2)
    ]
    adjusted = holm([c.p for c in found])
    pairs = tuple(
        {"a": c.a, "b": c.b, "difference": c.difference, "low": c.low, "high": c.high, "p": c.p,
         "p_holm": float(h), "test": c.test, "a_only": c.a_only, "b_only": c.b_only,
         "verdict": c.verdict}
        for c, h in zip(found, adjusted, strict=True)
    )  # fmt: skip
    return Horizon(
        label=first.label,
        rows=tuple(rows),
        monotone=bool((np.diff(errors) < 0).all() and (np.diff(rates) > 0).all()),
        rank_correlation=correlation,
        num_checkpoints=len(rows),
        best_by_error=rows[-1].name,
        best=" and ".join(r.name for r in rows if r.success == rates.max()),
        pairs=pairs,
    )


def _confounds(checkpoints: Sequence[Checkpoint]) -> tuple[str, tuple[str, ...]]:
    """What the checkpoints are split by, and the attributes perfectly aligned with it (H4).

    The split is overshoot at the long horizon; where all or none overshoots, success above the
    middle of its range.
    """
    overshoot = [c.long.planner.overshoot for c in checkpoints]
    if set(overshoot) == {True, False}:
        split, high = "overshoot at the long horizon", [bool(o) for o in overshoot]
    else:
        split = "success at the long horizon above the middle of its range"
        rates = [
            0.0 if c.long.planner.success is None else c.long.planner.success.value
            for c in checkpoints
        ]
        high = [r > (min(rates) + max(rates)) / 2 for r in rates]
    out = []
    for name in sorted({k for c in checkpoints for k in c.attributes}):
        values = [str(c.attributes.get(name)) for c in checkpoints]
        inside = {v for v, h in zip(values, high, strict=True) if h}
        outside = {v for v, h in zip(values, high, strict=True) if not h}
        if inside and outside and not inside & outside:
            said = ", ".join(f"{c.name} {v}" for c, v in zip(checkpoints, values, strict=True))
            out.append(f"{name}: {said}")
    return split, tuple(out)


def _budget(checkpoints: Sequence[Checkpoint]) -> tuple[tuple[BudgetResponse, ...], str]:
    """From the short horizon's budget to the long one's, at the long one's goals (H3)."""
    first = checkpoints[0]
    budget = int(first.short.realised.protocol["budget_steps"])
    try:
        ordered = sorted(checkpoints, key=lambda c: -c.one_step_error)
        return tuple(budget_response(c.long, budget, name=c.name) for c in ordered), ""
    except UsageError as e:
        return (), str(e)


def _sentence(short: Horizon, long: Horizon, dissociated: bool) -> str:
    picks = (
        f"Selection by one-step error picks {short.best_by_error} at either horizon; most successful "
        f"is {short.best} at {short.label} and {long.best} at {long.label}"
    )
    if dissociated:
        return picks + ": one-step error orders the short horizon and not the long one."
    if short.monotone and long.monotone:
        return picks + ": one-step error orders both horizons here."
    return picks + ": one-step error does not order the short horizon, so nothing dissociates."
