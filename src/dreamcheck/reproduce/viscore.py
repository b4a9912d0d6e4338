"""Every table of the VIScore paper, recomputed from the released CSV files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dreamcheck.diagnostics.viscore.meta.bootstrap import (
    NUM_RESAMPLES,
    calibration_statistic,
    cluster_bootstrap,
    pooled_statistic,
)
from dreamcheck.diagnostics.viscore.meta.calibration import (
    calibration_error,
    constant_reference,
    fit_isotonic,
    frozen_error,
)
from dreamcheck.diagnostics.viscore.meta.planning_arms import (
    Values,
    ground_truth,
    planning_values,
)
from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.diagnostics.viscore.meta.ranking import (
    pooled,
    resolvability,
    spearman,
    within_task,
)
from dreamcheck.diagnostics.viscore.meta.released import (
    METRICS,
    Released,
    number,
)
from dreamcheck.errors import UsageError
from dreamcheck.reproduce.checks import Report, Tolerance, compare

TAU_SWEEP = (55, 82, 110, 129)
KNEE_NATS = {"pusht": 129.0, "reacher": 65.0, "tworoom": 59.0}
MCEM_FAMILY = ("mcem", "madam", "ss")


def viscore_values(data: str | Path, *, resamples: int = NUM_RESAMPLES) -> Values:
    """Every recomputed value by its key; None where the statistic is undefined.

    Args:
        data: the folder with the released CSV files.
        resamples: of the cluster bootstrap; 0 leaves the intervals out.

    Source: spec/viscore.md sections 11, 12, 16, 17; keys as in the data's README.
    """
    released = Released.read(data)
    out: Values = {}
    out |= _table6(released, resamples)
    out |= _frozen(released)
    out |= _tau_and_knees(released)
    out |= _table10(released)
    out |= planning_values(released)
    out |= _labels(released)
    return {k: _plain(v) for k, v in out.items()}


def _plain(value: float | int | None) -> float | int | None:
    if value is None or isinstance(value, (int, np.integer)):
        return None if value is None else int(value)
    return float(value) if np.isfinite(value) else None


def _sizes(pool: Pool, prefix: str) -> Values:
    out: Values = {f"{prefix}/n": len(pool), f"{prefix}/runs": len(pool.run_names)}
    out |= {f"{prefix}/n_{t}": int((pool.tasks == t).sum()) for t in pool.task_names}
    return out


def _table6(released: Released, resamples: int) -> Values:
    out: Values = {}
    # One stream continued across statistics, metrics and pools, in this order.
    rng = np.random.default_rng(0)
    for name in ("development", "heldout"):
        pool, cube = getattr(released, name), released.cube(name)
        prefix = f"table6/{name}"
        out |= _sizes(pool, prefix)
        out[f"{prefix}/n_cube"] = len(cube)
        out[f"{prefix}/constant_reference"] = constant_reference(pool)
        for metric in METRICS:
            at = f"{prefix}/{metric}"
            for task in GRADED_TASKS:
                out[f"{at}/rho_{task}"] = within_task(pool, metric, task)
            out[f"{at}/rho_cube"] = within_task(cube, metric, "cube")
            out[f"{at}/rho_pooled"] = pooled(pool, metric)
            out[f"{at}/calib"] = calibration_error(pool, metric)
            if not resamples:
                continue
            for key, statistic in (
                ("rho_pooled", pooled_statistic),
                ("calib", calibration_statistic),
            ):
                interval = cluster_bootstrap(pool, metric, statistic, rng=rng, resamples=resamples)
                out[f"{at}/ci95_{key}/lo"] = interval.low
                out[f"{at}/ci95_{key}/hi"] = interval.high
        for task in GRADED_TASKS:
            out[f"resolvability/{name}/{task}"] = resolvability(pool.labels[pool.tasks == task])
        out[f"resolvability/{name}/cube"] = resolvability(cube.labels)
    return out


def _frozen(released: Released) -> Values:
    out: Values = {}
    fits = {"fit472": released.fit472, "fit137": released.development}
    # Cube is left out of the method pool's statistics (section 11.7).
    pools = {
        "heldout_method": released.method.of_tasks(GRADED_TASKS),
        "heldout_dataset": released.dataset,
    }
    for name, pool in pools.items():
        prefix = f"table6/{name}"
        out |= _sizes(pool, prefix)
        for metric in METRICS:
            at = f"{prefix}/{metric}"
            out[f"{at}/rho_pooled"] = spearman(pool.metric(metric), pool.labels)
            for fit_name, fit in fits.items():
                error = frozen_error(fit, pool, metric)
                out[f"{at}/calib_frozen_{fit_name}"] = error.error
                out[f"{at}/n_used"] = error.num_used
        for fit_name, fit in fits.items():
            reference = frozen_error(fit, pool, "vis").reference
            out[f"{prefix}/constant_reference_{fit_name}"] = reference
    maze = released.dataset
    for objective in ("sigreg", "visreg"):
        rows = np.char.startswith(maze.runs, objective)
        out[f"table6/heldout_dataset/within_run/{objective}"] = spearman(
            maze.metric("vis")[rows], maze.labels[rows]
        )
    fit = released.fit472
    out["frozen_map/n_fit"] = len(fit)
    out["frozen_map/runs_fit"] = len(fit.run_names)
    curve = fit_isotonic(fit.metric("vis"), fit.labels)
    for step in range(21):
        out[f"frozen_map/vis/{step / 20:.2f}"] = float(curve([step / 20])[0])
    return out


def _tau_and_knees(released: Released) -> Values:
    out: Values = {}
    fits = {"fit472": released.fit472, "development137": released.development}
    for name, pool in fits.items():
        for tau in TAU_SWEEP:
            capped = np.minimum(pool.metric("m_emp") / tau, 1.0)
            product = pool.metric("veracity") * capped * pool.metric("sobriety")
            swept = pool.with_metric("swept", product)
            at = f"tau_sweep/{name}/{tau}"
            out[f"{at}/calib"] = calibration_error(swept, "swept")
            out[f"{at}/worst_within_rho"] = min(
                within_task(swept, "swept", t) for t in GRADED_TASKS
            )
        for task, knee in KNEE_NATS.items():
            rows = pool.of_tasks([task])
            m_emp = rows.metric("m_emp")
            low = m_emp <= knee
            out[f"knee/{name}/{task}/below"] = spearman(m_emp[low], rows.labels[low])
            out[f"knee/{name}/{task}/above"] = spearman(m_emp[~low], rows.labels[~low])
            saturated = rows.metric("influence") >= 1.0
            out[f"influence_saturated_fraction/{name}/{task}"] = float(saturated.mean())
    everything = {
        **{t: released.fit472.of_tasks([t]) for t in GRADED_TASKS},
        "cube": released.cube("development"),
        "maze": released.dataset,
    }
    for task, rows in everything.items():
        out[f"median_m_emp/{task}"] = float(np.median(rows.metric("m_emp")))
    cube = everything["cube"].metric("influence")
    out["min_m_emp/cube"] = float(everything["cube"].metric("m_emp").min())
    out["influence_saturated_fraction/cube"] = float((cube >= 1.0).mean())
    out["influence_saturated_fraction/maze"] = float(
        (everything["maze"].metric("influence") >= 1.0).mean()
    )
    return out


def _table10(released: Released) -> Values:
    out: Values = {}
    cells = []
    for planner, pool in released.planners().items():
        at = f"table10/{planner}"
        for metric in METRICS:
            for task in GRADED_TASKS:
                out[f"{at}/{metric}/rho_{task}"] = within_task(pool, metric, task)
            out[f"{at}/{metric}/rho_pooled"] = pooled(pool, metric)
            out[f"{at}/{metric}/calib"] = calibration_error(pool, metric)
        out[f"{at}/constant_reference"] = constant_reference(pool)
        for task in GRADED_TASKS:
            labels = pool.labels[pool.tasks == task]
            out[f"{at}/resolvability/{task}"] = resolvability(labels)
            out[f"{at}/mean_success/{task}"] = float(labels.mean())
            cells.append(within_task(pool, "vis", task))
    rho = np.asarray(cells)
    out["table10/summary/n_cells"] = len(rho)
    out["table10/summary/n_positive"] = int((rho > 0).sum())
    out["table10/summary/min_within_rho"] = float(rho.min())
    out["table10/summary/max_within_rho"] = float(rho.max())
    out["table10/summary/median_within_rho"] = float(np.median(rho))
    out["table10/summary/mean_within_rho"] = float(rho.mean())
    for probe in MCEM_FAMILY:
        pool = released.planner_with_probe("ps", probe)
        at = f"table10/ps_with_probe/{probe}"
        out[f"{at}/rho_pooled"] = pooled(pool, "vis")
        out[f"{at}/calib"] = calibration_error(pool, "vis")
        for task in GRADED_TASKS:
            out[f"{at}/rho_{task}"] = within_task(pool, "vis", task)
    return out


def _labels(released: Released) -> Values:
    """How label columns follow from the single evaluations."""
    by_cell: dict[tuple[str, int], dict[int, float]] = {}
    for r in released.labels:
        if r["d"] == "25" and not r["task"].startswith("pushobj"):
            cell = by_cell.setdefault((r["run"], int(r["epoch"])), {})
            cell[int(r["eval_seed"])] = number(r["success_rate"])
    truth: dict[tuple[str, int], list[float]] = {}
    for r in ground_truth(released):
        if r["d"] == "25" and not r["task"].startswith("pushobj"):
            truth.setdefault((r["run"], int(r["epoch"])), []).append(number(r["success_rate"]))

    def equal(a: float, b: float) -> bool:
        return abs(a - b) < 1e-6

    heldout = 0
    pool = released.heldout
    for run, epoch, label in zip(pool.runs, pool.epochs, pool.labels, strict=True):
        seeds = by_cell.get((run, int(epoch)), {})
        three = [seeds[s] for s in (5501, 60601, 90210) if s in seeds]
        heldout += len(three) == 3 and equal(float(np.mean(three)), label)
    per_method: dict[str, list[float]] = {}
    for r in released.method_labels:
        per_method.setdefault(r["run"], []).append(number(r["success_rate"]))
    method = released.method
    out: Values = {
        "labels/heldout_equal_to_mean_of_5501_60601_90210": heldout,
        "labels/heldout_method_equal_to_label_mean": sum(
            equal(float(np.mean(per_method[run])), label)
            for run, label in zip(method.runs, method.labels, strict=True)
        ),
        "labels/heldout_method_nine_seed_cells": sum(len(v) == 9 for v in per_method.values()),
    }
    for name, pool in {"fit472": released.fit472, "development": released.development}.items():
        cells = list(zip(pool.runs, pool.epochs.astype(int), pool.labels, strict=True))
        same = sum(
            (run, epoch) in truth and equal(float(np.mean(truth[run, epoch])), label)
            for run, epoch, label in cells
        )
        single = sum(len(truth.get((run, epoch), ())) == 1 for run, epoch, _ in cells)
        out[f"labels/{name}_equal_to_ground_truth_mean"] = same
        out[f"labels/{name}_not_in_success_labels"] = len(cells) - same
        out[f"labels/{name}_single_seed"] = single
    return out


def reproduce_viscore(data: str | Path, *, resamples: int = NUM_RESAMPLES) -> Report:
    """Recompute every released table and compare with ``expected.json`` where it lists a value.

    Args:
        data: the folder with the released CSV files and ``expected.json``.
        resamples: of the cluster bootstrap; the published intervals used 2000.

    Returns:
        A report whose ``values`` hold every key, also those without a published value.

    Raises:
        UsageError: a file is missing or unreadable.
    """
    folder = Path(data)
    values = viscore_values(folder, resamples=resamples)
    try:
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["values"]
    except (OSError, KeyError, json.JSONDecodeError) as e:
        raise UsageError(
            f"expected.json in {folder} cannot be read ({e}); without it there is nothing to "
            "compare with."
        ) from e
    report = Report(title="VIScore released tables", values=dict(values))
    for key, entry in expected.items():
        if not resamples and "/ci95_" in key:
            continue
        reach = Tolerance(absolute=float(entry["abs_tol"]))
        report.checks.append(
            compare(key, entry["value"], values.get(key, "absent"), tolerance=reach)
        )
    report.notes.append(
        "the frozen map is fitted on 472 rows as in the released code (fit472), and on the 137 "
        "development rows as the paper says (fit137)"
    )
    if not resamples:
        report.notes.append("intervals were left out (resamples = 0)")
    return report
