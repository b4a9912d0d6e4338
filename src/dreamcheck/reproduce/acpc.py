"""The ACPC paper's screening results, recomputed from its released tables.

Thresholds, transfer and rank correlations are computed twice: exactly (the default of this
project) and with the release's float arithmetic, by name. What the tables do not hold (features,
per-pair rows, latents) is not recomputed; figures that are copied summaries say so in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency import (
    MISS_STEPS,
    Block,
    BlockOutcome,
    Level,
    ShiftPair,
    ShiftScreen,
    Split,
    block_outcome,
    screen_shifts,
    screening_score,
    summarise,
    transfer_splits,
)
from dreamcheck.diagnostics.consistency.reduction import drift_over_runs, regret_over_runs
from dreamcheck.diagnostics.consistency.transfer import Arithmetic
from dreamcheck.errors import UsageError
from dreamcheck.reproduce.acpc_examples import worked_examples
from dreamcheck.reproduce.checks import Check, Report, Tolerance, compare
from dreamcheck.reproduce.outcomes import read_json

REAL = Tolerance(absolute=1e-6)
SWEEPS = {"lewm": "lewm_sweep_three_runs.json", "pldm": "pldm_sweep_three_runs.json"}
FORK = {
    "lewm": "le-wm-fork/canonical_evals_20260517.json",
    "pldm": "le-wm-fork/canonical_evals_pldm_20260522.json",
}
FORK_RUN = 3072
ARITHMETICS: Mapping[str, Arithmetic] = {
    "exact_grid_steps": "exact",
    "released_float_steps": "released_float",
}
# The two pairs of thresholds whose blocks the expected file lists one by one.
LISTED_THRESHOLDS = ((0.3, 0.95), (0.1, 0.95))
RECOVERED_RUNS = 2
IDENTIFYING = (
    "id",
    "quantity",
    "task",
    "run",
    "shift",
    "horizon",
    "quantile",
    "source",
    "checkpoint",
    "space",
)
# Quoted text of the expected file: nothing in it is a recomputed value.
QUOTED = {"paper", "status", "note", "aggregation"}


def reproduce_acpc(data_dir: Path | str) -> Report:
    """Everything in the ACPC expected file, checked and computed in both arithmetic modes.

    Args:
        data_dir: folder with the three-run tables, ``expected.json`` and ``le-wm-fork/``.

    Returns:
        A report with one check per published number; ``values`` follows the schema of
        expected.json.

    Raises:
        UsageError: the folder, a file or a field is missing or malformed.
    """
    folder = Path(data_dir)
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder: pass the folder of the released ACPC tables with --data"
        )
    expected = read_json(folder / "expected.json")
    try:
        return _reproduce(folder, expected)
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{folder}: a released table lacks a field or row: {error!r}") from error


def _reproduce(folder: Path, expected: Mapping[str, Any]) -> Report:
    report = Report("ACPC paper")
    families = {name: read_blocks(folder / file) for name, file in SWEEPS.items()}
    splits = {
        family: {mode: transfer_splits(blocks, arithmetic=a) for mode, a in ARITHMETICS.items()}
        for family, blocks in families.items()
    }
    values: dict[str, Any] = {
        "conventions": {"miss_steps": MISS_STEPS},
        "worked_examples": worked_examples(expected["worked_examples"]),
    }
    for family, blocks in families.items():
        values[family] = {
            "counts": counts(blocks),
            "task_table": task_table(blocks),
            "threshold_transfer": transfer_table(blocks, splits[family]),
        }
    values["blur_resize"] = blur_resize(
        read_json(folder / "lewm_blur_resize_pairs.json"),
        families["lewm"],
        splits["lewm"]["exact_grid_steps"],
    )
    values["error_drift"] = error_drift_table(read_json(folder / "lewm_error_drift_cells.json"))
    values["selection_regret"] = selection_regret_table(
        read_json(folder / "lewm_selection_regret_cells.json")
    )
    values["horizon_quantile"] = [
        {
            "task": r["task"],
            "horizon": r["horizon"],
            "quantile": r["quantile"],
            "ratio": r["augmented_ir_median"] / r["base_ir_median"],
        }
        for r in read_json(folder / "lewm_horizon_quantile.json")["rows"]
    ]
    values["local_geometry"] = [
        {
            "checkpoint": r["checkpoint"],
            "space": r["space"],
            "median_r_over_nn": r["median_r_over_nn"],
            "disjoint_fraction": r["disjoint"] / r["anchors"],
            "r_below_nn_fraction": r["r_below_nn"] / r["anchors"],
        }
        for r in read_json(folder / "pusht_local_geometry.json")["rows"]
    ]
    values["paper_check"] = paper_check(values, families["pldm"])
    report.values = values
    for section, content in expected.items():
        if section not in ("conventions", "tolerance"):
            report.checks.extend(_checks(section, content, values.get(section)))
    report.checks.append(
        compare("conventions/miss_steps", expected["conventions"]["miss_steps"], MISS_STEPS)
    )
    report.checks.extend(fork_checks(folder, families))
    report.notes = [
        "exact arithmetic is the default; released_float_steps and the float ties are named modes",
        "error_drift and selection_regret start from released cell errors: the regressions "
        "themselves are not in the data",
        "local_geometry medians are copied summaries; its fractions are recomputed from counts",
    ]
    return report


def read_blocks(path: Path) -> list[Block]:
    """The sweep's blocks, tasks in the file's order, runs ascending, levels by sigma_max."""
    raw = read_json(path)
    rows: dict[tuple[str, int], list[Level]] = {}
    for r in raw["rows"]:
        rows.setdefault((r["task"], r["run"]), []).append(
            Level(
                sigma_max=r["sigma_max"],
                ir_raw=r["ir_raw"],
                sr_count=r["sr_count"],
                sr_eligible=r["sr_eligible"],
                clean_successes=r["clean_successes"],
                noisy_successes=r["noisy_successes"],
                episodes=raw["episodes_per_cell"],
            )
        )
    order = {task: i for i, task in enumerate(raw["tasks"])}
    blocks = []
    for (task, run), levels in sorted(
        rows.items(), key=lambda item: (order[item[0][0]], item[0][1])
    ):
        levels.sort(key=lambda level: level.sigma_max)
        if [level.sigma_max for level in levels] != raw["sigma_max_grid"]:
            raise UsageError(f"{path.name}: {task} run {run} does not hold every level once")
        blocks.append(Block(task, run, tuple(levels)))
    return blocks


def counts(blocks: Sequence[Block]) -> dict[str, int]:
    """Rows that pass each threshold, and rows that recovered."""
    rows = [
        (ir <= 0.3, 20 * level.sr_count >= 19 * level.sr_eligible, recovered)
        for b in blocks
        for ir, level, recovered in zip(b.ir_relative, b.levels, b.recovered, strict=True)
    ]
    return {
        "rows": len(rows),
        "ir_rel_le_0_3": sum(ir for ir, _, _ in rows),
        "sr_ge_0_95": sum(sr for _, sr, _ in rows),
        "both": sum(ir and sr for ir, sr, _ in rows),
        "recovered_rows": sum(recovered for _, _, recovered in rows),
    }


def _by_task(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    grouped: dict[str, list[Block]] = {}
    for b in blocks:
        grouped.setdefault(b.task, []).append(b)
    return grouped


def _points(successes: int, block: Block) -> float:
    return 100 * successes / block.levels[0].episodes


def task_table(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Per task over runs: success, drop, the best level under noise, recovered levels."""
    table = []
    for task, runs in _by_task(blocks).items():
        base = [b.levels[0] for b in runs]
        drops = [
            _points(level.clean_successes - level.noisy_successes, b)
            for level, b in zip(base, runs, strict=True)
        ]
        num_levels = len(runs[0].levels)
        noisy = [sum(b.levels[i].noisy_successes for b in runs) for i in range(num_levels)]
        best = max(range(num_levels), key=lambda i: noisy[i])
        table.append(
            {
                "task": task,
                "noisy_success_unaugmented": _mean(
                    [_points(b.levels[0].noisy_successes, b) for b in runs]
                ),
                "clean_success_unaugmented": _mean(
                    [_points(b.levels[0].clean_successes, b) for b in runs]
                ),
                "unaugmented_drop_mean": _mean(drops),
                "unaugmented_drop_population_sd": float(np.std(drops)),
                "unaugmented_drop_sample_sd": float(np.std(drops, ddof=1)),
                "best_sigma_max": runs[0].levels[best].sigma_max,
                "best_noisy_success": _mean(
                    [_points(b.levels[best].noisy_successes, b) for b in runs]
                ),
                "best_relative_ir": _mean([b.ir_relative[best] for b in runs]),
                "sr_unaugmented": _mean([level.sr for level in base]),
                "best_sr": _mean([b.levels[best].sr for b in runs]),
                "recovered_levels": [
                    runs[0].levels[i].sigma_max
                    for i in range(num_levels)
                    if sum(b.recovered[i] for b in runs) >= RECOVERED_RUNS
                ],
                "clean_success_by_level": [
                    _mean([_points(b.levels[i].clean_successes, b) for b in runs])
                    for i in range(num_levels)
                ],
            }
        )
    return table


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def transfer_table(
    blocks: Sequence[Block], splits: Mapping[str, Sequence[Split]]
) -> dict[str, Any]:
    """Splits and their averages in both arithmetic modes, and the blocks at the listed thresholds."""
    table: dict[str, Any] = {}
    for mode, listed in splits.items():
        sizes = sorted({len(s.source) for s in listed})
        table[mode] = {
            "splits": [_split_row(s) for s in listed],
            "by_num_source_tasks": {str(n): _summary_row(listed, n) for n in sizes},
        }
    for t_ir, t_sr in LISTED_THRESHOLDS:
        table[f"blocks_at_{t_ir}_{t_sr}"] = [
            _block_row(block_outcome(b, t_ir=t_ir, t_sr=t_sr)) for b in blocks
        ]
    return table


def _split_row(split: Split) -> dict[str, Any]:
    m = split.metrics
    return {
        "source": list(split.source),
        "test": list(split.test),
        "t_ir": split.thresholds.t_ir,
        "t_sr": split.thresholds.t_sr,
        "balanced_accuracy": m.balanced_accuracy,
        "precision": m.precision,
        "recall": m.recall,
        "mean_step_gap": m.mean_step_gap,
        "max_step_gap": m.max_step_gap,
    }


def _summary_row(splits: Sequence[Split], num_source_tasks: int) -> dict[str, Any]:
    summary = summarise(splits, num_source_tasks=num_source_tasks)
    m = summary.metrics
    return {
        "balanced_accuracy": m.balanced_accuracy,
        "precision": m.precision,
        "recall": m.recall,
        "mean_step_gap": m.mean_step_gap,
        "max_step_gap": m.max_step_gap,
        "balanced_accuracy_range": list(summary.balanced_accuracy_range),
    }


def _block_row(outcome: BlockOutcome) -> dict[str, Any]:
    names = ("task", "run", "first_recovered", "first_accepted", "tp", "tn", "fp", "fn")
    return {name: getattr(outcome, name) for name in names}


def blur_resize(
    raw: Mapping[str, Any], blocks: Sequence[Block], splits: Sequence[Split]
) -> dict[str, Any]:
    """The screen under blur and resize, thresholds of each task from the split that tests it alone.

    Raises:
        UsageError: the tasks' thresholds differ, so that no single pair heads the table.
    """
    thresholds = {
        s.test[0]: (s.thresholds.t_ir, s.thresholds.t_sr) for s in splits if len(s.test) == 1
    }
    if len(set(thresholds.values())) != 1:
        raise UsageError(f"thresholds differ between tasks: {thresholds}; print them per task")
    t_ir, t_sr = next(iter(thresholds.values()))
    by_block = {(b.task, b.run): b for b in blocks}
    pairs = []
    for r in raw["rows"]:
        levels = {x.sigma_max: x for x in by_block[(r["task"], r["run"])].levels}
        pairs.append(
            ShiftPair(
                task=r["task"],
                run=r["run"],
                shift=r["shift"],
                base_shifted=r["base_successes"],
                augmented_shifted=r["augmented_successes"],
                base_clean=levels[0.0].clean_successes,
                augmented_clean=levels[raw["augmented_sigma_max"]].clean_successes,
                ir_relative=r["augmented_ir_relative"],
                base_sr_count=r["base_sr_count"],
                augmented_sr_count=r["augmented_sr_count"],
                sr_eligible=r["sr_eligible"],
                episodes=raw["episodes_per_cell"],
            )
        )
    delta = [p.delta_score(t_ir=thresholds[p.task][0], t_sr=thresholds[p.task][1]) for p in pairs]
    shifts = ("all", *dict.fromkeys(p.shift for p in pairs))

    def screened(shift: str, arithmetic: Arithmetic) -> ShiftScreen:
        chosen = [i for i, p in enumerate(pairs) if shift in ("all", p.shift)]
        return screen_shifts(
            [pairs[i] for i in chosen], [delta[i] for i in chosen], arithmetic=arithmetic
        )

    return {
        "thresholds": {"t_ir": t_ir, "t_sr": t_sr},
        # Its SR does not matter at this t_IR; the lowest possible one shows it.
        "reference_score": screening_score(1.0, 0.0, t_ir=t_ir, t_sr=t_sr),
        "spearman_with_released_float_ties": {
            shift: screened(shift, "released_float").spearman.value for shift in shifts
        },
        **{shift: _screen_row(screened(shift, "exact")) for shift in shifts},
        "delta_s": [
            {"task": p.task, "run": p.run, "shift": p.shift, "delta_s": d}
            for p, d in zip(pairs, delta, strict=True)
        ],
    }


def _screen_row(screen: ShiftScreen) -> dict[str, Any]:
    return {
        "pairs": screen.pairs,
        "tp": screen.tp,
        "tn": screen.tn,
        "fp": screen.fp,
        "fn": screen.fn,
        "sign_agreement": screen.sign_agreement,
        "balanced_accuracy": screen.balanced_accuracy,
        "precision": screen.precision,
        "recall": screen.recall,
        "spearman": screen.spearman.value,
    }


def error_drift_table(raw: Mapping[str, Any]) -> dict[str, Any]:
    """MAE reductions of section 12: per task, mean over tasks, then mean and sample SD over runs."""
    return drift_over_runs([{**r, "acpc_mae": r["acpc8_mae"]} for r in raw["rows"]])


def selection_regret_table(raw: Mapping[str, Any]) -> dict[str, Any]:
    """MAE reduction of section 13: from the task-averaged errors, then mean and sample SD."""
    return regret_over_runs([{**r, "expanded_mae": r["plus_h5_mae"]} for r in raw["rows"]])


def paper_check(values: Mapping[str, Any], pldm: Sequence[Block]) -> list[dict[str, str]]:
    """The recomputed column of the paper comparison, written out from the values above."""
    lewm = values["lewm"]
    tasks = {row["task"]: row for row in lewm["task_table"]}
    exact = lewm["threshold_transfer"]["exact_grid_steps"]
    released = lewm["threshold_transfer"]["released_float_steps"]

    def at_default(mode: Mapping[str, Any]) -> str:
        hits = sum(s["t_ir"] == 0.3 and s["t_sr"] == 0.95 for s in mode["splits"])
        return f"{hits} of {len(mode['splits'])}"

    def averages(mode: Mapping[str, Any], num_source_tasks: int) -> str:
        s = mode["by_num_source_tasks"][str(num_source_tasks)]
        return (
            f"{s['balanced_accuracy']:.3f}, {s['precision']:.3f}/{s['recall']:.3f}, "
            f"{s['mean_step_gap']:.2f}, {s['max_step_gap']:.0f}"
        )

    two, three = averages(released, 2), averages(released, 3)
    float_part = f"{two} for each of the two" if two == three else f"{two}; {three}"
    one = exact["by_num_source_tasks"]["1"]
    low, high = one["balanced_accuracy_range"]
    shift, drift, regret = values["blur_resize"], values["error_drift"], values["selection_regret"]
    ties = ", ".join(f"{shift[s]['spearman']:.3f}" for s in ("all", "blur", "resize"))
    float_ties = ", ".join(
        f"{shift['spearman_with_released_float_ties'][s]:.3f}" for s in ("all", "blur", "resize")
    )
    ratios = [
        f"{r['ratio']:.2f}"
        for r in values["horizon_quantile"]
        if r["horizon"] == 8 and r["quantile"] == 0.9
    ]
    geometry = values["local_geometry"]
    augmented = [(b, i) for b in pldm for i in range(1, len(b.levels))]
    better = sum(b.ir_relative[i] < 1 and b.levels[i].sr > b.levels[0].sr for b, i in augmented)
    texts = {
        "LeWM checkpoint rows": str(lewm["counts"]["rows"]),
        "rows with relative IR <= 0.3": str(lewm["counts"]["ir_rel_le_0_3"]),
        "of those, SR >= 0.95": str(lewm["counts"]["both"]),
        "unaugmented success drop at 0.08, TwoRoom/PushT/Reacher/Cube": ", ".join(
            f"{row['unaugmented_drop_mean']:.1f}+-{row['unaugmented_drop_population_sd']:.1f}"
            for row in tasks.values()
        ),
        "Reacher clean success under augmentation": ", ".join(
            f"{v:.1f}" for v in tasks["Reacher"]["clean_success_by_level"]
        ),
        "splits choosing (0.3, 0.95)": f"{at_default(released)} with released float steps; "
        f"{at_default(exact)} with exact grid steps",
        "two or three source tasks: BA, P/R, mean gap, max gap": f"float: {float_part}; "
        f"exact, two sources: {averages(exact, 2)}; exact, three sources: {averages(exact, 3)}",
        "one source task: BA mean and range": f"{one['balanced_accuracy']:.3f}, "
        f"{low:.3f} to {high:.3f}",
        "blur/resize sign agreement, BA": f"{shift['all']['sign_agreement']} of "
        f"{shift['all']['pairs']}, {shift['all']['balanced_accuracy']:.3f}",
        "blur/resize Spearman (all, blur, resize)": f"exact ties: {ties}; "
        f"released float ties: {float_ties}",
        "error drift, MAE reduction vs Base and vs Base+Control": ", ".join(
            (
                f"{100 * drift['vs_base_mean']:.1f}+-{100 * drift['vs_base_sample_sd']:.1f}",
                f"{100 * drift['vs_control_mean']:.1f}+-{100 * drift['vs_control_sample_sd']:.1f}",
                f"{drift['cells_best']} of {drift['cells']}",
            )
        ),
        "selection regret, MAE reduction": f"{100 * regret['mean']:.1f}+-"
        f"{100 * regret['sample_sd']:.1f}, {regret['cells_improved']} of {regret['cells']}",
        "Table 1 ratios": ", ".join(ratios),
        "r/NN medians, disjoint fractions": ", ".join(
            f"{g['median_r_over_nn']:.2f}" for g in geometry
        )
        + "; "
        + ", ".join(f"{100 * g['disjoint_fraction']:.1f}" for g in geometry),
        # No data were found for the ablation; an empty text is the honest one.
        "SIGReg-weight ablation (Table 3)": "",
        "PLDM pattern": "rows with relative IR < 1 and SR above the reference: "
        f"{better} of {len(augmented)} augmented",
    }
    return [{"quantity": q, "recomputed": text} for q, text in texts.items()]


def fork_checks(folder: Path, families: Mapping[str, Sequence[Block]]) -> list[Check]:
    """Clean and noisy success of run 3072 against the earlier study's own evaluation files."""
    checks = []
    for family, file in FORK.items():
        if not (folder / file).is_file():
            checks.append(compare(f"fork/{family}", file, None))
            continue
        evaluations = read_json(folder / file)
        for block in families[family]:
            if block.run != FORK_RUN:
                continue
            for level in block.levels:
                metrics = evaluations[block.task][str(level.sigma_max)]["metrics"]
                for condition, successes in (
                    ("clean", level.clean_successes),
                    ("pixels_std0.08", level.noisy_successes),
                ):
                    checks.append(
                        compare(
                            f"fork/{family}/{block.task}/{level.sigma_max}/{condition}",
                            metrics[condition]["mean"],
                            _points(successes, block),
                            tolerance=REAL,
                        )
                    )
    return checks


def _checks(label: str, expected: Any, got: Any) -> list[Check]:
    """One check per leaf; rows of a table are named by what identifies them."""
    if isinstance(expected, Mapping):
        inner: Callable[[str], Any] = got.get if isinstance(got, Mapping) else lambda _: None
        return [
            check
            for name, value in expected.items()
            if name not in QUOTED
            for check in _checks(f"{label}/{name}", value, inner(name))
        ]
    if isinstance(expected, list) and expected and isinstance(expected[0], Mapping):
        rows = got if isinstance(got, list) else []
        checks = [compare(f"{label}/rows", len(expected), len(rows))]
        for i, row in enumerate(expected):
            name = "+".join(_text(row[k]) for k in IDENTIFYING if k in row) or str(i)
            checks.extend(_checks(f"{label}/{name}", row, rows[i] if i < len(rows) else None))
        return checks
    exact = isinstance(expected, (bool, int, str)) or expected is None
    return [compare(label, expected, got, tolerance=None if exact else REAL)]


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
