"""Does a metric predict success on a task it was not fitted on? Isotonic maps of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.errors import Abstention
from dreamcheck.stats import IsotonicMap, isotonic_map, leave_one_group_out

NAN = float("nan")


def fit_isotonic(metric: np.ndarray, label: np.ndarray) -> IsotonicMap:
    """Non-decreasing least-squares map of success (percent) on a metric.

    Rows whose metric is missing are dropped.

    Raises:
        Abstention: no row has the metric.

    Source: spec/viscore.md section 11.4.
    """
    kept = np.isfinite(metric)
    if not kept.any():
        raise Abstention("no row of the fit has this metric, so no map can be fitted")
    return isotonic_map(metric[kept], label[kept])


def calibration_error(pool: Pool, metric: str, *, tasks: Sequence[str] = GRADED_TASKS) -> float:
    """Each task predicted from the others: mean absolute error in points, tasks equal.

    A task under 4 test rows or 8 fit rows is skipped; NaN when all are.

    Source: spec/viscore.md section 11.4.
    """
    kept = pool.measured(metric, tasks)
    if not len(kept):
        return NAN
    return leave_one_group_out(kept.metric(metric), kept.labels, kept.tasks).error.value


def constant_reference(pool: Pool, *, tasks: Sequence[str] = GRADED_TASKS) -> float:
    """The same error with the median label of the other tasks' rows as the prediction.

    A calibration error means something only beside this number.

    Source: spec/viscore.md section 11.5.
    """
    kept = pool.of_tasks(tasks)
    if not len(kept):
        return NAN
    return leave_one_group_out(kept.labels, kept.labels, kept.tasks).reference.value


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
