"""Success of the released planning arms: unseen shapes, PushT itself, short-horizon peaks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dreamcheck.diagnostics.viscore.meta.released import Released, Row, number

Values = dict[str, float | int | None]

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


def mean_and_error(rates: Iterable[float], prefix: str) -> Values:
    values = np.asarray(list(rates))
    n = len(values)
    return {
        f"{prefix}/mean": float(values.mean()) if n else None,
        f"{prefix}/se": float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
        f"{prefix}/n": n,
    }


def ground_truth(released: Released) -> list[Row]:
    return [r for r in released.labels if r["source"] == "ground_truth"]


def single_seed_peak(rows: list[Row]) -> tuple[int, float]:
    """Epoch of the best seed-42 success at offset 25, ties to the later epoch; and that success."""
    single = [
        (number(r["success_rate"]), int(r["epoch"]))
        for r in rows
        if r["eval_seed"] == "42" and r["d"] == "25" and not r["task"].startswith("pushobj")
    ]
    best, epoch = max(single)
    return epoch, best


def planning_values(released: Released) -> Values:
    out: Values = {}
    truth = ground_truth(released)
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
                    out |= mean_and_error(rates, f"planning/{table}/{arm}/d{d}")
    out |= short_values(truth)
    for setting, run in REWEIGHTED.items():
        _, best = single_seed_peak([r for r in truth if r["run"] == run])
        out[f"planning/reacher_reweight/{setting}/peak_single_seed"] = best
    return out


def short_values(truth: list[Row]) -> Values:
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
            epoch, best = single_seed_peak(mine)
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
