"""Does a metric rank checkpoints? Rank correlations, and the views that keep them honest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck import stats
from dreamcheck.diagnostics.viscore.meta.pool import EPISODES_PER_LABEL, GRADED_TASKS, Pool

MIN_ROWS = 4
CONSTANT_DECIMALS = 9
NAN = float("nan")


def spearman(metric: np.ndarray, label: np.ndarray) -> float:
    """Spearman with average ranks; rows whose metric is missing are dropped.

    NaN (undefined, not zero) under 4 rows, or when the metric, rounded to 9 decimals, or the
    label takes one value.

    Source: spec/viscore.md section 11.2.
    """
    kept = np.isfinite(metric)
    if kept.sum() < MIN_ROWS:
        return NAN
    found = stats.spearman(metric[kept], label[kept], minimum=MIN_ROWS, decimals=CONSTANT_DECIMALS)
    return found.value


def within_task(pool: Pool, metric: str, task: str) -> float:
    """Spearman over the rows of one task."""
    rows = pool.tasks == task
    return spearman(pool.metric(metric)[rows], pool.labels[rows])


def pooled(pool: Pool, metric: str, *, tasks: Sequence[str] = GRADED_TASKS) -> float:
    """Spearman over all rows of the graded tasks together.

    Source: spec/viscore.md section 11.3.
    """
    rows = np.isin(pool.tasks, list(tasks))
    return spearman(pool.metric(metric)[rows], pool.labels[rows])


def resolvability(labels: np.ndarray, *, episodes: int = EPISODES_PER_LABEL) -> float:
    """Spread of labels between checkpoints over the standard error of one label.

    At or below 1 nothing can be ranked. NaN under two labels.

    Args:
        labels: success in percent.
        episodes: behind one label; the released protocol keeps 50 throughout.

    Source: spec/viscore.md section 11.8.
    """
    if len(labels) < 2:
        return NAN
    return stats.resolvability(labels, episodes=episodes)


def partial_given_epoch(pool: Pool, metric: str, task: str) -> float:
    """Spearman of metric and label within a task with the epoch's ranks partialled out.

    What the metric knows beyond "later is better". NaN where undefined, or where the epoch alone
    determines either.
    """
    rows = (pool.tasks == task) & np.isfinite(pool.metric(metric))
    x, y, e = pool.metric(metric)[rows], pool.labels[rows], pool.epochs[rows]
    if not np.isfinite([spearman(x, y), spearman(x, e), spearman(y, e)]).all():
        return NAN
    return stats.partial_spearman(x, y, e).value


@dataclass(frozen=True, slots=True)
class View:
    """A correlation over a thinned pool: its mean over the ways of thinning, and how many."""

    rho: float
    num_ways: int
    num_rows: float


def one_per_run(pool: Pool, metric: str, task: str, *, draws: int = 200, seed: int = 0) -> View:
    """One checkpoint of every run, drawn at random: mean within-task Spearman over the draws.

    Checkpoints of one run are not independent; runs are.
    """
    rows = np.flatnonzero((pool.tasks == task) & np.isfinite(pool.metric(metric)))
    groups = [rows[pool.runs[rows] == r] for r in sorted(set(pool.runs[rows].tolist()))]
    if len(groups) < MIN_ROWS:
        return View(NAN, 0, float(len(groups)))
    rng = np.random.default_rng(seed)
    x, y = pool.metric(metric), pool.labels
    values = []
    for _ in range(draws):
        pick = np.array([g[rng.integers(len(g))] for g in groups])
        values.append(spearman(x[pick], y[pick]))
    finite = np.asarray([v for v in values if np.isfinite(v)])
    return View(float(finite.mean()) if len(finite) else NAN, len(finite), float(len(groups)))


def fixed_epoch(pool: Pool, metric: str, task: str) -> View:
    """Within-task Spearman over the runs at one epoch, averaged over the epochs by their rows.

    The metric "epoch" is constant here by construction: undefined.
    """
    rows = (pool.tasks == task) & np.isfinite(pool.metric(metric))
    x, y = pool.metric(metric), pool.labels
    values, sizes = [], []
    for epoch in sorted(set(pool.epochs[rows].tolist())):
        at = rows & (pool.epochs == epoch)
        rho = spearman(x[at], y[at])
        if np.isfinite(rho):
            values.append(rho)
            sizes.append(int(at.sum()))
    if not values:
        return View(NAN, 0, 0.0)
    return View(float(np.average(values, weights=sizes)), len(values), float(np.mean(sizes)))
