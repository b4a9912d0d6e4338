"""What a replay shows: each method's figures and the paper's paired tests.

The tests pair restarts over one score table. They are the paper's, labelled as conditional on that
table; a claim that one method beats another needs independent tables (spec/evidence.md section 7).
Source: spec/discovery.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.discovery.coverage import reference_components
from dreamcheck.discovery.replay import Replay
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
class MethodSummary:
    """One method over all restarts. Thresholds are integers over 100.

    best: reported best score.
    hit_rates: threshold -> share of restarts whose best reaches it.
    averaged_hits: share of thresholds reached, averaged inside each run.
    first_hit: threshold -> mean first query that reaches it; budget + 1 when never.
    top_hit: share of restarts that evaluate at least one top-q% input.
    top_count, coverage: top-q% inputs evaluated, and C_q, means over restarts.
    """

    name: str
    best: MeanSem
    hit_rates: Mapping[int, float]
    averaged_hits: MeanSem
    first_hit: Mapping[int, MeanSem]
    top_hit: float
    top_count: MeanSem
    coverage: MeanSem


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A method against a comparator, one-sided for the method.

    best: sign test of the best scores; win_loss_tie: theirs.
    hits: threshold -> exact McNemar p; averaged_hits, coverage: sign tests.
    first_hit_gain: threshold -> mean of comparator's minus method's capped first-hit step.
    condition: what the p-values are conditional on.
    """

    method: str
    comparator: str
    best: SignTest
    win_loss_tie: WinLossTie
    hits: Mapping[int, float]
    averaged_hits: SignTest
    first_hit_gain: Mapping[int, float]
    coverage: SignTest
    condition: str = CONDITION


@dataclass(frozen=True, slots=True)
class Comparison:
    """All methods of a replay, and each pair asked for.

    never_crossed: thresholds that no run of any method reached; rates there are zero for all.
    """

    methods: tuple[MethodSummary, ...]
    pairs: tuple[PairedComparison, ...]
    never_crossed: tuple[int, ...]
    top_percent: int


def compare(
    replay: Replay,
    *,
    thresholds: Sequence[int] = (155, 160, 162),
    averaged: Sequence[int] = PAPER_THRESHOLDS,
    top_percent: int = 5,
    method: str | None = None,
) -> Comparison:
    """Summaries of every method, and paired tests of one against each other.

    Args:
        replay: paired runs.
        thresholds: integers over 100.
        averaged: thresholds of the threshold-averaged hit rate.
        top_percent: q of the top set.
        method: the one whose advantage is tested; no pairs when None.

    Raises:
        UsageError: the method is not in the replay.
    """
    if method is not None and method not in replay.runs:
        raise UsageError(f"{method!r} was not replayed; these were: {', '.join(replay.runs)}.")
    library = replay.table.library
    reference = reference_components(library, replay.table.scores, percent=top_percent)
    covered = {
        name: np.array([reference.coverage(row[row >= 0]) for row in runs.queries])
        for name, runs in replay.runs.items()
    }
    first = {
        name: {
            t: np.array([first_hit_step(row, t, budget=replay.budget) for row in runs.scores])
            for t in thresholds
        }
        for name, runs in replay.runs.items()
    }
    summaries = []
    for name, runs in replay.runs.items():
        counts = (reference.component[runs.queries] >= 0) & (runs.queries >= 0)
        summaries.append(
            MethodSummary(
                name=name,
                best=mean_sem(runs.best),
                hit_rates={t: float(hit_indicators(runs.best, t).mean()) for t in thresholds},
                averaged_hits=mean_sem(threshold_averaged_hits(runs.best, thresholds=averaged)),
                first_hit={t: mean_sem(first[name][t]) for t in thresholds},
                top_hit=float(counts.any(axis=1).mean()),
                top_count=mean_sem(counts.sum(axis=1)),
                coverage=mean_sem(covered[name]),
            )
        )
    pairs = []
    for other in replay.runs:
        if method is None or other == method:
            continue
        a, b = replay.runs[method].best, replay.runs[other].best
        hits = {}
        for t in thresholds:
            table = paired_counts(hit_indicators(a, t), hit_indicators(b, t))
            hits[t] = mcnemar_exact(table.a_only, table.b_only, alternative="greater")
        pairs.append(
            PairedComparison(
                method=method,
                comparator=other,
                best=sign_test(a - b, alternative="greater"),
                win_loss_tie=win_loss_tie(a, b),
                hits=hits,
                averaged_hits=sign_test(
                    threshold_averaged_hits(a, thresholds=averaged)
                    - threshold_averaged_hits(b, thresholds=averaged),
                    alternative="greater",
                ),
                first_hit_gain={
                    t: float((first[other][t] - first[method][t]).mean()) for t in thresholds
                },
                coverage=sign_test(covered[method] - covered[other], alternative="greater"),
            )
        )
    never = tuple(
        t for t in thresholds if all((r.best < t / 100).all() for r in replay.runs.values())
    )
    return Comparison(
        methods=tuple(summaries), pairs=tuple(pairs), never_crossed=never, top_percent=top_percent
    )
