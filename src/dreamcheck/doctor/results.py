"""Evaluation results as checks see them: one row per episode and repeat, read from JSON or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dreamcheck.errors import UsageError

SELECTIONS = ("all", "last", "declared")
"""How the reported rows were chosen, when that was fixed beforehand."""


@dataclass(frozen=True, slots=True)
class Row:
    """One episode evaluated once.

    checkpoint, epoch: what was evaluated. repeat: training seed, planner stream or run.
    episode: its identity. start: the recorded frame it began at; None when it began at a reset,
    which ``seed`` then identifies. reported: whether it went into the published number.
    trivial: the start already satisfied the success rule. action: the policy's first action.
    """

    checkpoint: str
    episode: str
    success: bool
    repeat: str = "0"
    epoch: int | None = None
    seed: int | None = None
    start: int | None = None
    gap: int | None = None
    reported: bool = True
    trivial: bool | None = None
    action: tuple[float, ...] | None = None

    @property
    def situation(self) -> tuple[Any, ...]:
        """What the outcome depends on beside checkpoint and planner noise."""
        if self.start is not None:
            return ("recorded", self.episode, self.start)
        return ("reset", self.seed) if self.seed is not None else ("episode", self.episode)

    @property
    def run(self) -> tuple[str, int | None, str]:
        """Checkpoint, epoch and repeat."""
        return (self.checkpoint, self.epoch, self.repeat)


@dataclass(frozen=True)
class ResultSet:
    """Rows of one table entry, and how the reported ones were chosen.

    selection: one of SELECTIONS when fixed before the outcomes were seen, None when unknown.
    """

    rows: tuple[Row, ...]
    selection: str | None = None

    def runs(self) -> dict[tuple[str, int | None, str], tuple[Row, ...]]:
        """Rows by run, in order of appearance."""
        grouped: dict[tuple[str, int | None, str], list[Row]] = {}
        for row in self.rows:
            grouped.setdefault(row.run, []).append(row)
        return {k: tuple(v) for k, v in grouped.items()}


def results_from(values: Mapping[str, Any] | Sequence[Any], *, where: str = "results") -> ResultSet:
    """Results from plain values.

    Takes ``{"rows": [...], "selection": ...}``, a list of rows, or a planning evaluation's
    ``to_dict()`` (its planner arm; every stream was averaged in, so every row is reported).

    Raises:
        UsageError: none of these, no rows, or a field that is missing or of another type.
    """
    if isinstance(values, Mapping) and "planner" in values and "realised" in values:
        return _planned(values, where)
    rows = values.get("rows") if isinstance(values, Mapping) else values
    selection = values.get("selection") if isinstance(values, Mapping) else None
    if isinstance(rows, str) or not isinstance(rows, Sequence) or not rows:
        raise UsageError(
            f"{where} holds no result rows: it needs {{'rows': [{{'checkpoint', 'episode', "
            "'success', ...}]}} with at least one, or a planning evaluation's JSON."
        )
    if selection is not None and selection not in SELECTIONS:
        raise UsageError(
            f"{where}: selection = {selection!r} is not one of {', '.join(SELECTIONS)}; leave it "
            "out when the choice was not fixed beforehand."
        )
    return ResultSet(tuple(_row(r, f"{where}, row {i}") for i, r in enumerate(rows)), selection)


def read_results(path: str | Path) -> ResultSet:
    """Results from a .csv file (one header line) or a JSON file.

    Raises:
        UsageError: unreadable, no such format, or a row that cannot be used, named.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"the results {path} cannot be read: {e}.") from e
    if path.suffix == ".csv":
        table = [{k: v for k, v in r.items() if v != ""} for r in csv.DictReader(text.splitlines())]
        return results_from(table, where=str(path))
    try:
        return results_from(json.loads(text), where=str(path))
    except json.JSONDecodeError as e:
        raise UsageError(f"the results {path} are not JSON: {e}.") from e


def _planned(values: Mapping[str, Any], where: str) -> ResultSet:
    try:
        model = str(values["realised"]["model"])
        rows = [
            Row(
                checkpoint=model,
                episode=str(o["episode"]),
                success=bool(o["success"]),
                repeat=str(o["stream"]),
                start=int(o["start"]),
                gap=o.get("gap"),
                trivial=bool(o["trivial"]),
            )
            for o in values["planner"]["outcomes"]
        ]
    except (KeyError, TypeError) as e:
        raise UsageError(
            f"{where} looks like a planning evaluation but has no {e}: write it with outcomes."
        ) from e
    if not rows:
        raise UsageError(f"{where}: the planner arm holds no outcomes.")
    return ResultSet(tuple(rows), "all")


_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")


def _flag(value: Any, name: str, where: str) -> bool:
    text = str(value).strip().lower()
    if text in (*_TRUE, "1.0"):
        return True
    if text in (*_FALSE, "0.0"):
        return False
    raise UsageError(f"{where}: {name} = {value!r} is neither true nor false (1 or 0).")


def _row(values: Any, where: str) -> Row:
    if not isinstance(values, Mapping):
        raise UsageError(f"{where} is {values!r}, not a table of fields.")
    missing = [n for n in ("checkpoint", "episode", "success") if values.get(n) is None]
    unknown = sorted({str(k) for k in values} - {f.name for f in fields(Row)})
    if missing or unknown:
        raise UsageError(
            f"{where}: missing {missing}, unknown {unknown}. A row has "
            f"{', '.join(f.name for f in fields(Row))}; the first three are required."
        )
    made: dict[str, Any] = {
        "checkpoint": str(values["checkpoint"]),
        "episode": str(values["episode"]),
        "repeat": str(values.get("repeat", "0")),
    }
    for name in ("success", "reported", "trivial"):
        if values.get(name) is not None:
            made[name] = _flag(values[name], name, where)
    for name in ("epoch", "seed", "start", "gap"):
        if values.get(name) is not None:
            try:
                made[name] = int(values[name])
            except (TypeError, ValueError) as e:
                raise UsageError(f"{where}: {name} = {values[name]!r} is no integer.") from e
    if values.get("action") is not None:
        raw = values["action"]
        try:
            made["action"] = tuple(float(x) for x in (raw.split() if isinstance(raw, str) else raw))
        except (TypeError, ValueError) as e:
            raise UsageError(f"{where}: action = {raw!r} is no list of numbers.") from e
    return Row(**made)
