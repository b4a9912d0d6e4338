"""An evaluation back from its record, so that pilots and comparisons need no second run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from dreamcheck.errors import UsageError
from dreamcheck.planning.admission import Feasibility
from dreamcheck.planning.control import Replan
from dreamcheck.planning.results import (
    ArmResult,
    Evaluation,
    Optimism,
    Outcome,
    Rate,
    Realised,
)

T = TypeVar("T")


def evaluation_from(record: Mapping[str, Any]) -> Evaluation:
    """The evaluation whose ``to_dict`` (or its JSON) this is; trajectories are not in a record.

    Raises:
        UsageError: a field is missing or unknown, named.
    """
    try:
        return Evaluation(
            realised=_made(Realised, record["realised"]),
            feasibility=_made(Feasibility, record["feasibility"]),
            planner=_arm(record["planner"]),
            controls={k: _arm(v) for k, v in record["controls"].items()},
            controls_missing=dict(record["controls_missing"]),
            optimism=_made(Optimism, record["optimism"]),
            near_tie_replans=record["near_tie_replans"],
            out_of_range_share=record["out_of_range_share"],
            plan_out_of_range_share=record["plan_out_of_range_share"],
            screening=record["screening"],
            unit=record["unit"],
            stamps=tuple(record["stamps"]),
            replans=tuple(_replan(r) for r in record["replans"]),
        )
    except KeyError as e:
        raise UsageError(f"this is no planning evaluation: it has no field {e}.") from e


def read_evaluation(path: str | Path) -> Evaluation:
    """An evaluation from a JSON file.

    Raises:
        UsageError: unreadable, or not an evaluation.
    """
    try:
        return evaluation_from(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as e:
        raise UsageError(f"the evaluation {path} cannot be read: {e}.") from e


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise UsageError(f"{kind.__name__} has no field {name!r}; another version wrote this.")
    ready = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    try:
        return kind(**ready)
    except TypeError as e:
        raise UsageError(f"{kind.__name__}: {e}.") from e


def _rate(values: Mapping[str, Any] | None) -> Rate | None:
    return None if values is None else _made(Rate, values)


def _arm(values: Mapping[str, Any]) -> ArmResult:
    return _made(
        ArmResult,
        {
            **values,
            "outcomes": [_made(Outcome, o) for o in values["outcomes"]],
            "success": _rate(values["success"]),
            "success_all": _rate(values["success_all"]),
            "per_stream": [_made(Rate, r) for r in values["per_stream"]],
            "legal_success": _rate(values["legal_success"]),
        },
    )


def _replan(values: Mapping[str, Any]) -> Replan:
    kept = {k: v for k, v in values.items() if k not in ("optimism", "optimism_cost")}
    for name in ("imagined_state", "realised_state"):
        if kept[name] is not None:
            kept[name] = tuple(tuple(v) for v in kept[name])
    return _made(Replan, kept)
