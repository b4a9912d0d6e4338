"""Measuring inputs on seeds: what is in the store is read, what is missing is measured once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dreamcheck.digest import Value, digest
from dreamcheck.errors import DreamcheckError
from dreamcheck.evidence import (
    DEFAULT_RESET,
    Interface,
    Measurement,
    Statistic,
    Store,
    entry_of,
    measurement_key,
    risk_of,
)
from dreamcheck.imagination.risk import ALGORITHM, RiskProbe, Row
from dreamcheck.imagination.support import stratum
from dreamcheck.imagination.targets import loss_unit
from dreamcheck.progress import Stage

CHUNK = 64
"""Rows measured, and committed, at a time; also about what one rendering batch holds."""

Values = Mapping[str, Value] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One input to measure: its id and typed values; None for the default reset."""

    id: str
    values: Values


CONTROL = Asked(DEFAULT_RESET, None)


def interface_of(probe: RiskProbe) -> Interface:
    """The prediction interface of a risk probe: what its losses may be compared with."""
    h = probe.horizons
    task = probe.task
    readout = probe.readout.identity if probe.readout is not None else None
    return Interface(
        model=probe.runner.model.identity,
        task=task.name,
        task_version=task.version,
        package_version=task.package_version,
        policy=digest({"policy": probe.policy.digest, "root_seed": probe.root_seed}),
        rollout_steps=h.steps,
        history=h.history,
        horizon=h.forecast,
        target=f"{probe.target.name} ({loss_unit(probe.target.unit, probe.discrepancy)})",
        probe=digest({"target": probe.target.identity, "readout": readout}),
        discrepancy=f"{probe.discrepancy}, {probe.step_rule} of the forecast steps",
        dtype=probe.runner.dtype,
        algorithm_version=f"{ALGORITHM}, floor of {probe.floor_samples}",
    )


def rows_of(probe: RiskProbe, pairs: Sequence[tuple[Values, int]]) -> list[Row]:
    """One row per (values, seed); a pair that crashes its simulator or model fails alone.

    Values are given for all pairs or, for default resets, for none.
    """
    inputs = [v for v, _ in pairs if v is not None] or None
    seeds = [s for _, s in pairs]
    try:
        return probe.rows(inputs, seeds)
    except DreamcheckError:
        raise
    except Exception as e:  # a simulator or model may raise anything
        if len(pairs) == 1:
            return [Row.failed(f"crash: {type(e).__name__}: {e}")]
        return [rows_of(probe, [pair])[0] for pair in pairs]


class Measurer:
    """Measurements of one interface in one store.

    A measurement is over when it is committed; the caller sees it only then. An input that
    crashes its simulator costs itself, not its batch.
    """

    def __init__(self, store: Store, probe: RiskProbe) -> None:
        self.store = store
        self.probe = probe
        self.interface = interface_of(probe)
        self._known: dict[str, Measurement] = {}
        store.commit([self.interface.record()])

    def measure(
        self,
        asked: Sequence[Asked],
        seeds: Sequence[int],
        *,
        partition: str,
        stage: Stage | None = None,
    ) -> dict[str, list[Measurement]]:
        """Measurements of every input on every seed, in the order of ``seeds``.

        Returns:
            input id -> one measurement per seed.
        """
        unique = {a.id: a for a in asked}
        missing: list[tuple[Asked, int, str]] = []
        keys: dict[str, list[str]] = {}
        for a in unique.values():
            keys[a.id] = [measurement_key(self.interface, a.values, s) for s in seeds]
            absent = [
                (a, seed, key)
                for seed, key in zip(seeds, keys[a.id], strict=True)
                if not self._have(key)
            ]
            missing += absent
            if not absent and stage is not None:
                stage.advance()
        self._measure_missing(missing, partition, stage)
        return {i: [self._known[k] for k in ks] for i, ks in keys.items()}

    def known(self, key: str) -> Measurement:
        """A measurement this object has read or made."""
        return self._known[key]

    def _have(self, key: str) -> bool:
        if key in self._known:
            return True
        record = self.store.get("measurement", key)
        if record is None:
            return False
        self._known[key] = entry_of(record)
        return True

    def _measure_missing(
        self, missing: Sequence[tuple[Asked, int, str]], partition: str, stage: Stage | None
    ) -> None:
        left = {a.id: 0 for a, _, _ in missing}
        for a, _, _ in missing:
            left[a.id] += 1
        # Default resets and inputs go to the simulator in different calls: one has no tuple.
        groups = (
            [m for m in missing if m[0].values is None],
            [m for m in missing if m[0].values is not None],
        )
        for group in groups:
            for start in range(0, len(group), CHUNK):
                part = group[start : start + CHUNK]
                begun = time.monotonic()
                rows = rows_of(self.probe, [(a.values, seed) for a, seed, _ in part])
                took = (time.monotonic() - begun) / len(part)
                entries = [
                    self._entry(a, seed, row, partition)
                    for (a, seed, _), row in zip(part, rows, strict=True)
                ]
                self.store.commit([e.record(meta={"seconds": took}) for e in entries])
                for entry in entries:
                    self._known[entry.key] = entry
                    left[entry.input] -= 1
                    if left[entry.input] == 0 and stage is not None:
                        stage.advance()

    def _entry(self, a: Asked, seed: int, row: Row, partition: str) -> Measurement:
        common: dict[str, Any] = {
            "input": a.id,
            "partition": partition,
            "activity": {"contact": row.contact, "path": row.path, "progress": row.progress},
            "discontinuity": row.discontinuity,
            "floor_reason": row.floor_reason,
        }
        if row.failure is not None:
            kind, _, reason = row.failure.partition(": ")
            common |= {"failure": {"kind": kind, "reason": reason}, "activity": {}}
            return Measurement.measured(self.interface, values=a.values, seed=seed, **common)
        support = {
            name: value
            for name, value in (("state", row.support_state), ("latent", row.support_latent))
            if value is not None
        }
        details: dict[str, Any] = {
            "support_imagined": row.support_imagined,
            "nearest": row.nearest,
        }
        if row.true_steps is not None:
            details |= {"true_steps": row.true_steps, "disagreement": row.disagreement}
        return Measurement.measured(
            self.interface,
            values=a.values,
            seed=seed,
            loss=row.loss,
            step_losses=row.steps,
            frozen_loss=row.frozen,
            frozen_step_losses=row.frozen_steps,
            floor=row.floor,
            readout_error=row.readout_error,
            support=support,
            details=details,
            **common,
        )


@dataclass(frozen=True)
class Aggregate:
    """One input over its seeds. Losses in the interface's unit.

    risk, frozen, floor: the statistic of losses, frozen-world losses and floors; None when a
        measurement failed (floor also where it cannot be measured).
    activity, readout_error, discontinuity, contact: means over seeds.
    stratum: of the mean percentile, the worse of state and latent; None without a reference.
    """

    seeds: tuple[int, ...]
    losses: tuple[float | None, ...]
    measurements: tuple[str, ...]
    risk: float | None
    frozen: float | None
    floor: float | None
    activity: dict[str, float]
    support: dict[str, float]
    stratum: Any
    failure: str | None

    @classmethod
    def of(cls, measured: Sequence[Measurement], statistic: Statistic) -> Aggregate:
        """Aggregate one input's measurements."""
        rule = statistic.model_dump()
        failures = [m.failure for m in measured if m.failure is not None]
        losses = tuple(m.loss for m in measured)
        good = not failures
        floors = [m.floor for m in measured]
        frozen = [m.frozen_loss for m in measured]
        names = sorted({n for m in measured for n in m.activity}) if good else []
        activity = {n: statistics.fmean(m.activity[n] for m in measured) for n in names}
        if good:
            activity["discontinuity"] = statistics.fmean(m.discontinuity or 0.0 for m in measured)
            errors = [m.readout_error for m in measured if m.readout_error is not None]
            if errors:
                activity["readout_error"] = statistics.fmean(errors)
        spaces = sorted({n for m in measured for n in m.support})
        support = {
            n: statistics.fmean(m.support[n] for m in measured if n in m.support) for n in spaces
        }
        return cls(
            seeds=tuple(m.seed for m in measured),
            losses=losses,
            measurements=tuple(m.key for m in measured),
            risk=risk_of([v for v in losses if v is not None], rule) if good else None,
            frozen=risk_of([v for v in frozen if v is not None], rule) if good else None,
            floor=risk_of([v for v in floors if v is not None], rule)
            if good and None not in floors
            else None,
            activity=activity,
            support=support,
            stratum=stratum(max(support.values())) if support else None,
            failure=f"{failures[0].kind}: {failures[0].reason}" if failures else None,
        )
