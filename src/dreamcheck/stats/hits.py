"""Scores of repeated searches: hits at thresholds, first-hit step, win/loss/tie, mean and SEM."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.stats.estimate import Estimate, StatisticsInputError, checked_count, checked_sample

# 1.50 ... 1.65 in steps of 0.01: sixteen thresholds, kept as integers over 100 because stepping
# a float by 0.01 misses 1.60 by an ulp and drops a hit at exactly 1.60.
PAPER_THRESHOLDS = tuple(range(150, 166))


def threshold_value(hundredths: int) -> float:
    """The threshold as the float nearest to its decimal: 160 -> 1.6."""
    if isinstance(hundredths, bool) or not isinstance(hundredths, (int, np.integer)):
        raise StatisticsInputError(
            f"threshold {hundredths!r} must be an integer over 100 (160 for 1.60)"
        )
    return int(hundredths) / 100


def hit_indicators(best_scores: Any, threshold: int) -> np.ndarray:
    """Whether each run's best score is at least threshold / 100, bool [runs]."""
    return checked_sample(best_scores, name="best_scores") >= threshold_value(threshold)


def threshold_averaged_hits(
    best_scores: Any, *, thresholds: Iterable[int] = PAPER_THRESHOLDS
) -> np.ndarray:
    """Share of the thresholds that each run reaches, float64 [runs].

    Averaged inside a run before runs are paired, so a run stays one unit.

    Source: discovery.md section 5.
    """
    levels = np.array([threshold_value(t) for t in thresholds])
    if levels.size == 0:
        raise StatisticsInputError("no thresholds: at least one integer over 100 is needed")
    best = checked_sample(best_scores, name="best_scores")
    return (best[:, None] >= levels[None, :]).mean(axis=1)


def first_hit_step(scores: Any, threshold: int, *, budget: int) -> int:
    """The 1-based query at which a run first reaches threshold / 100; budget + 1 when it never does.

    Args:
        scores: [steps] score of each query in order; NaN is a failed measurement and no hit.
        budget: the declared number of queries; more scores than this are refused.
    """
    checked_count(budget, name="budget", low=1)
    sequence = np.asarray(scores, dtype=float)
    if sequence.ndim != 1 or sequence.size > budget:
        raise StatisticsInputError(
            f"scores of shape {sequence.shape} do not fit a budget of {budget} queries"
        )
    reached = np.flatnonzero(sequence >= threshold_value(threshold))
    return int(reached[0]) + 1 if reached.size else budget + 1


@dataclass(frozen=True, slots=True)
class WinLossTie:
    """Paired runs in which the first method scored higher, lower, equal."""

    wins: int
    losses: int
    ties: int


def win_loss_tie(first: Any, second: Any) -> WinLossTie:
    """Win/loss/tie of paired unrounded scores; higher wins, exact equality ties."""
    a = checked_sample(first, name="first")
    b = checked_sample(second, name="second")
    if a.size != b.size:
        raise StatisticsInputError(f"{a.size} and {b.size} runs cannot be paired")
    return WinLossTie(int((a > b).sum()), int((a < b).sum()), int((a == b).sum()))


@dataclass(frozen=True, slots=True)
class MeanSem:
    """A mean over runs and its standard error (sample deviation, n - 1, over sqrt n).

    sem: undefined with a reason for one run; never 0 because there was only one.
    """

    mean: float
    sem: Estimate
    num_runs: int

    def __str__(self) -> str:
        spread = f"{self.sem.value:.4g}" if self.sem.defined else f"undefined, {self.sem.reason}"
        return f"{self.mean:.4g} ± {spread} (SEM, n = {self.num_runs})"


def mean_sem(values: Any) -> MeanSem:
    """Mean ± SEM from unrounded runs.

    For restarts over one score table this is a Monte Carlo error of the search's randomness and
    no statement about other tables (evidence.md section 7).
    """
    sample = checked_sample(values, name="values")
    n = sample.size
    if n == 1:
        sem = Estimate.undefined(1, "one run has no spread")
    else:
        sem = Estimate(float(sample.std(ddof=1) / math.sqrt(n)), n)
    return MeanSem(float(sample.mean()), sem, n)
