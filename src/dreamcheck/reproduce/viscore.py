"""Every table of the VIScore paper, recomputed from the released CSV files."""

from __future__ import annotations

from collections.abc import Iterable
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
from dreamcheck.diagnostics.viscore.meta.pool import GRADED_TASKS, Pool
from dreamcheck.diagnostics.viscore.meta.ranking import (
    pooled,
    resolvability,
    spearman,
    within_task,
)
from dreamcheck.diagnostics.viscore.meta.released import (
    METRICS,
    PLANNERS,
    Released,
    Row,
    number,
)

Values = dict[str, float | int | None]

TAU_SWEEP = (55, 82, 110, 129)
KNEE_NATS = {"pusht": 129.0, "reacher": 65.0, "tworoom": 59.0}
UNSEEN_SHAPES = ("I", "L", "Z", "plus", "small_tee", "square")
FRESH_SEEDS = (1025, 3014, 5976)
OFFSETS = (25, 50, 75)
ARM_GROUPS = {
    "lewm_b128": "sig-128",
    "viswm_b128": "vis-bs128",
    "viswm_b256": "vis-bs256",
    "viswm_b512": "vis-bs512",
}
TRAIN_SEEDS = (403, 46, 729)
REWEIGHTED = {
    "c0.5_s0.5_h2": "visreg_dmc_lambd4p5_c0p5_s0p5_h2p0_103329",
    "c0.5_s2_h0.5": "visreg_dmc_lambd4p5_c0p5_s2p0_h0p5_103328",
    "c1.5_s1.5_h0": "visreg_dmc_lambd4p5_c1p5_s1p5_h0p0_103330",
    "c2_s0.5_h0.5": "visreg_dmc_lambd4p5_c2p0_s0p5_h0p5_103327",
    "c1_s1_h1": "visreg_dmc_lambd4p5_102705",
}
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
    out |= _planning(released)
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
                ("calib", calibration_statistic()),
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
        out[f"frozen_map/vis/{step / 20:.2f}"] = float(curve(step / 20))
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


def _mean_se(rates: Iterable[float], prefix: str) -> Values:
    values = np.asarray(list(rates))
    n = len(values)
    return {
        f"{prefix}/mean": float(values.mean()) if n else None,
        f"{prefix}/se": float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
        f"{prefix}/n": n,
    }


def _ground_truth(released: Released) -> list[Row]:
    return [r for r in released.labels if r["source"] == "ground_truth"]


def _peak(rows: list[Row]) -> tuple[int, float]:
    """Epoch of the best seed-42 success at offset 25, ties to the later epoch; and that success."""
    single = [
        (number(r["success_rate"]), int(r["epoch"]))
        for r in rows
        if r["eval_seed"] == "42" and r["d"] == "25" and not r["task"].startswith("pushobj")
    ]
    best, epoch = max(single)
    return epoch, best


def _planning(released: Released) -> Values:
    out: Values = {}
    truth = _ground_truth(released)
    given = {r["run"]: int(r["peak_epoch"]) for r in released.arms}
    for arm, group in ARM_GROUPS.items():
        pusht = [
            r
            for r in truth
            if r["group"] == group
            and r["env"] == "pusht"
            and r["train_seed"] in {str(s) for s in TRAIN_SEEDS}
        ]
        unseen = {f"pushobj_{s}" for s in UNSEEN_SHAPES}
        # The arms' runs are those that were ever tested on unseen shapes.
        runs = sorted({r["run"] for r in pusht if r["task"] in unseen})
        # Peak epochs as released where given (their tie rule is not uniform), else the only
        # epoch at which the run met unseen shapes.
        peak = {
            run: given.get(
                run, min(int(r["epoch"]) for r in pusht if r["run"] == run and r["task"] in unseen)
            )
            for run in runs
        }
        fresh = [r for r in pusht if r["run"] in peak and int(r["eval_seed"]) in FRESH_SEEDS]
        for d in OFFSETS:
            at_offset = [r for r in fresh if r["d"] == str(d)]
            at_peak = [r for r in at_offset if int(r["epoch"]) == peak[r["run"]]]
            tables = {
                "ood": [r for r in at_peak if r["task"] in unseen],
                "pusht": [r for r in at_peak if r["task"] == "pusht"],
                "pushobj_T_epoch10": [
                    r for r in at_offset if r["task"] == "pushobj_T" and r["epoch"] == "10"
                ],
                "ood_epoch10": [r for r in at_offset if r["task"] in unseen and r["epoch"] == "10"],
            }
            for table, rows in tables.items():
                if rows:
                    rates = [number(r["success_rate"]) for r in rows]
                    out |= _mean_se(rates, f"planning/{table}/{arm}/d{d}")
    out |= _short(truth)
    for setting, run in REWEIGHTED.items():
        _, best = _peak([r for r in truth if r["run"] == run])
        out[f"planning/reacher_reweight/{setting}/peak_single_seed"] = best
    return out


def _short(truth: list[Row]) -> Values:
    """Single-seed peaks and their fresh means, of three VIS-WM training runs per task."""
    out: Values = {}
    for task, env in {
        "pusht": "pusht",
        "reacher": "dmc",
        "tworoom": "tworoom",
        "cube": "ogb",
    }.items():
        rows = [
            r
            for r in truth
            if r["group"] == "vis-bs128"
            and r["env"] == env
            and r["train_seed"] in {str(s) for s in TRAIN_SEEDS}
            and r["d"] == "25"
            and not r["task"].startswith("pushobj")
        ]
        peaks, fresh = [], []
        for run in sorted({r["run"] for r in rows}):
            mine = [r for r in rows if r["run"] == run]
            epoch, best = _peak(mine)
            peaks.append(best)
            fresh += [
                number(r["success_rate"])
                for r in mine
                if int(r["epoch"]) == epoch and int(r["eval_seed"]) in FRESH_SEEDS
            ]
        at = f"planning/short/viswm_b128/{task}"
        out[f"{at}/single_seed_peak_mean"] = float(np.mean(peaks))
        out[f"{at}/fresh_mean_at_peak"] = float(np.mean(fresh)) if fresh else None
        out[f"{at}/fresh_n"] = len(fresh)
    return out


def _labels(released: Released) -> Values:
    """How label columns follow from the single evaluations."""
    by_cell: dict[tuple[str, int], dict[int, float]] = {}
    for r in released.labels:
        if r["d"] == "25" and not r["task"].startswith("pushobj"):
            cell = by_cell.setdefault((r["run"], int(r["epoch"])), {})
            cell[int(r["eval_seed"])] = number(r["success_rate"])
    truth: dict[tuple[str, int], list[float]] = {}
    for r in _ground_truth(released):
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
