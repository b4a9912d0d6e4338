"""What a replay shows: each method's figures and the paper's paired tests.

The tests pair restarts over one score table. They are the paper's, labelled as conditional on that
table; a claim that one method beats another needs independent tables (``discovery.between``;
spec/evidence.md section 7).
Source: spec/discovery.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.discovery.coverage import ReferenceComponents, reference_components
from dreamcheck.discovery.replay import Replay, Runs
from dreamcheck.errors import UsageError
from dreamcheck.stats import (
    PAPER_THRESHOLDS,
    MeanSem,
    SignTest,
    WinLossTie,
    first_hit_step,
    hit_indicators,
    mcnemar_exact,
    mean_sem,
    paired_counts,
    sign_test,
    threshold_averaged_hits,
    win_loss_tie,
)

CONDITION = "paper mode: paired restarts over one score table, conditional on that table"


@dataclass(frozen=True, slots=True)
class TopFound:
    """What the restarts of one method found of the table's top q%.

    hit: share of restarts that evaluate at least one top-q% input.
    count, coverage: top-q% inputs evaluated, and C_q, means over restarts.
    """

    hit: float
    count: MeanSem
    coverage: MeanSem


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One method over all restarts. Thresholds are integers over 100.

    best: reported best score.
    hit_rates: threshold -> share of restarts whose best reaches it.
    averaged_hits: share of thresholds reached, averaged inside each run.
    first_hit: threshold -> mean first query that reaches it; budget + 1 when never.
    top: q -> what was found of the top q%.
    """

    name: str
    best: MeanSem
    hit_rates: Mapping[int, float]
    averaged_hits: MeanSem
    first_hit: Mapping[int, MeanSem]
    top: Mapping[int, TopFound]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A method against a comparator, one-sided for the method.

    best: sign test of the best scores; win_loss_tie: theirs; difference: mean of method's minus
        comparator's.
    hits: threshold -> exact McNemar p; averaged_hits: sign test.
    first_hit: threshold -> sign test of the capped first-hit steps; first_hit_gain: mean of
        comparator's minus method's.
    top_hits: q -> exact McNemar p; coverage: q -> sign test of C_q.
    condition: what the p-values are conditional on.
    """

    method: str
    comparator: str
    difference: float
    best: SignTest
    win_loss_tie: WinLossTie
    hits: Mapping[int, float]
    averaged_hits: SignTest
    first_hit: Mapping[int, SignTest]
    first_hit_gain: Mapping[int, float]
    top_hits: Mapping[int, float]
    coverage: Mapping[int, SignTest]
    condition: str = CONDITION


@dataclass(frozen=True, slots=True)
class Comparison:
    """All methods of a replay, and each pair asked for.

    never_crossed: thresholds that no run of any method reached; rates there are zero for all.
    """

    budget: int
    num_restarts: int
    methods: tuple[MethodSummary, ...]
    pairs: tuple[PairedComparison, ...]
    thresholds: tuple[int, ...]
    averaged: tuple[int, ...]
    never_crossed: tuple[int, ...]
    top_percents: tuple[int, ...]

    def method(self, name: str) -> MethodSummary:
        """One method's summary."""
        return next(m for m in self.methods if m.name == name)


@dataclass(frozen=True, slots=True)
class _Readings:
    """Per restart of one method: first-hit steps by threshold; top inputs and C_q by q."""

    best: np.ndarray
    averaged: np.ndarray
    first: Mapping[int, np.ndarray]
    count: Mapping[int, np.ndarray]
    covered: Mapping[int, np.ndarray]


def compare(
    replay: Replay,
    *,
    thresholds: Sequence[int] = (155, 160, 162),
    averaged: Sequence[int] = PAPER_THRESHOLDS,
    top_percents: Sequence[int] = (5,),
    method: str | None = None,
) -> Comparison:
    """Summaries of every method, and paired tests of one against each other.

    Args:
        replay: paired runs.
        thresholds: integers over 100.
        averaged: thresholds of the threshold-averaged hit rate.
        top_percents: q of each top set.
        method: the one whose advantage is tested; no pairs when None.

    Raises:
        UsageError: the method is not in the replay.
    """
    if method is not None and method not in replay.runs:
        raise UsageError(f"{method!r} was not replayed; these were: {', '.join(replay.runs)}.")
    table = replay.table
    references = {
        q: reference_components(table.library, table.scores, percent=q, failed=table.failed)
        for q in top_percents
    }
    read = {
        name: _read(runs, references, thresholds, averaged, budget=replay.budget)
        for name, runs in replay.runs.items()
    }
    return Comparison(
        budget=replay.budget,
        num_restarts=len(replay.restarts),
        methods=tuple(_summary(name, r) for name, r in read.items()),
        pairs=tuple(
            _pair(method, read[method], other, r)
            for other, r in read.items()
            if method is not None and other != method
        ),
        thresholds=tuple(thresholds),
        averaged=tuple(averaged),
        never_crossed=tuple(
            t for t in thresholds if not any(hit_indicators(r.best, t).any() for r in read.values())
        ),
        top_percents=tuple(top_percents),
    )


def _read(
    runs: Runs,
    references: Mapping[int, ReferenceComponents],
    thresholds: Sequence[int],
    averaged: Sequence[int],
    *,
    budget: int,
) -> _Readings:
    asked = runs.queries >= 0
    return _Readings(
        best=runs.best,
        averaged=threshold_averaged_hits(runs.best, thresholds=averaged),
        first={
            t: np.array([first_hit_step(row, t, budget=budget) for row in runs.scores])
            for t in thresholds
        },
        count={
            q: ((r.component[runs.queries] >= 0) & asked).sum(axis=1) for q, r in references.items()
        },
        covered={
            q: np.array([r.coverage(row[row >= 0]) for row in runs.queries])
            for q, r in references.items()
        },
    )


def _summary(name: str, r: _Readings) -> MethodSummary:
    return MethodSummary(
        name=name,
        best=mean_sem(r.best),
        hit_rates={t: float(hit_indicators(r.best, t).mean()) for t in r.first},
        averaged_hits=mean_sem(r.averaged),
        first_hit={t: mean_sem(steps) for t, steps in r.first.items()},
        top={
            q: TopFound(
                hit=float((count > 0).mean()),
                count=mean_sem(count),
                coverage=mean_sem(r.covered[q]),
            )
            for q, count in r.count.items()
        },
    )


def _pair(method: str, a: _Readings, comparator: str, b: _Readings) -> PairedComparison:
    gains = {t: b.first[t] - a.first[t] for t in a.first}
    return PairedComparison(
        method=method,
        comparator=comparator,
        difference=float((a.best - b.best).mean()),
        best=sign_test(a.best - b.best, alternative="greater"),
        win_loss_tie=win_loss_tie(a.best, b.best),
        hits={t: _mcnemar(hit_indicators(a.best, t), hit_indicators(b.best, t)) for t in a.first},
        averaged_hits=sign_test(a.averaged - b.averaged, alternative="greater"),
        first_hit={t: sign_test(g, alternative="greater") for t, g in gains.items()},
        first_hit_gain={t: float(g.mean()) for t, g in gains.items()},
        top_hits={q: _mcnemar(a.count[q] > 0, b.count[q] > 0) for q in a.count},
        coverage={
            q: sign_test(a.covered[q] - b.covered[q], alternative="greater") for q in a.covered
        },
    )


def _mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    counts = paired_counts(a, b)
    return mcnemar_exact(counts.a_only, counts.b_only, alternative="greater")
