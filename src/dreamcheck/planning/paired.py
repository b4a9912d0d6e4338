"""Two checkpoints on identical episodes, or two recipes over their training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.planning.guarding import audit_text
from dreamcheck.planning.results import (
    ArmResult,
    Evaluation,
    Rate,
    rate_text,
    same_cases,
    same_evaluated,
)
from dreamcheck.stats import (
    NotTestable,
    bootstrap_interval,
    mcnemar_exact,
    needed_units,
    paired_counts,
    permutation_test,
    sign_flip_test,
)
from dreamcheck.stats.rates import (
    difference_paired_newcombe,
    difference_paired_wald,
    difference_unpaired_wald,
)
from dreamcheck.streams import stream

LEVEL = 0.05
FAR_APART = 0.4
"""Difference of overall rates above which effects carry a floor or ceiling warning (S16)."""


@dataclass(frozen=True, slots=True)
class Nested:
    """Whether one arm's failures contain the other's (S10).

    a_in_b: every failure of a is one of b. only_a, only_b: failures of one arm alone, with their
    start distances.
    """

    a_in_b: bool
    b_in_a: bool
    shared: tuple[str, ...]
    only_a: tuple[tuple[str, float], ...]
    only_b: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Comparison:
    """A against b, paired case by case.

    difference: mean of a's case means minus b's, over cases not already solved.
    low, high: its interval; kind says which: "paired Wald", or, where that has no width (every case
    has the same difference), "paired Newcombe score"; "bootstrap over cases" with several streams.
    unpaired_low, unpaired_high: the published Wald form,
    one stream only. test: "exact McNemar" or "sign-flip on case means".
    a_only, b_only: discordant cases, one stream only.
    verdict: in words, never "equal".
    """

    a: str
    b: str
    label: str
    num_cases: int
    num_streams: int
    rate_a: Rate
    rate_b: Rate
    difference: float
    low: float
    high: float
    kind: str
    unpaired_low: float | None
    unpaired_high: float | None
    test: str
    p: float
    a_only: int | None
    b_only: int | None
    nested: Nested
    verdict: str
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """The comparison for a console."""
        out = [
            f"{self.label}, {self.num_cases} episodes, {self.num_streams} planner stream(s)",
            f"  {self.a}: {rate_text(self.rate_a)}",
            f"  {self.b}: {rate_text(self.rate_b)}",
            f"  difference {self.difference:+.1%} [{self.low:+.1%}, {self.high:+.1%}] "
            f"({self.kind}); {self.test}, p = {self.p:.3g}",
        ]
        if self.a_only is not None:
            out.append(f"  solved by {self.a} only: {self.a_only}, by {self.b} only: {self.b_only}")
        failed = self.nested
        out.append(
            f"  failed by both: {len(failed.shared)}, by {self.a} only: {len(failed.only_a)}, by "
            f"{self.b} only: {len(failed.only_b)}"
        )
        for inner, outer, holds in (
            (self.a, self.b, failed.a_in_b),
            (self.b, self.a, failed.b_in_a),
        ):
            if holds:
                out.append(f"  every failure of {inner} is one of {outer} too")
        out += [f"  {w}" for w in self.warnings]
        return (*out, self.verdict)


def compare(a: Evaluation, b: Evaluation, *, name_a: str = "a", name_b: str = "b") -> Comparison:
    """Two checkpoints; episodes are the unit, so the claim is about these checkpoints only.

    Exact McNemar with one planner stream, a sign-flip test on case means with several.

    Raises:
        UsageError: other cases, another goal rule, offset or budget, or a model repaired in one
            arm only (stamps differ).
    """
    for key in (
        "goal_rule", "offset", "budget_steps", "success", "success_radius", "collision",
        "perturbation",
    ):  # fmt: skip
        one, two = a.realised.protocol.get(key), b.realised.protocol.get(key)
        if one != two:
            raise UsageError(
                f"{key} is {one!r} in {name_a} and {two!r} in {name_b}: these rates answer "
                "different questions. Run both under one protocol."
            )
    if set(a.stamps) != set(b.stamps):
        raise UsageError(
            f"{name_a} carries the stamps {sorted(a.stamps)} and {name_b} {sorted(b.stamps)}: a "
            "failed guard on one side only makes the comparison one of guards."
        )
    same_evaluated(a, b)
    same_audit(a, b, name_a, name_b)
    return compare_arms(a.planner, b.planner, label=a.label, name_a=name_a, name_b=name_b)


def same_audit(a: Evaluation, b: Evaluation, name_a: str, name_b: str) -> None:
    """Refuse when stale normalisation statistics distort one arm and not the other (B8).

    Raises:
        UsageError: the audit found one of them wrong and the other fine.
    """
    audits = [e.realised.norm_audit for e in (a, b)]
    verdicts = [None if x is None else x["verdict"] for x in audits]
    if "wrong" in verdicts and "fine" in verdicts:
        raise UsageError(
            f"the normalisation audit says {audit_text(audits[0])} of {name_a} and "
            f"{audit_text(audits[1])} of {name_b}: a repaired and an unrepaired checkpoint differ by "
            "the repair. Recalibrate the other one too: dreamcheck doctor CKPT --recalibrate OUT."
        )


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The difference of two success tables case by case; fields as in ``Comparison``."""

    difference: float
    low: float
    high: float
    kind: str
    unpaired_low: float | None
    unpaired_high: float | None
    test: str
    p: float
    a_only: int | None
    b_only: int | None


def paired_test(first: np.ndarray, second: np.ndarray, *, label: str, names: str) -> PairedTest:
    """First minus second: exact McNemar with one stream, a sign flip on case means with several.

    Args:
        first, second: success of the same cases and streams, [cases, streams], at least one case.
        label, names: protocol and arms; they name the streams of the bootstrap and the sign flips.
    """
    cases, streams = first.shape
    gaps = first.mean(axis=1) - second.mean(axis=1)
    if streams == 1:
        counts = paired_counts(first[:, 0], second[:, 0])
        paired = difference_paired_wald(counts)
        if paired.interval.width == 0:
            # All cases alike: Wald would claim certainty from a handful of episodes.
            paired = difference_paired_newcombe(counts)
        free = difference_unpaired_wald(int(first.sum()), cases, int(second.sum()), cases).interval
        return PairedTest(
            float(gaps.mean()), paired.interval.low, paired.interval.high, paired.method,
            free.low, free.high, "exact McNemar", mcnemar_exact(counts.a_only, counts.b_only),
            counts.a_only, counts.b_only,
        )  # fmt: skip
    flipped = sign_flip_test(gaps, rng=stream(0, "sign-flip", f"{label}/{names}"))
    low = high = float(gaps.mean())
    kind = "degenerate: every case has the same difference"
    if cases > 1 and np.ptp(gaps) > 0:
        boot = bootstrap_interval(gaps, root_seed=0, identity=f"compare/{label}")
        low, high, kind = boot.low, boot.high, "bootstrap over cases"
    return PairedTest(
        float(gaps.mean()), low, high, kind, None, None, "sign-flip on case means", flipped.p,
        None, None,
    )  # fmt: skip


def compare_arms(
    a: ArmResult, b: ArmResult, *, label: str, name_a: str = "a", name_b: str = "b"
) -> Comparison:
    """Two arms on the same cases.

    Raises:
        UsageError: their cases or start distances differ.
    """
    same_cases(a, b)
    ids, first = a.table()
    _, second = b.table()
    _, trivial = a.table("trivial")
    keep = trivial[:, 0] == 0
    ids = [i for i, k in zip(ids, keep, strict=True) if k]
    first, second = first[keep], second[keep]
    if len(ids) == 0:
        raise UsageError("every start is already solved: there is nothing to compare.")
    found = paired_test(first, second, label=label, names=f"{name_a}/{name_b}")
    assert a.success is not None and b.success is not None
    warnings = []
    if abs(a.success.value - b.success.value) > FAR_APART or _extreme(a) or _extreme(b):
        warnings.append("success is near its floor or ceiling in one arm: effect sizes are bounded")
    return Comparison(
        a=name_a,
        b=name_b,
        label=label,
        num_cases=len(ids),
        num_streams=first.shape[1],
        rate_a=a.success,
        rate_b=b.success,
        **asdict(found),
        nested=_nested(a, ids, first, second),
        verdict=verdict(found.p, found.difference, name_a, name_b, len(ids)),
        warnings=tuple(warnings),
    )


def verdict(p: float, difference: float, name_a: str, name_b: str, num_cases: int) -> str:
    """The finding in words (S8): established, or not established at this sample size."""
    if p < LEVEL and difference != 0:
        better, worse = (name_a, name_b) if difference > 0 else (name_b, name_a)
        return f"{better} succeeds more often than {worse} on these episodes (p = {p:.3g})"
    return (
        f"a difference between {name_a} and {name_b} is not established at this sample size "
        f"({num_cases} episodes, p = {p:.3g})"
    )


def _extreme(arm: ArmResult) -> bool:
    return arm.success is not None and not 0.05 <= arm.success.value <= 0.95


def _nested(a: ArmResult, ids: Sequence[str], first: np.ndarray, second: np.ndarray) -> Nested:
    distance = {o.case: o.start_distance for o in a.outcomes}
    failed_a = {i for i, row in zip(ids, first, strict=True) if row.mean() < 0.5}
    failed_b = {i for i, row in zip(ids, second, strict=True) if row.mean() < 0.5}
    order = list(ids)
    return Nested(
        a_in_b=failed_a <= failed_b,
        b_in_a=failed_b <= failed_a,
        shared=tuple(i for i in order if i in failed_a & failed_b),
        only_a=tuple((i, distance[i]) for i in order if i in failed_a - failed_b),
        only_b=tuple((i, distance[i]) for i in order if i in failed_b - failed_a),
    )


@dataclass(frozen=True)
class RecipeComparison:
    """Two recipes over their training runs; the run is the unit."""

    a: str
    b: str
    label: str
    run_rates_a: tuple[float, ...]
    run_rates_b: tuple[float, ...]
    difference: float
    p: float
    smallest_p: float
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """The comparison for a console."""

        def rates(values: tuple[float, ...]) -> str:
            return ", ".join(f"{v:.1%}" for v in values)

        return (
            f"{self.label}; the unit is the training run",
            f"  {self.a}: {rates(self.run_rates_a)}",
            f"  {self.b}: {rates(self.run_rates_b)}",
            f"  difference {self.difference:+.1%}; exact permutation p = {self.p:.3g} (smallest "
            f"possible {self.smallest_p:.3g})",
            self.verdict,
        )


def compare_recipes(
    a: Sequence[Evaluation],
    b: Sequence[Evaluation],
    *,
    name_a: str = "a",
    name_b: str = "b",
    level: float = LEVEL,
) -> RecipeComparison:
    """Exact permutation test over training runs.

    Raises:
        NotTestable: fewer runs than the level can be reached with; ``needed`` says how many.
        UsageError: runs were evaluated on different episodes, or one checkpoint appears twice.
    """
    both = [*a, *b]
    if not a or not b:
        raise UsageError("a recipe needs at least one training run.")
    identities = [e.realised.model for e in both]
    if len(set(identities)) < len(identities):
        raise UsageError(
            "one checkpoint appears twice: evaluations of one checkpoint are not training runs."
        )
    for other in both[1:]:
        same_evaluated(both[0], other)
    needed = needed_units(level=level)
    if min(len(a), len(b)) < needed:
        raise NotTestable(
            f"{name_a} has {len(a)} training run(s) and {name_b} {len(b)}; a claim about a recipe "
            f"at level {level:g} needs at least {needed} runs of each (the smallest two-sided p of "
            "k against k runs is 2 / C(2k, k)). Episodes speak for one checkpoint only: use "
            "unit = 'checkpoint' (--unit checkpoint) for that claim.",
            given=(len(a), len(b)),
            needed=needed,
        )
    rates_a = tuple(_headline(e) for e in a)
    rates_b = tuple(_headline(e) for e in b)
    test = permutation_test(rates_a, rates_b, minimum_units=needed)
    return RecipeComparison(
        a=name_a,
        b=name_b,
        label=both[0].label,
        run_rates_a=rates_a,
        run_rates_b=rates_b,
        difference=test.difference,
        p=test.p,
        smallest_p=test.smallest_p,
        verdict=(
            f"recipe {name_a if test.difference > 0 else name_b} succeeds more often (p = "
            f"{test.p:.3g}, {len(a)} against {len(b)} runs)"
            if test.p < level
            else f"a difference between the recipes is not established at this number of runs "
            f"({len(a)} against {len(b)}, p = {test.p:.3g})"
        ),
    )


def _headline(e: Evaluation) -> float:
    if e.planner.success is None:
        raise UsageError("every start is already solved: there is no rate to compare.")
    return e.planner.success.value


def bands(
    arms: Mapping[str, ArmResult], edges: Sequence[float] = (0, 40, 80, 120, 160, 240)
) -> list[dict[str, Any]]:
    """Success per band of start distance, every band with its n, the farthest included (S11)."""
    out = []
    some = next(iter(arms.values()))
    distance = some.table("start_distance")[1][:, 0]
    edges = [*edges[:-1], max(edges[-1], float(distance.max()) + 1)]
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        inside = (distance >= low) & (distance < high)
        row: dict[str, Any] = {"low": low, "high": high, "num_cases": int(inside.sum())}
        for name, arm in arms.items():
            table = arm.table()[1]
            row[name] = float(table[inside].mean()) if inside.any() else None
        out.append(row)
    return out
