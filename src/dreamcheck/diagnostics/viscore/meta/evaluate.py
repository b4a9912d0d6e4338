"""Whether any metric ranks a user's checkpoints: one table, beside what costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamcheck.diagnostics.viscore.meta.bootstrap import (
    NUM_RESAMPLES,
    Interval,
    calibration_statistic,
    cluster_bootstrap,
    pooled_statistic,
)
from dreamcheck.diagnostics.viscore.meta.calibration import (
    calibration_error,
    constant_reference,
    frozen_error,
)
from dreamcheck.diagnostics.viscore.meta.pool import EPISODES_PER_LABEL, GRADED_TASKS, Pool
from dreamcheck.diagnostics.viscore.meta.ranking import (
    MIN_ROWS,
    View,
    fixed_epoch,
    one_per_run,
    partial_given_epoch,
    pooled,
    resolvability,
    within_task,
)

FACTORS = ("veracity", "influence", "sobriety")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One metric on one task; every correlation is NaN with a reason when labels cannot rank."""

    metric: str
    task: str
    rho: float
    partial_given_epoch: float
    one_per_run: View
    fixed_epoch: View
    num_rows: int
    num_runs: int
    resolvability: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PooledRow:
    """One metric over the graded tasks; intervals by resampling runs."""

    metric: str
    rho: float
    rho_interval: Interval
    calibration: float
    calibration_interval: Interval
    constant_reference: float
    num_rows: int
    num_runs: int


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One subset of the factors: its pooled correlation and calibration error."""

    factors: str
    rho: float
    calibration: float


@dataclass(frozen=True, slots=True)
class FrozenRow:
    """A map fitted on another pool and applied unchanged; points, beside the constant."""

    metric: str
    fit: str
    error: float
    reference: float
    num_used: int


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One metric against one planner's success; the planner's resolvability by task beside it."""

    planner: str
    metric: str
    rho: tuple[tuple[str, float], ...]
    rho_pooled: float
    calibration: float
    constant_reference: float
    resolvability: tuple[tuple[str, float], ...]
    num_rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, by task."""
        return {
            **asdict(self),
            "rho": dict(self.rho),
            "resolvability": dict(self.resolvability),
        }


@dataclass(frozen=True, slots=True)
class MetaReport:
    """Everything a reader needs to decide whether to trust a metric on a pool."""

    pool: str
    tasks: tuple[str, ...]
    unresolvable: tuple[str, ...]
    task_rows: tuple[TaskRow, ...]
    pooled_rows: tuple[PooledRow, ...]
    notes: tuple[str, ...]
    episodes: int = EPISODES_PER_LABEL
    ablation: tuple[AblationRow, ...] = ()
    frozen: tuple[FrozenRow, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values."""
        return asdict(self)


def meta_evaluate(
    pool: Pool,
    *,
    metrics: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    resamples: int = NUM_RESAMPLES,
    seed: int = 0,
    episodes: int = EPISODES_PER_LABEL,
    fit: Pool | None = None,
) -> MetaReport:
    """Within-task and pooled ranking, calibration and the views that keep them honest.

    The epoch number is always a row of the table. A task whose labels spread less than their
    standard error is not correlated with anything: its rows carry the reason instead.

    Args:
        metrics: default: every metric of the pool.
        tasks: default: those of the pool.
        resamples: of the bootstrap over runs; 0 leaves the intervals out.
        episodes: evaluation episodes behind one label.
        fit: another pool, on which a map is fitted for every metric and applied here unchanged.

    Source: spec/viscore.md section 11.
    """
    tasks = tuple(tasks or pool.task_names)
    names = tuple(dict.fromkeys((*(metrics or pool.metrics), "epoch")))
    rng = np.random.default_rng(seed)
    spread = {t: resolvability(pool.labels[pool.tasks == t], episodes=episodes) for t in tasks}
    mute = tuple(t for t in tasks if not spread[t] > 1)
    live = tuple(t for t in tasks if t not in mute)
    task_rows, pooled_rows = [], []
    for name in names:
        for t in tasks:
            rows = (pool.tasks == t) & np.isfinite(pool.metric(name))
            counts = (int(rows.sum()), len(set(pool.runs[rows].tolist())))
            if t in mute:
                reason = (
                    f"labels of {t} spread {spread[t]:.2f} standard errors of one label: nothing "
                    "can be ranked; evaluate more episodes per checkpoint"
                )
                empty = View(np.nan, 0, 0.0)
                task_rows.append(
                    TaskRow(name, t, np.nan, np.nan, empty, empty, *counts, spread[t], reason)
                )
                continue
            task_rows.append(
                TaskRow(
                    metric=name,
                    task=t,
                    rho=within_task(pool, name, t),
                    partial_given_epoch=(
                        np.nan if name == "epoch" else partial_given_epoch(pool, name, t)
                    ),
                    one_per_run=one_per_run(pool, name, t, seed=seed),
                    fixed_epoch=fixed_epoch(pool, name, t),
                    num_rows=counts[0],
                    num_runs=counts[1],
                    resolvability=spread[t],
                )
            )
        rows = np.isin(pool.tasks, list(live)) & np.isfinite(pool.metric(name))
        pooled_rows.append(
            PooledRow(
                metric=name,
                rho=pooled(pool, name, tasks=live),
                rho_interval=cluster_bootstrap(
                    pool, name, pooled_statistic, rng=rng, tasks=live, resamples=resamples
                ),
                calibration=calibration_error(pool, name, tasks=live),
                calibration_interval=cluster_bootstrap(
                    pool,
                    name,
                    calibration_statistic,
                    rng=rng,
                    tasks=live,
                    resamples=resamples,
                ),
                constant_reference=constant_reference(pool, tasks=live),
                num_rows=int(rows.sum()),
                num_runs=len(set(pool.runs[rows].tolist())),
            )
        )
    return MetaReport(
        pool=pool.name,
        tasks=tasks,
        unresolvable=mute,
        task_rows=tuple(task_rows),
        pooled_rows=tuple(pooled_rows),
        notes=_notes(task_rows, mute, spread),
        episodes=episodes,
        ablation=_ablation(pool, live),
        frozen=_frozen(fit, pool.of_tasks(live), names) if fit is not None else (),
    )


def _ablation(pool: Pool, tasks: Sequence[str]) -> tuple[AblationRow, ...]:
    if not tasks or not set(FACTORS) <= set(pool.metrics):
        return ()
    found = factor_ablation(pool, tasks=tasks)
    return tuple(AblationRow(k, rho, error) for k, (rho, error) in found.items())


def _frozen(fit: Pool, pool: Pool, names: Sequence[str]) -> tuple[FrozenRow, ...]:
    rows = []
    for name in names:
        if not np.isfinite(fit.metric(name)).any():
            continue
        found = frozen_error(fit, pool, name)
        rows.append(FrozenRow(name, fit.name, found.error, found.reference, found.num_used))
    return tuple(rows)


def transfer_rows(
    pools: Mapping[str, Pool],
    *,
    metrics: Sequence[str] | None = None,
    episodes: int = EPISODES_PER_LABEL,
) -> tuple[TransferRow, ...]:
    """Every metric against every planner's success; a task that cannot rank is NaN and left out.

    Source: spec/viscore.md section 12.
    """
    rows = []
    for planner, pool in pools.items():
        spread = tuple(
            (t, resolvability(pool.labels[pool.tasks == t], episodes=episodes))
            for t in pool.task_names
        )
        live = tuple(t for t, value in spread if value > 1)
        for name in metrics or tuple(pool.metrics):
            if not np.isfinite(pool.metric(name)).any():
                continue
            rho = tuple(
                (t, within_task(pool, name, t) if t in live else np.nan) for t in pool.task_names
            )
            rows.append(
                TransferRow(
                    planner=planner,
                    metric=name,
                    rho=rho,
                    rho_pooled=pooled(pool, name, tasks=live),
                    calibration=calibration_error(pool, name, tasks=live),
                    constant_reference=constant_reference(pool, tasks=live),
                    resolvability=spread,
                    num_rows=len(pool.measured(name, live)),
                )
            )
    return tuple(rows)


def _notes(
    rows: Sequence[TaskRow], mute: Sequence[str], spread: dict[str, float]
) -> tuple[str, ...]:
    notes = [f"† {t}: label resolvability {spread[t]:.2f}; not interpreted" for t in mute]
    for task in dict.fromkeys(r.task for r in rows):
        here = {r.metric: r.rho for r in rows if r.task == task}
        alone = here.pop("epoch", np.nan)
        beaten = [f"{m} ({rho:+.3f})" for m, rho in here.items() if alone >= rho]
        if beaten:
            notes.append(
                f"on {task} the epoch number alone ranks (rho {alone:+.3f}) at least as well as "
                f"{', '.join(beaten)}"
            )
    notes += [
        f"{r.task}: {r.num_runs} run(s); a claim about runs needs at least {MIN_ROWS}"
        for r in rows
        if r.num_runs < MIN_ROWS and not r.reason
    ]
    return tuple(dict.fromkeys(notes))


def factor_ablation(
    pool: Pool, *, tasks: Sequence[str] = GRADED_TASKS
) -> dict[str, tuple[float, float]]:
    """Pooled correlation and calibration error of the product, each factor, and each pair.

    Source: spec/viscore.md section 11.10 (the pairs are ours).
    """
    out = {}
    for keep in ("VIS", "V", "I", "S", "VI", "VS", "IS"):
        values = np.prod([pool.metric(f) for f in FACTORS if f[0].upper() in keep], axis=0)
        with_it = pool.with_metric(keep, values)
        out[keep] = (
            pooled(with_it, keep, tasks=tasks),
            calibration_error(with_it, keep, tasks=tasks),
        )
    return out


def transfer(
    pool: Pool,
    labels: dict[str, np.ndarray],
    probes: dict[str, np.ndarray],
    probe_of: dict[str, str],
    *,
    tasks: Sequence[str] = GRADED_TASKS,
) -> dict[str, Pool]:
    """One pool per planner: its labels, and the score with the sobriety of its probe.

    Args:
        pool: rows with veracity and influence; its own labels are not used.
        labels: planner -> success in percent [N]. probes: probe -> sobriety [N].
        probe_of: planner -> probe.

    Source: spec/viscore.md section 12.
    """
    out = {}
    for planner, label in labels.items():
        sobriety = probes[probe_of[planner]]
        base = Pool(
            name=planner,
            runs=pool.runs,
            tasks=pool.tasks,
            epochs=pool.epochs,
            labels=label,
            metrics=pool.metrics,
        ).of_tasks(tasks)
        kept = np.isin(pool.tasks, list(tasks))
        vis = pool.metric("veracity") * pool.metric("influence") * sobriety
        out[planner] = base.with_metric("sobriety", sobriety[kept]).with_metric("vis", vis[kept])
    return out
