"""Isotonic calibration of a score to an outcome, judged on groups it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from dreamcheck.stats.estimate import (
    Estimate,
    NotTestable,
    StatisticsInputError,
    checked_sample,
)


@dataclass(frozen=True, slots=True)
class IsotonicMap:
    """A non-decreasing map from score to outcome: knots, straight between, flat outside.

    scores: knots, increasing. outcomes: fitted values at them, non-decreasing.
    num_rows: rows it was fitted on.
    """

    scores: tuple[float, ...]
    outcomes: tuple[float, ...]
    num_rows: int

    def __call__(self, scores: Any) -> np.ndarray:
        """Predicted outcomes, [n]; scores beyond the knots take the end values."""
        values = checked_sample(scores, name="scores")
        return np.interp(values, self.scores, self.outcomes)


def isotonic_map(scores: Any, outcomes: Any) -> IsotonicMap:
    """Least-squares non-decreasing map of outcome on score.

    Equal scores are merged to their mean outcome first, weighted by how many they were.

    Source: viscore.md section 11.4; Barlow et al. (1972), pool adjacent violators.
    """
    s, o = _rows(scores, outcomes)
    knots, index, counts = np.unique(s, return_inverse=True, return_counts=True)
    means = np.bincount(index, weights=o) / counts
    fitted = isotonic_regression(means, weights=counts.astype(np.float64)).x
    return IsotonicMap(tuple(float(v) for v in knots), tuple(float(v) for v in fitted), int(s.size))


def _rows(scores: Any, outcomes: Any) -> tuple[np.ndarray, np.ndarray]:
    s, o = checked_sample(scores, name="scores"), checked_sample(outcomes, name="outcomes")
    if s.size != o.size:
        raise StatisticsInputError(f"{s.size} scores for {o.size} outcomes")
    return s, o


@dataclass(frozen=True, slots=True)
class CalibrationError:
    """Mean absolute error of a map on groups it never saw, beside a constant's.

    error: mean over groups of the mean absolute error, in the outcome's unit; undefined with a
        reason when no group could be tested.
    reference: the same with the median outcome of the other groups predicted for every row. An
        error means something only beside it.
    by_group, reference_by_group: per tested group.
    skipped: group -> why it was not tested.
    """

    error: Estimate
    reference: Estimate
    by_group: Mapping[str, float]
    reference_by_group: Mapping[str, float]
    skipped: Mapping[str, str]


class LeaveOneGroupOut:
    """Calibration errors of held-out groups as a function of row multiplicities.

    A bootstrap asks for one sample under thousands of multiplicities: knots are found once. The
    errors are those of repeating every row as often as its multiplicity says.

    Args:
        scores, outcomes: [n] finite.
        groups: [n] label (task) of each row.
        minimum_test, minimum_fit: fewest rows of a group to test, and of the others to fit on.

    Source: viscore.md section 11.4.
    """

    def __init__(
        self,
        scores: Any,
        outcomes: Any,
        groups: Sequence[str] | np.ndarray,
        *,
        minimum_test: int = 4,
        minimum_fit: int = 8,
    ) -> None:
        self._scores, self._outcomes = _rows(scores, outcomes)
        labels = np.asarray(groups)
        if labels.shape != self._scores.shape:
            raise StatisticsInputError(f"{labels.size} group labels for {self._scores.size} rows")
        self._minimum = minimum_test, minimum_fit
        self._knots, self._index = np.unique(self._scores, return_inverse=True)
        self._tests = {str(g): np.flatnonzero(labels == g) for g in np.unique(labels)}

    def errors(self, counts: np.ndarray) -> dict[str, float]:
        """Mean absolute error of every group that has enough rows, predicted by the others."""
        out = {}
        for name, test in self._tests.items():
            here = counts[test]
            rest = counts.astype(np.float64)
            rest[test] = 0.0
            if here.sum() < self._minimum[0] or rest.sum() < self._minimum[1]:
                continue
            weight = np.bincount(self._index, weights=rest)
            live = weight > 0
            total = np.bincount(self._index, weights=rest * self._outcomes)
            fitted = isotonic_regression(total[live] / weight[live], weights=weight[live]).x
            predicted = np.interp(self._scores[test], self._knots[live], fitted)
            missed = np.abs(predicted - self._outcomes[test])
            out[name] = float(here @ missed / here.sum())
        return out

    def __call__(self, counts: np.ndarray) -> float:
        """Mean over the groups' errors, groups equal; NaN when none can be tested."""
        errors = self.errors(counts)
        return float(np.mean(list(errors.values()))) if errors else float("nan")


def leave_one_group_out(
    scores: Any,
    outcomes: Any,
    groups: Sequence[str] | np.ndarray,
    *,
    minimum_test: int = 4,
    minimum_fit: int = 8,
) -> CalibrationError:
    """Isotonic calibration error: fit on the other groups, predict this one, average groups equally.

    Args:
        scores, outcomes: [n] finite; rows without a metric are left out (and counted) before.
        groups: [n] label (task) of each row.
        minimum_test, minimum_fit: groups with fewer rows, or with fewer rows to fit on, are
            skipped and named.

    Source: viscore.md sections 11.4 and 11.5.
    """
    fit = LeaveOneGroupOut(
        scores, outcomes, groups, minimum_test=minimum_test, minimum_fit=minimum_fit
    )
    o, labels = np.asarray(outcomes, dtype=float), np.asarray(groups)
    errors = fit.errors(np.ones(o.size))
    constants: dict[str, float] = {}
    skipped: dict[str, str] = {}
    for name in sorted({str(g) for g in labels}):
        test = labels == name
        if name in errors:
            constants[name] = float(np.abs(np.median(o[~test]) - o[test]).mean())
        else:
            skipped[name] = (
                f"{int(test.sum())} rows to test and {int((~test).sum())} to fit; "
                f"{minimum_test} and {minimum_fit} are needed"
            )
    if not errors:
        reason = "no group has enough rows"
        return CalibrationError(
            Estimate.undefined(0, reason), Estimate.undefined(0, reason), {}, {}, skipped
        )
    return CalibrationError(
        error=Estimate(float(np.mean(list(errors.values()))), len(errors)),
        reference=Estimate(float(np.mean(list(constants.values()))), len(constants)),
        by_group=errors,
        reference_by_group=constants,
        skipped=skipped,
    )


def resolvability(success_percent: Any, *, episodes: int = 50) -> float:
    """Spread of success between checkpoints over the binomial noise of one measurement.

    std (n - 1) of success over 100 sqrt(p (1 - p) / episodes), p the mean success clipped to
    [1e-6, 1 - 1e-6]. At or below 1 nothing can be ranked.

    Raises:
        NotTestable: fewer than two checkpoints.

    Source: viscore.md section 11.7.
    """
    values = checked_sample(success_percent, name="success_percent", minimum=1)
    if values.size < 2:
        raise NotTestable("one checkpoint has no spread", given=1, needed=2)
    p = float(np.clip(values.mean() / 100, 1e-6, 1 - 1e-6))
    return float(values.std(ddof=1) / (100 * np.sqrt(p * (1 - p) / episodes)))
