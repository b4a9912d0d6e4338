"""Does a metric predict success on a task it was not fitted on? Isotonic maps and their reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.errors import Abstention

MIN_TEST_ROWS = 4
MIN_FIT_ROWS = 8
NAN = float("nan")


@dataclass(frozen=True)
class IsotonicMap:
    """A non-decreasing map from a metric to success in percent; frozen once fitted.

    knots: distinct metric values, rising. values: fitted success at the knots.
    Between knots the map is linear; outside their range it keeps the end value.
    """

    knots: np.ndarray
    values: np.ndarray
    num_rows: int

    def __call__(self, metric: np.ndarray | float) -> np.ndarray:
        """Predicted success in percent."""
        return np.interp(np.asarray(metric, dtype=np.float64), self.knots, self.values)


def fit_isotonic(metric: np.ndarray, label: np.ndarray) -> IsotonicMap:
    """Non-decreasing least-squares fit of label on metric.

    Equal metric values are merged to their weighted mean first. Rows whose metric is missing are
    dropped.

    Raises:
        Abstention: no row has the metric.

    Source: spec/viscore.md section 11.4.
    """
    kept = np.isfinite(metric)
    metric, label = metric[kept], label[kept]
    if not len(metric):
        raise Abstention("no row of the fit has this metric, so no map can be fitted")
    knots, index, counts = np.unique(metric, return_inverse=True, return_counts=True)
    means = np.bincount(index, weights=label) / counts
    fitted = isotonic_regression(means, weights=counts.astype(np.float64)).x
    return IsotonicMap(knots=knots, values=np.asarray(fitted), num_rows=len(metric))


def leave_one_task_out_of(
    metric: np.ndarray,
    label: np.ndarray,
    task: np.ndarray,
    *,
    tasks: Sequence[str] = GRADED_TASKS,
) -> Callable[[np.ndarray], float]:
    """Leave-one-task-out calibration error as a function of row multiplicities.

    Mean absolute error in percentage points, each task predicted from the others, tasks equal. A
    task under 4 test rows or 8 fit rows is skipped; NaN when all are.

    Args:
        metric, label, task: rows without missing values, of the tasks only.

    Source: spec/viscore.md section 11.4.
    """
    knots, index = np.unique(metric, return_inverse=True)
    tests = [np.flatnonzero(task == name) for name in tasks]

    def of(counts: np.ndarray) -> float:
        errors = []
        for test in tests:
            here = counts[test]
            rest = counts.copy()
            rest[test] = 0.0
            if here.sum() < MIN_TEST_ROWS or rest.sum() < MIN_FIT_ROWS:
                continue
            weight = np.bincount(index, weights=rest)
            live = weight > 0
            total = np.bincount(index, weights=rest * label)
            values = isotonic_regression(total[live] / weight[live], weights=weight[live]).x
            predicted = np.interp(metric[test], knots[live], values)
            errors.append(here @ np.abs(predicted - label[test]) / here.sum())
        return float(np.mean(errors)) if errors else NAN

    return of


def leave_one_task_out(
    metric: np.ndarray,
    label: np.ndarray,
    task: np.ndarray,
    *,
    tasks: Sequence[str] = GRADED_TASKS,
) -> float:
    """``leave_one_task_out_of`` with every row once; rows without the metric are dropped."""
    kept = np.isfinite(metric) & np.isin(task, list(tasks))
    error = leave_one_task_out_of(metric[kept], label[kept], task[kept], tasks=tasks)
    return error(np.ones(int(kept.sum())))


def calibration_error(pool: Pool, metric: str, *, tasks: Sequence[str] = GRADED_TASKS) -> float:
    """``leave_one_task_out`` of a pool's metric."""
    return leave_one_task_out(pool.metric(metric), pool.labels, pool.tasks, tasks=tasks)


def constant_reference(pool: Pool, *, tasks: Sequence[str] = GRADED_TASKS) -> float:
    """The same error with the median label of the other tasks' rows as the prediction.

    A calibration error means something only beside this number.

    Source: spec/viscore.md section 11.5.
    """
    kept = pool.of_tasks(tasks)
    errors = []
    for name in tasks:
        test = kept.tasks == name
        if test.sum() < MIN_TEST_ROWS or (~test).sum() < MIN_FIT_ROWS:
            continue
        guess = float(np.median(kept.labels[~test]))
        errors.append(float(np.abs(guess - kept.labels[test]).mean()))
    return float(np.mean(errors)) if errors else NAN


@dataclass(frozen=True, slots=True)
class FrozenError:
    """Error of a map fitted elsewhere, over the rows that have the metric.

    error, reference: percentage points; the reference predicts the fit's median label.
    """

    error: float
    reference: float
    num_used: int


def frozen_error(fit: Pool, pool: Pool, metric: str) -> FrozenError:
    """Fit on one pool, apply unchanged to another; mean absolute over rows, tasks not averaged.

    Source: spec/viscore.md section 11.7.
    """
    fitted = fit_isotonic(fit.metric(metric), fit.labels)
    kept = np.isfinite(pool.metric(metric))
    if not kept.any():
        return FrozenError(NAN, NAN, 0)
    labels = pool.labels[kept]
    reference = float(np.abs(np.median(fit.labels) - labels).mean())
    predicted = fitted(pool.metric(metric)[kept])
    return FrozenError(float(np.abs(predicted - labels).mean()), reference, int(kept.sum()))
