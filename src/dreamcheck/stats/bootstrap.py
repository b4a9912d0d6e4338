"""Percentile bootstrap over independent units or clusters, with streams keyed by identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats as sps

from dreamcheck.stats.estimate import (
    NotTestable,
    StatisticsInputError,
    checked_count,
    checked_level,
    checked_sample,
)
from dreamcheck.streams import stream

Statistic = Callable[[np.ndarray], np.ndarray]
SIDES = ("two-sided", "lower", "upper")


@dataclass(frozen=True, slots=True)
class BootstrapInterval:
    """Bounds of a statistic from resampled units.

    low, high: the bounds; -inf or inf on the open side of a one-sided interval.
    value: the statistic of the sample itself.
    num_units: units (or clusters) that were resampled.
    num_resamples: finite resamples the bounds rest on.
    degenerate: every resample gave one value. The units then say nothing about uncertainty
        (deterministic rollouts, 0/n, n/n): do not print the interval as if it were one.
    """

    low: float
    high: float
    value: float
    num_units: int
    num_resamples: int
    degenerate: bool


def mean_rows(values: np.ndarray) -> np.ndarray:
    """Mean along the last axis: the default statistic."""
    return values.mean(axis=-1)


def resampled(
    values: Any,
    statistic: Statistic = mean_rows,
    *,
    root_seed: int,
    identity: str,
    resamples: int = 10_000,
) -> np.ndarray:
    """The statistic of ``resamples`` samples drawn with replacement, float64 [resamples].

    Args:
        values: [n] one value per independent unit, n at least 2.
        statistic: [R, n] -> [R], along the last axis.
        root_seed, identity: key of the stream (role "bootstrap"): the same numbers on every
            worker and in every order of arrival.

    Raises:
        NotTestable: one unit has no spread to resample.
    """
    sample = checked_sample(values, name="values", minimum=2)
    rng = stream(root_seed, "bootstrap", identity)
    checked_count(resamples, name="resamples", low=100)
    out = np.empty(resamples)
    step = max(1, 4_000_000 // sample.size)
    for start in range(0, resamples, step):
        stop = min(resamples, start + step)
        index = rng.integers(0, sample.size, size=(stop - start, sample.size))
        out[start:stop] = statistic(sample[index])
    return out


def percentile_bounds(
    replicates: np.ndarray,
    *,
    confidence: float = 0.95,
    side: str = "two-sided",
    num_units: int | None = None,
) -> tuple[float, float]:
    """Percentile bounds of bootstrap replicates (linear interpolation).

    Args:
        side: "two-sided", "lower" (bound, inf) or "upper" (-inf, bound).
        num_units: when given, the percentile level is widened for the small sample (see
            ``expanded_tail``); None is the plain percentile interval.
    """
    if side not in SIDES:
        raise StatisticsInputError(f"side = {side!r} is not one of {SIDES}")
    tail = 1 - checked_level(confidence)
    if side == "two-sided":
        tail /= 2
    if num_units is not None:
        tail = expanded_tail(tail, num_units)
    low = -np.inf if side == "upper" else float(np.quantile(replicates, tail))
    high = np.inf if side == "lower" else float(np.quantile(replicates, 1 - tail))
    return float(low), float(high)


def expanded_tail(tail: float, num_units: int) -> float:
    """The percentile at which to read a bootstrap distribution so that small samples hold level.

    The plain percentile interval of a mean is the normal interval with the n-divisor deviation:
    at 16 units a one-sided 5% bound misses 6.5% of the time. Reading it at
    Phi(-sqrt(n/(n-1)) t_{n-1}) gives back Student's interval for a mean.

    Source: Hesterberg (2015), The American Statistician 69, 371-386 ("expanded percentile").
    """
    n = checked_count(num_units, name="num_units", low=2)
    t = sps.t.ppf(checked_level(tail, name="tail"), n - 1)
    return float(sps.norm.cdf(np.sqrt(n / (n - 1)) * t))


def contracted_tail(tail: float, num_units: int) -> float:
    """Inverse of ``expanded_tail``: what a plain bootstrap tail is worth as a p-value."""
    n = checked_count(num_units, name="num_units", low=2)
    z = sps.norm.ppf(checked_level(tail, name="tail"))
    return float(sps.t.cdf(z / np.sqrt(n / (n - 1)), n - 1))


def bootstrap_interval(
    values: Any,
    statistic: Statistic = mean_rows,
    *,
    root_seed: int,
    identity: str,
    confidence: float = 0.95,
    side: str = "two-sided",
    resamples: int = 10_000,
    expanded: bool = True,
) -> BootstrapInterval:
    """Bootstrap percentile interval of a statistic over independent units.

    Args:
        values: [n] one value per unit, n at least 2.
        statistic: [R, n] -> [R]; the mean by default.
        root_seed, identity: key of the random stream.
        side: "two-sided", "lower" or "upper"; one-sided bounds spend the whole level on one side.
        expanded: widen the percentiles for the sample size (``expanded_tail``); False is the plain
            percentile interval.

    Raises:
        NotTestable: fewer than two units.
        StatisticsInputError: a value is not finite.

    Source: evidence.md section 3; Efron and Tibshirani (1993), ch. 13.
    """
    sample = checked_sample(values, name="values", minimum=2)
    replicates = resampled(
        sample, statistic, root_seed=root_seed, identity=identity, resamples=resamples
    )
    if not np.isfinite(replicates).all():
        raise StatisticsInputError("the statistic is not finite on some resamples")
    low, high = percentile_bounds(
        replicates,
        confidence=confidence,
        side=side,
        num_units=sample.size if expanded else None,
    )
    return BootstrapInterval(
        low=low,
        high=high,
        value=float(np.asarray(statistic(sample[None, :]))[0]),
        num_units=int(sample.size),
        num_resamples=resamples,
        degenerate=bool(np.ptp(replicates) == 0),
    )


def cluster_bootstrap(
    clusters: Any,
    statistic: Callable[[np.ndarray], float],
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    resamples: int = 2_000,
    minimum_finite: int = 500,
) -> BootstrapInterval:
    """Percentile interval from resampling whole clusters, each with all its rows.

    Clusters are numbered in sorted order of their labels; each resample draws as many as there
    are with ``rng.integers``; every row then counts as often as its cluster was drawn. A resample
    on which the statistic is NaN (a group is missing from it) is dropped and not replaced.

    Args:
        clusters: [n] label of the cluster (a training run) that each row belongs to.
        statistic: row multiplicities float64 [n] -> value, NaN when undefined on this resample
            (``spearman_of`` and ``LeaveOneGroupOut`` are such functions).
        rng: the stream; pass one generator on to continue it across statistics.
        minimum_finite: below this many finite resamples the interval is undefined.

    Raises:
        NotTestable: fewer than two clusters, or too few finite resamples.

    Source: viscore.md section 11.6.
    """
    labels = np.asarray(clusters)
    names, codes = np.unique(labels, return_inverse=True)
    if names.size < 2:
        raise NotTestable(
            f"{names.size} cluster(s): resampling clusters needs at least 2",
            given=int(names.size),
            needed=2,
        )
    values = np.empty(checked_count(resamples, name="resamples", low=1))
    for i in range(resamples):
        drawn = rng.integers(0, names.size, size=names.size)
        values[i] = statistic(np.bincount(drawn, minlength=names.size).astype(np.float64)[codes])
    finite = values[np.isfinite(values)]
    if finite.size < minimum_finite:
        raise NotTestable(
            f"only {finite.size} of {resamples} cluster resamples are defined; "
            f"{minimum_finite} are needed for an interval",
            given=int(finite.size),
            needed=minimum_finite,
        )
    low, high = percentile_bounds(finite, confidence=confidence)
    return BootstrapInterval(
        low=low,
        high=high,
        value=float(statistic(np.ones(labels.size))),
        num_units=int(names.size),
        num_resamples=int(finite.size),
        degenerate=bool(np.ptp(finite) == 0),
    )
