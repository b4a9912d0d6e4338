"""Intervals that respect training runs: whole runs are drawn, each with all its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.diagnostics.viscore.meta.calibration import leave_one_task_out_of
from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.diagnostics.viscore.meta.ranking import spearman_of

NUM_RESAMPLES = 2000
MIN_FINITE = 500

Statistic = Callable[[np.ndarray, np.ndarray, np.ndarray], Callable[[np.ndarray], float]]
"""metric, label, task of a pool -> a number as a function of row multiplicities."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Percentile interval; NaN when under 500 resamples (of 2000) gave a finite value."""

    low: float
    high: float
    num_finite: int


def cluster_bootstrap(
    pool: Pool,
    metric: str,
    statistic: Statistic,
    *,
    rng: np.random.Generator,
    tasks: Sequence[str] = GRADED_TASKS,
    resamples: int = NUM_RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """Interval over resampled runs, each bringing all its rows as often as drawn.

    A resample lacking one of the tasks is dropped.

    Source: spec/viscore.md section 11.6.
    """
    kept = pool.where(np.isin(pool.tasks, list(tasks)) & np.isfinite(pool.metric(metric)))
    runs, of_run = np.unique(kept.runs, return_inverse=True)
    codes = np.searchsorted(np.sort(list(tasks)), kept.tasks)
    values = []
    if len(runs):
        of = statistic(kept.metric(metric), kept.labels, kept.tasks)
        for _ in range(resamples):
            drawn = rng.integers(len(runs), size=len(runs))
            counts = np.bincount(drawn, minlength=len(runs)).astype(np.float64)[of_run]
            if (np.bincount(codes, weights=counts, minlength=len(tasks)) == 0).any():
                continue
            values.append(of(counts))
    finite = np.asarray([v for v in values if np.isfinite(v)])
    # The released rule asks for 500 of 2000; fewer resamples are held to the same share.
    if len(finite) < MIN_FINITE * resamples / NUM_RESAMPLES or not len(finite):
        return Interval(float("nan"), float("nan"), len(finite))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(finite, [tail, 100 - tail])
    return Interval(float(low), float(high), len(finite))


def pooled_statistic(
    metric: np.ndarray, label: np.ndarray, task: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Pooled Spearman."""
    return spearman_of(metric, label)


def calibration_statistic(tasks: Sequence[str] = GRADED_TASKS) -> Statistic:
    """Leave-one-task-out calibration error."""

    def statistic(
        metric: np.ndarray, label: np.ndarray, task: np.ndarray
    ) -> Callable[[np.ndarray], float]:
        return leave_one_task_out_of(metric, label, task, tasks=tasks)

    return statistic
