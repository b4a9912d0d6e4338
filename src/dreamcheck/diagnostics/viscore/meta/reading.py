"""A user's table of checkpoints, read as a pool: CSV, or JSON as `dreamcheck score --json` gives it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.diagnostics.viscore.cells import run_of
from dreamcheck.diagnostics.viscore.meta.pool import Pool
from dreamcheck.errors import UsageError

KNOWN_METRICS = (
    "vis",
    "veracity",
    "influence",
    "sobriety",
    "m_emp",
    "probe_r2",
    "probe_r2_mlp",
    "straightness",
    "effective_rank",
    "embedding_spread",
    "one_step_to_frozen",
    "training_loss",
)
"""Columns taken for metrics when none are named: those of `dreamcheck score --csv`."""

TASK_NAMES = {"dmc": "reacher", "ogb": "cube"}
"""Names of simulators that stand for one task in the released tables."""


@dataclass(frozen=True, slots=True)
class PoolColumns:
    """Which column is what. An absent run is read from ``cell_id``, an absent epoch is unknown."""

    label: str = "success"
    run: str = "run"
    task: str = "task"
    epoch: str = "epoch"


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the pool {path} cannot be read: {e}.") from e
    if path.suffix == ".json":
        try:
            value = json.loads(text)
        except ValueError as e:
            raise UsageError(f"the pool {path} is no JSON: {e}.") from e
        rows = value.get("checkpoints") if isinstance(value, dict) else value
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise UsageError(
                f"the pool {path} must be a JSON list of objects, one checkpoint each, or hold "
                'such a list under "checkpoints".'
            )
        rows = [{**r, **(r.get("baselines") or {})} for r in rows]
    else:
        rows = list(csv.DictReader(text.splitlines()))
    if not rows:
        raise UsageError(f"the pool {path} holds no rows.")
    return rows


def _number(value: Any, *, where: str) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "nan", "none")):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError) as e:
        raise UsageError(f"{where} holds {value!r}, which is no number.") from e


def _column(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([_number(r.get(name), where=f"column {name!r}") for r in rows])


def _chosen(rows: list[dict[str, Any]], where: Sequence[str], path: Path) -> list[dict[str, Any]]:
    for rule in where:
        name, mark, value = rule.partition("=")
        if not mark or name not in rows[0]:
            raise UsageError(
                f"--where {rule} must be COLUMN=VALUE with a column of {path.name}: "
                f"{', '.join(rows[0])}."
            )
        rows = [r for r in rows if str(r.get(name)) == value]
        if not rows:
            raise UsageError(f"no row of {path.name} has {rule}.")
    return rows


def _require(rows: Sequence[dict[str, Any]], name: str, option: str, path: Path) -> None:
    if name not in rows[0]:
        raise UsageError(
            f"{path.name} has no column {name!r}; name it with {option}. It has "
            f"{', '.join(rows[0])}."
        )


def _pool(
    rows: list[dict[str, Any]], columns: PoolColumns, metrics: Sequence[str], path: Path
) -> Pool:
    _require(rows, columns.label, "--label", path)
    _require(rows, columns.task, "--task", path)
    labels = _column(rows, columns.label)
    rows = [r for r, kept in zip(rows, np.isfinite(labels), strict=True) if kept]
    labels = labels[np.isfinite(labels)]
    if not rows:
        raise UsageError(f"no row of {path.name} has a label in {columns.label!r}.")
    if labels.min() < 0 or labels.max() > 100:
        raise UsageError(
            f"column {columns.label!r} runs from {labels.min():g} to {labels.max():g}; success is "
            "read in percent, 0 to 100."
        )
    if len(labels) > 1 and labels.max() <= 1 and labels.max() > 0:
        raise UsageError(
            f"column {columns.label!r} runs from {labels.min():g} to {labels.max():g}: it looks "
            "like a fraction. Success is read in percent, because resolvability depends on it; "
            "multiply it by 100."
        )
    if columns.run in rows[0]:
        runs = [str(r[columns.run]) for r in rows]
    elif "cell_id" in rows[0]:
        runs = [run_of(str(r["cell_id"])) for r in rows]
    else:
        _require(rows, columns.run, "--run", path)
    return Pool(
        name=path.stem,
        runs=np.asarray(runs),
        tasks=np.asarray(
            [TASK_NAMES.get(str(r[columns.task]), str(r[columns.task])) for r in rows]
        ),
        epochs=_column(rows, columns.epoch),
        labels=labels,
        metrics={m: _column(rows, m) for m in metrics},
    )


def read_pool(
    path: str | Path,
    columns: PoolColumns | None = None,
    *,
    metrics: Sequence[str] | None = None,
    where: Sequence[str] = (),
) -> Pool:
    """The labelled rows of a table as a pool; rows without a label are left out.

    Args:
        metrics: columns to judge; default: those that are known here and not empty.
        where: "COLUMN=VALUE" rules that a row must meet.

    Raises:
        UsageError: a missing file or column, labels that are no percentages, scores of several
            factor sets in one column.
    """
    path = Path(path)
    columns = columns or PoolColumns()
    rows = _chosen(_rows(path), where, path)
    for name in metrics or ():
        _require(rows, name, "--metric", path)
    wanted = list(metrics) if metrics else [m for m in KNOWN_METRICS if m in rows[0]]
    wanted = [m for m in wanted if m != "epoch"]
    if not metrics:
        wanted = [m for m in wanted if np.isfinite(_column(rows, m)).any()]
    if not wanted:
        raise UsageError(
            f"{path.name} has none of the columns {', '.join(KNOWN_METRICS)}; name your metrics "
            "with --metric."
        )
    scales = {str(r["scale"]) for r in rows if "scale" in r} if "vis" in wanted else set()
    if len(scales) > 1:
        raise UsageError(
            f"{path.name} mixes scores of {len(scales)} scales in its column vis, which cannot be "
            f"compared: {'; '.join(sorted(scales)[:3])}. Choose one with --where scale=..."
        )
    return _pool(rows, columns, wanted, path)


def read_of_runs(
    path: str | Path, columns: PoolColumns, name: str, *, where: Sequence[str] = ()
) -> dict[str, str]:
    """A column's value for every run, e.g. its training objective.

    Raises:
        UsageError: no such column, or one run with several values.
    """
    path = Path(path)
    rows = _chosen(_rows(path), where, path)
    _require(rows, name, "--objective", path)
    out: dict[str, str] = {}
    for row in rows:
        run = str(row[columns.run]) if columns.run in row else run_of(str(row.get("cell_id", "")))
        value = str(row[name])
        if out.setdefault(run, value) != value:
            raise UsageError(
                f"run {run} has {out[run]!r} and {value!r} in column {name!r}; it must be a "
                "property of the run."
            )
    return out


def read_planners(
    path: str | Path,
    columns: PoolColumns,
    planners: Sequence[str],
    *,
    where: Sequence[str] = (),
) -> dict[str, Pool]:
    """One pool per planner: its own label, and the score with the sobriety of its probe.

    Args:
        planners: "NAME=LABEL_COLUMN", or "NAME=LABEL_COLUMN:SOBRIETY_COLUMN", in which case the
            score is veracity · influence · that column.

    Raises:
        UsageError: a rule that is not of that form, or a missing column.
    """
    if not planners:
        return {}
    path = Path(path)
    rows = _chosen(_rows(path), where, path)
    out = {}
    for rule in planners:
        name, mark, rest = rule.partition("=")
        label, _, sobriety = rest.partition(":")
        if not mark or not name or not label:
            raise UsageError(
                f"--planner {rule} must be NAME=LABEL_COLUMN or NAME=LABEL_COLUMN:SOBRIETY_COLUMN."
            )
        mine = PoolColumns(label, columns.run, columns.task, columns.epoch)
        known = [m for m in KNOWN_METRICS if m in rows[0]]
        if not sobriety:
            out[name] = _pool(rows, mine, known, path)
            continue
        for needed in ("veracity", "influence", sobriety):
            _require(rows, needed, "--planner", path)
        labelled = [r for r in rows if np.isfinite(_number(r.get(label), where=label))]
        pool = _pool(labelled, mine, known, path)
        s = _column(labelled, sobriety)
        vis = pool.metric("veracity") * pool.metric("influence") * s
        out[name] = pool.with_metric("sobriety", s).with_metric("vis", vis)
    return out
