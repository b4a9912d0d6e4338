"""Whether any metric ranks a user's checkpoints: one table, beside what costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
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
from dreamcheck.diagnostics.viscore.meta.calibration import calibration_error, constant_reference
from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.diagnostics.viscore.meta.ranking import (
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
class MetaReport:
    """Everything a reader needs to decide whether to trust a metric on a pool."""

    pool: str
    tasks: tuple[str, ...]
    unresolvable: tuple[str, ...]
    task_rows: tuple[TaskRow, ...]
    pooled_rows: tuple[PooledRow, ...]
    notes: tuple[str, ...]

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
) -> MetaReport:
    """Within-task and pooled ranking, calibration and the views that keep them honest.

    The epoch number is always a row of the table. A task whose labels spread less than their
    standard error is not correlated with anything: its rows carry the reason instead.

    Args:
        metrics: default: every metric of the pool.
        tasks: default: those of the pool.

    Source: spec/viscore.md section 11.
    """
    tasks = tuple(tasks or pool.task_names)
    names = tuple(dict.fromkeys((*(metrics or pool.metrics), "epoch")))
    rng = np.random.default_rng(seed)
    spread = {t: resolvability(pool.labels[pool.tasks == t]) for t in tasks}
    mute = tuple(t for t in tasks if not spread[t] > 1)
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
        live = tuple(t for t in tasks if t not in mute)
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
    )


def _notes(
    rows: Sequence[TaskRow], mute: Sequence[str], spread: dict[str, float]
) -> tuple[str, ...]:
    notes = [f"† {t}: label resolvability {spread[t]:.2f}; not interpreted" for t in mute]
    epoch = {r.task: r.rho for r in rows if r.metric == "epoch"}
    for r in rows:
        if r.metric != "epoch" and np.isfinite(r.rho) and np.isfinite(epoch.get(r.task, np.nan)):
            beaten = epoch[r.task] >= r.rho
            if beaten:
                notes.append(
                    f"on {r.task} the epoch number alone ranks (rho {epoch[r.task]:+.3f}) at "
                    f"least as well as {r.metric} ({r.rho:+.3f})"
                )
        if r.num_runs < 4 and not r.reason:
            notes.append(f"{r.task}: {r.num_runs} run(s); a claim about runs needs at least 4")
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
