"""Confirmed, refuted or inconclusive: what held-out seeds say about a shortlist of found inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np

from dreamcheck.stats.bootstrap import (
    contracted_tail,
    expanded_tail,
    mean_rows,
    resampled,
)
from dreamcheck.stats.estimate import (
    NotTestable,
    StatisticsInputError,
    checked_count,
    checked_level,
)
from dreamcheck.stats.multiplicity import holm_levels
from dreamcheck.stats.tail import cvar, exact_decimal

VerdictName = Literal["confirmed", "refuted", "inconclusive", "incomplete"]
MINIMUM_SEEDS = 16
# The 95th percentile of fewer than twenty values is their maximum under another name.
MINIMUM_REFERENCES = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What held-out seeds say about one shortlisted input. Risks are in the losses' unit.

    input_id: the shortlisted input.
    verdict: "confirmed", "refuted", "inconclusive", or "incomplete" (too few complete seeds).
    risk: its validation risk on the complete seeds; NaN when incomplete.
    low: lower one-sided bound at the level Holm gave this input; compared with ``threshold``.
    high: upper one-sided bound at the level Holm gave this input; compared with ``median``.
    confirm_level, refute_level: those levels (5% over the number of inputs still in question).
    threshold: 95th percentile of the reference inputs' risks on the same seeds.
    median: their median on the same seeds.
    default_risk: the default reset's risk on the same seeds.
    num_seeds: complete seeds used.
    seeds_missing: declared seeds without a loss; never filled in.
    seeds_informative: False when every seed gave one loss. Low, risk and high then coincide: the
        risk is exact for this policy, its seeds are one observation and not many, and something
        that matters must be varied instead (a second rollout policy, other prefixes).
    """

    input_id: str
    verdict: VerdictName
    risk: float
    low: float
    high: float
    confirm_level: float
    refute_level: float
    threshold: float
    median: float
    default_risk: float
    num_seeds: int
    seeds_missing: int
    seeds_informative: bool


def decide(
    shortlist: Mapping[str, Any],
    references: Any,
    default_losses: Any,
    *,
    root_seed: int,
    alpha: float | str | Decimal | Fraction | None = 0.4,
    confidence: float = 0.95,
    looks: int = 1,
    minimum_seeds: int = MINIMUM_SEEDS,
    minimum_references: int = MINIMUM_REFERENCES,
    resamples: int = 20_000,
) -> list[Verdict]:
    """Verdicts on a shortlist from its losses on held-out seeds.

    An input is *confirmed* when the lower end of a one-sided interval for its validation risk
    (bootstrap over seeds, Holm over the shortlist) lies above the 95th percentile of the risks of
    random reference inputs on the same seeds, *refuted* when the upper end lies below their
    median, otherwise *inconclusive*. Percentiles are widened for the number of seeds
    (``bootstrap.expanded_tail``): the plain ones confirm too often at 16.

    A bootstrap of a tail average sits below the sample's own value, so for CVaR the lower bound is
    safe (an input exactly at the threshold is confirmed 1% of the time at 16 seeds) and the upper
    one is not: an input exactly at the reference median is refuted 10 to 17% of the time, one at
    the threshold almost never. A refutation says "not a failure", not "below the median".

    Args:
        shortlist: input id -> losses [seeds], NaN where a declared seed has no loss. Every
            member counts in Holm's correction, incomplete ones too.
        references: [num_references, seeds] losses of random inputs of the same library, on the
            same seeds in the same order; 64 are declared. A reference with a missing loss is left
            out of the percentiles.
        default_losses: [seeds] losses of the default reset on the same seeds.
        root_seed: the study's; the stream is keyed by the input id.
        alpha: share of the tail averaged into a risk (fractional CVaR); None is the mean.
        confidence: of each one-sided interval before Holm.
        looks: how often the declared plan may ask this question while seeds are added; the level
            is divided by it, so that spending more seeds cannot buy a confirmation by chance.
        minimum_seeds: complete seeds an input needs; 16.

    Returns:
        One verdict per shortlisted input, in the order given.

    Raises:
        NotTestable: fewer complete references than the minimum.
        StatisticsInputError: shapes disagree, the shortlist is empty, or ``resamples`` cannot
            resolve the level Holm asks for.

    Source: evidence.md section 3.
    """
    if not shortlist:
        raise StatisticsInputError("the shortlist is empty: there is nothing to decide")
    losses = {name: np.asarray(values, dtype=float) for name, values in shortlist.items()}
    reference = np.asarray(references, dtype=float)
    default = np.asarray(default_losses, dtype=float)
    num_seeds = next(iter(losses.values())).shape
    if len(num_seeds) != 1:
        raise StatisticsInputError(f"losses of shape {num_seeds}: one loss per seed is needed")
    for name, values in losses.items():
        if values.shape != num_seeds:
            raise StatisticsInputError(
                f"input {name!r} has losses of shape {values.shape}, others {num_seeds}: all "
                "shortlisted inputs share the declared seeds, NaN where a measurement failed"
            )
    if not reference.size:
        raise NotTestable(
            "there is no random reference input; the shortlist may hold the whole library. "
            f"{minimum_references} are needed for a 95th percentile",
            given=0,
            needed=minimum_references,
        )
    if reference.ndim != 2 or reference.shape[1:] != num_seeds or default.shape != num_seeds:
        raise StatisticsInputError(
            f"references {reference.shape} and default reset {default.shape} must be on the same "
            f"{num_seeds[0]} seeds as the shortlist"
        )
    # In decimals: 1 - 0.95 is 0.050000000000000044 in floating point, and levels are printed.
    spent = 1 - exact_decimal(checked_level(confidence))
    level = float(spent / checked_count(looks, name="looks", low=1))
    rho = mean_rows if alpha is None else partial(cvar, alpha=alpha)

    prepared: dict[str, _Prepared] = {}
    for name, values in losses.items():
        prepared[name] = _prepare(
            name,
            values,
            reference,
            default,
            rho=rho,
            root_seed=root_seed,
            resamples=resamples,
            minimum_seeds=minimum_seeds,
            minimum_references=minimum_references,
        )
    _check_resolution(prepared, level=level, resamples=resamples)
    confirm_levels = holm_levels([p.confirm_p for p in prepared.values()], level=level)
    refute_levels = holm_levels([p.refute_p for p in prepared.values()], level=level)
    return [
        item.verdict(float(confirm), float(refute))
        for item, confirm, refute in zip(
            prepared.values(), confirm_levels, refute_levels, strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One input before Holm: its bootstrap, sorted, and the p-values of both directions."""

    name: str
    replicates: np.ndarray | None
    risk: float
    threshold: float
    median: float
    default_risk: float
    num_seeds: int
    seeds_missing: int
    confirm_p: float
    refute_p: float

    def bound(self, level: float, *, upper: bool = False) -> float:
        """The order statistic that is beyond a value exactly when the p-value is within level."""
        assert self.replicates is not None
        tail = expanded_tail(level, self.num_seeds)
        # Slack for the round trip through the two tail functions, far below one resample.
        rank = int(np.floor(tail * (self.replicates.size + 1) + 1e-6))
        index = max(rank, 1) - 1
        return float(self.replicates[-1 - index if upper else index])

    def verdict(self, confirm_level: float, refute_level: float) -> Verdict:
        name: VerdictName = "incomplete"
        low = high = float("nan")
        informative = False
        if self.replicates is not None:
            informative = bool(np.ptp(self.replicates) > 0)
            low = self.bound(confirm_level)
            high = self.bound(refute_level, upper=True)
            name = "inconclusive"
            if low > self.threshold:
                name = "confirmed"
            elif high < self.median:
                name = "refuted"
        return Verdict(
            input_id=self.name,
            verdict=name,
            risk=self.risk,
            low=low,
            high=high,
            confirm_level=confirm_level,
            refute_level=refute_level,
            threshold=self.threshold,
            median=self.median,
            default_risk=self.default_risk,
            num_seeds=self.num_seeds,
            seeds_missing=self.seeds_missing,
            seeds_informative=informative,
        )


def _prepare(
    name: str,
    values: np.ndarray,
    reference: np.ndarray,
    default: np.ndarray,
    *,
    rho: Any,
    root_seed: int,
    resamples: int,
    minimum_seeds: int,
    minimum_references: int,
) -> _Prepared:
    nan = float("nan")
    complete = np.isfinite(values)
    n = int(complete.sum())
    missing = int(values.size - n)
    if n < max(2, minimum_seeds):
        return _Prepared(name, None, nan, nan, nan, nan, n, missing, 1.0, 1.0)
    # The same seeds for everyone: a risk on other seeds answers another question.
    same = reference[:, complete]
    whole = same[np.isfinite(same).all(axis=1)]
    if len(whole) < minimum_references:
        raise NotTestable(
            f"input {name!r}: {len(whole)} of {len(reference)} random reference inputs are "
            f"complete on its {n} seeds; {minimum_references} are needed for a 95th percentile",
            given=len(whole),
            needed=minimum_references,
        )
    reference_risks = np.atleast_1d(rho(whole))
    threshold = float(np.quantile(reference_risks, 0.95))
    median = float(np.median(reference_risks))
    on_default = default[complete]
    default_risk = float(rho(on_default)) if np.isfinite(on_default).all() else nan
    replicates = np.sort(
        resampled(
            values[complete],
            rho,
            root_seed=root_seed,
            identity=f"decision:{name}",
            resamples=resamples,
        )
    )
    return _Prepared(
        name=name,
        replicates=replicates,
        risk=float(rho(values[complete])),
        threshold=threshold,
        median=median,
        default_risk=default_risk,
        num_seeds=n,
        seeds_missing=missing,
        confirm_p=_tail_p(int((replicates <= threshold).sum()), resamples, n),
        refute_p=_tail_p(int((replicates >= median).sum()), resamples, n),
    )


def _tail_p(hits: int, resamples: int, num_seeds: int) -> float:
    plain = (hits + 1) / (resamples + 1)
    return 1.0 if plain >= 1 else contracted_tail(plain, num_seeds)


def _check_resolution(prepared: Mapping[str, _Prepared], *, level: float, resamples: int) -> None:
    strictest = level / len(prepared)
    for item in prepared.values():
        if item.replicates is None:
            continue
        tail = expanded_tail(strictest, item.num_seeds)
        if tail * (resamples + 1) < 1:
            # Guard against a correction that no data could meet.
            raise StatisticsInputError(
                f"{resamples} resamples cannot resolve Holm's level {strictest:.2g} at "
                f"{item.num_seeds} seeds: use resamples >= {int(np.ceil(2 / tail))}, more seeds, "
                "or a shorter shortlist"
            )
