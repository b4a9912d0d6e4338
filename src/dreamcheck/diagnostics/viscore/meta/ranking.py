"""Does a metric rank checkpoints? Rank correlations, and the views that keep them honest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.diagnostics.viscore.meta.pool import EPISODES_PER_LABEL, GRADED_TASKS, Pool

MIN_ROWS = 4
NAN = float("nan")


def spearman_of(metric: np.ndarray, label: np.ndarray) -> Callable[[np.ndarray], float]:
    """Spearman with average ranks as a function of row multiplicities.

    A bootstrap evaluates one pool under thousands of multiplicities; ties are found once. The
    result is that of repeating every row as often as its multiplicity says.

    NaN (undefined, not zero) under 4 rows, or when the metric, rounded to 9 decimals, or the
    label takes one value.

    Source: spec/viscore.md section 11.2.
    """
    rounded = np.round(metric, 9)
    groups = [np.unique(v, return_inverse=True)[1] for v in (metric, label)]

    def of(counts: np.ndarray) -> float:
        total = counts.sum()
        live = rounded[counts > 0]
        if total < MIN_ROWS or live.min() == live.max():
            return NAN
        ranks = []
        for group in groups:
            size = np.bincount(group, weights=counts)
            rank = (np.cumsum(size) - (size - 1) / 2.0)[group]
            ranks.append(rank - (counts @ rank) / total)
        a, b = ranks
        scale = np.sqrt((counts @ (a * a)) * (counts @ (b * b)))
        return float((counts @ (a * b)) / scale) if scale > 0 else NAN

    return of


def spearman(metric: np.ndarray, label: np.ndarray) -> float:
    """``spearman_of`` with every row once; rows whose metric is missing are dropped."""
    kept = np.isfinite(metric)
    return spearman_of(metric[kept], label[kept])(np.ones(int(kept.sum())))


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
    p = float(np.clip(labels.mean() / 100, 1e-6, 1 - 1e-6))
    return float(labels.std(ddof=1) / (100 * np.sqrt(p * (1 - p) / episodes)))


def partial_given_epoch(pool: Pool, metric: str, task: str) -> float:
    """Spearman of metric and label within a task with the epoch's ranks partialled out.

    What the metric knows beyond "later is better". NaN where undefined, or where the epoch alone
    determines either.
    """
    rows = (pool.tasks == task) & np.isfinite(pool.metric(metric))
    x, y, e = pool.metric(metric)[rows], pool.labels[rows], pool.epochs[rows]
    xy, xe, ye = spearman(x, y), spearman(x, e), spearman(y, e)
    if not np.isfinite([xy, xe, ye]).all():
        return NAN
    left = (1 - xe**2) * (1 - ye**2)
    return float((xy - xe * ye) / np.sqrt(left)) if left > 1e-12 else NAN


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
