"""Choosing screening thresholds on some tasks and testing them on others.

Means are compared as fractions. ``arithmetic="released_float"`` repeats the release's float
arithmetic by name: its level differences in floating point change a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal

import numpy as np

from dreamcheck.diagnostics.consistency.screening import Block
from dreamcheck.errors import UsageError
from dreamcheck.stats import exact_decimal

Arithmetic = Literal["exact", "released_float"]
T_IR_GRID = (0.05, 0.075, 0.10, 0.15, 0.20, 0.30)
T_SR_GRID = (0.80, 0.85, 0.90, 0.95)
# One of (first accepted, first recovered) exists and the other does not: 1.0 in the release's
# sigma units, a hundred levels. 9, 10 and 100 choose alike on the released data.
MISS_STEPS = 100


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """Accepted against recovered levels of one block; indices count levels from 0."""

    task: str
    run: int
    first_recovered: int | None
    first_accepted: int | None
    tp: int
    tn: int
    fp: int
    fn: int
    early: int
    levels: int

    @property
    def step_gap(self) -> int:
        """|first accepted - first recovered| in levels; 0 when neither is, MISS_STEPS when one is."""
        if self.first_accepted is None and self.first_recovered is None:
            return 0
        if self.first_accepted is None or self.first_recovered is None:
            return MISS_STEPS
        return abs(self.first_accepted - self.first_recovered)

    @property
    def balanced_accuracy(self) -> Fraction:
        """Mean of sensitivity and specificity, the defined one alone when a class is absent."""
        parts = []
        if self.tp + self.fn:
            parts.append(Fraction(self.tp, self.tp + self.fn))
        if self.tn + self.fp:
            parts.append(Fraction(self.tn, self.tn + self.fp))
        return sum(parts, Fraction(0)) / len(parts)

    @property
    def precision(self) -> Fraction | None:
        """Recovered share of the accepted; undefined when nothing was accepted."""
        return Fraction(self.tp, self.tp + self.fp) if self.tp + self.fp else None

    @property
    def recall(self) -> Fraction | None:
        """Accepted share of the recovered; undefined when nothing recovered."""
        return Fraction(self.tp, self.tp + self.fn) if self.tp + self.fn else None


def block_outcome(block: Block, *, t_ir: float, t_sr: float) -> BlockOutcome:
    """Accepted against recovered levels of one block at one pair of thresholds."""
    accepted, recovered = block.accepted(t_ir=t_ir, t_sr=t_sr), block.recovered
    pairs = list(zip(accepted, recovered, strict=True))
    first_recovered = recovered.index(True) if True in recovered else None
    below = len(recovered) if first_recovered is None else first_recovered
    return BlockOutcome(
        task=block.task,
        run=block.run,
        first_recovered=first_recovered,
        first_accepted=accepted.index(True) if True in accepted else None,
        tp=sum(a and r for a, r in pairs),
        tn=sum(not a and not r for a, r in pairs),
        fp=sum(a and not r for a, r in pairs),
        fn=sum(r and not a for a, r in pairs),
        early=sum(accepted[:below]),
        levels=len(pairs),
    )


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A chosen pair and what it minimised, in the order of comparison (section 9)."""

    t_ir: float
    t_sr: float
    mean_gap: float
    early: int
    late: int
    balanced_accuracy: float


def choose_thresholds(
    blocks: Sequence[Block],
    *,
    arithmetic: Arithmetic = "exact",
    t_ir_grid: Sequence[float] = T_IR_GRID,
    t_sr_grid: Sequence[float] = T_SR_GRID,
) -> Thresholds:
    """The pair of thresholds that best finds the first recovered level on the source blocks.

    Minimises, in order: mean step gap, early acceptances, late acceptances, minus mean balanced
    accuracy, t_IR, minus t_SR.

    Args:
        arithmetic: "exact" compares fractions; "released_float" takes gaps as differences of
            sigma values in floating point, where 0.03 - 0.02 < 0.02 - 0.01 decides what is a tie.

    Source: consistency.md sections 9 and 16.1.
    """
    if not blocks:
        raise UsageError("no source blocks to choose thresholds on")

    def key(pair: tuple[float, float]) -> tuple:
        outcomes = [block_outcome(b, t_ir=pair[0], t_sr=pair[1]) for b in blocks]
        early, late = sum(o.early for o in outcomes), sum(o.fn for o in outcomes)
        if arithmetic == "exact":
            gap: Fraction | float = Fraction(sum(o.step_gap for o in outcomes), len(outcomes))
            accuracy: Fraction | float = sum(
                (o.balanced_accuracy for o in outcomes), Fraction(0)
            ) / len(outcomes)
        else:
            gap = float(np.mean(_float_gaps(blocks, outcomes)))
            accuracy = float(np.mean([float(o.balanced_accuracy) for o in outcomes]))
        return (gap, early, late, -accuracy, exact_decimal(pair[0]), -exact_decimal(pair[1]))

    best = min(((i, s) for i in t_ir_grid for s in t_sr_grid), key=key)
    gap, early, late, accuracy, _, _ = key(best)
    steps = float(gap) if arithmetic == "exact" else float(gap) * MISS_STEPS
    return Thresholds(best[0], best[1], steps, early, late, -float(accuracy))


def _float_gaps(blocks: Sequence[Block], outcomes: Sequence[BlockOutcome]) -> list[float]:
    """Gaps in sigma units, as the release subtracts them; a miss is 1.0."""
    gaps = []
    for block, o in zip(blocks, outcomes, strict=True):
        if o.first_accepted is None or o.first_recovered is None:
            gaps.append(0.0 if o.first_accepted is o.first_recovered else 1.0)
        else:
            sigma = [level.sigma_max for level in block.levels]
            gaps.append(abs(sigma[o.first_accepted] - sigma[o.first_recovered]))
    return gaps


@dataclass(frozen=True, slots=True)
class Metrics:
    """How a pair of thresholds does on blocks it was not chosen on.

    Every figure averages runs inside a task and then tasks equally; ``max_step_gap`` is the worst
    block. precision and recall are None when undefined in every block.
    undefined_precision, undefined_recall: blocks that were skipped for it.
    """

    balanced_accuracy: float
    precision: float | None
    recall: float | None
    mean_step_gap: float
    max_step_gap: int
    undefined_precision: int
    undefined_recall: int


@dataclass(frozen=True, slots=True)
class Split:
    """Thresholds chosen on source tasks and tested on the others."""

    source: tuple[str, ...]
    test: tuple[str, ...]
    thresholds: Thresholds
    outcomes: tuple[BlockOutcome, ...]
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """Splits with the same number of source tasks, pooled inside each test task first.

    balanced_accuracy_range: smallest and largest over the splits.
    """

    num_source_tasks: int
    metrics: Metrics
    balanced_accuracy_range: tuple[float, float]


def _tasks(blocks: Sequence[Block]) -> list[str]:
    return list(dict.fromkeys(b.task for b in blocks))


def _mean(values: Sequence[Fraction | None]) -> Fraction | None:
    defined = [v for v in values if v is not None]
    return sum(defined, Fraction(0)) / len(defined) if defined else None


def _metrics(outcomes_by_task: Sequence[Sequence[BlockOutcome]]) -> Metrics:
    """Metrics of outcomes grouped by test task: mean inside each group, then over groups."""

    def average(of: Callable[[BlockOutcome], Fraction | None]) -> Fraction | None:
        return _mean([_mean([of(o) for o in group]) for group in outcomes_by_task])

    every = [o for group in outcomes_by_task for o in group]
    precision, recall = average(lambda o: o.precision), average(lambda o: o.recall)
    accuracy, gap = average(lambda o: o.balanced_accuracy), average(lambda o: Fraction(o.step_gap))
    assert accuracy is not None and gap is not None  # every block has both
    return Metrics(
        balanced_accuracy=float(accuracy),
        precision=None if precision is None else float(precision),
        recall=None if recall is None else float(recall),
        mean_step_gap=float(gap),
        max_step_gap=max(o.step_gap for o in every),
        undefined_precision=sum(o.precision is None for o in every),
        undefined_recall=sum(o.recall is None for o in every),
    )


def transfer_splits(blocks: Sequence[Block], *, arithmetic: Arithmetic = "exact") -> list[Split]:
    """Every split of the tasks into sources and tests: choose on the one, measure on the other.

    Splits come by number of source tasks, tasks in the order of the blocks. They overlap: neither
    splits nor checkpoints are independent.

    Raises:
        UsageError: fewer than two tasks.
    """
    tasks = _tasks(blocks)
    if len(tasks) < 2:
        raise UsageError(f"thresholds transfer between tasks; the blocks hold only {tasks}")
    splits = []
    for size in range(1, len(tasks)):
        for source in combinations(tasks, size):
            test = tuple(t for t in tasks if t not in source)
            chosen = choose_thresholds(
                [b for b in blocks if b.task in source], arithmetic=arithmetic
            )
            by_task = [
                [
                    block_outcome(b, t_ir=chosen.t_ir, t_sr=chosen.t_sr)
                    for b in blocks
                    if b.task == task
                ]
                for task in test
            ]
            splits.append(
                Split(
                    source=source,
                    test=test,
                    thresholds=chosen,
                    outcomes=tuple(o for group in by_task for o in group),
                    metrics=_metrics(by_task),
                )
            )
    return splits


def summarise(splits: Sequence[Split], *, num_source_tasks: int) -> SplitSummary:
    """Average over the splits with so many source tasks, pooled within each test task first."""
    chosen = [s for s in splits if len(s.source) == num_source_tasks]
    if not chosen:
        raise UsageError(f"no split has {num_source_tasks} source tasks")
    tasks = list(dict.fromkeys(t for s in chosen for t in s.test))
    grouped = [[o for s in chosen for o in s.outcomes if o.task == t] for t in tasks]
    accuracies = [s.metrics.balanced_accuracy for s in chosen]
    return SplitSummary(num_source_tasks, _metrics(grouped), (min(accuracies), max(accuracies)))
