"""What stands beside a finding: fresh seeds, sibling checkpoints, variance, and how far it reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.evidence import values_text
from dreamcheck.reports.reading import Reader


def beyond(reader: Reader, spec: str, *, names: Sequence[str]) -> dict[str, Any]:
    """The parts of one search's section; a part that was not measured is empty.

    names: the specification's coordinates, in its order.
    """
    return {
        "time": _time(reader, spec),
        "reselection": _reselection(reader, spec, names),
        "siblings": _siblings(reader, spec, names),
        "variance": _variance(reader, spec),
        "basins": _basins(reader, spec, names),
        "change": _change(reader, spec, names),
    }


def _title(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """An input in one line, in the specification's order; records keep another."""
    return values_text({n: values[n] for n in names})


def _time(reader: Reader, spec: str) -> dict[str, Any] | None:
    """How an allowed time was spent, and how common failures are."""
    record = reader.store.get("time-plan", spec)
    if record is None:
        return None
    found = reader.store.get("prevalence", spec)

    def plan(name: str, fmt: str = "{}") -> Any:
        return reader.field("time-plan", spec, name, fmt)

    def common(name: str, fmt: str = "{}") -> Any:
        return reader.field("prevalence", spec, name, fmt)

    return {
        "choice": record.payload["choice"],
        "allowed": plan("allowed_s", "{:,.0f}"),
        "checks": plan("checks_s", "{:,.0f}"),
        "batched": plan("batched_s", "{:.2g}"),
        "single": plan("single_s", "{:.2g}"),
        "timed": plan("timed_inputs"),
        "inputs": plan("inputs", "{:,}"),
        "sample": plan("sample", "{:,}"),
        "budget": plan("budget"),
        "prevalence": None
        if found is None or found.payload["share"] is None
        else {
            "exact": found.payload["exact"],
            "rule": found.payload["rule"],
            "unmeasured": common("num_unmeasured") if found.payload["num_unmeasured"] else None,
            "failing": common("num_failing"),
            "inputs": common("num_inputs", "{:,}"),
            "share": common("share", "{:.2%}"),
            "low": common("low", "{:.2%}"),
            "high": common("high", "{:.2%}"),
        },
    }


def _reselection(reader: Reader, spec: str, names: Sequence[str]) -> list[dict[str, Any]]:
    def show(r: dict[str, Any], path: str) -> Any:
        return reader.field("reselection", r["key"], path)

    return [
        {
            "title": _title(r["values"], names),
            "verdict": r["verdict"],
            "search": show(r, "search_score"),
            "validation": show(r, "validation_risk"),
            "fresh": show(r, "risk"),
            "default": show(r, "default_risk"),
        }
        for r in reader.payloads("reselection", spec=spec)
    ]


def _siblings(reader: Reader, spec: str, names: Sequence[str]) -> list[dict[str, Any]]:
    titles = {
        f["input"]: _title(f["values"], names)
        for f in reader.payloads("finding", spec=spec, group="shortlist")
    }
    rows = reader.payloads("sibling", spec=spec, group="shortlist")
    return [
        {
            "title": titles.get(r["input"], r["input"]),
            "label": r["label"],
            "risk": reader.field("finding", f"{spec}:shortlist:{r['input']}", "risk"),
            "mean": reader.field("sibling", r["key"], "mean_risk"),
            "alike": reader.field("sibling", r["key"], "fails_alike", "{}"),
            "of": reader.field("sibling", r["key"], "num_siblings", "{}"),
            "z": reader.field("sibling", r["key"], "z") if r["z"] is not None else None,
            "z_reason": r["z_reason"],
        }
        for r in rows
    ]


def _variance(reader: Reader, spec: str) -> dict[str, Any] | None:
    record = reader.store.get("variance", spec)
    if record is None:
        return None
    shares = record.payload["shares"]
    several = record.payload["num_checkpoints"] > 1
    return {
        "reason": record.payload["reason"],
        "shares": {
            name: reader.field("variance", spec, f"shares.{name}", "{:.0%}")
            for name, value in (shares or {}).items()
            # One checkpoint has no share of its own: a zero there would not be a measurement.
            if value is not None and (name != "checkpoints" or several)
        },
        "num_inputs": reader.field("variance", spec, "num_inputs", "{}"),
        "num_checkpoints": reader.field("variance", spec, "num_checkpoints", "{}"),
        "num_seeds": reader.field("variance", spec, "num_seeds", "{}"),
    }


def _change(reader: Reader, spec: str, names: Sequence[str]) -> dict[str, Any] | None:
    record = reader.store.get("edit-path", spec)
    if record is None:
        return None
    path = record.payload

    def show(name: str, fmt: str = "{}") -> Any:
        return reader.field("edit-path", spec, name, fmt)

    def edits(step: dict[str, Any]) -> str:
        changes = [f"{e['name']} {e['before']} → {e['after']}" for e in step["edits"]]
        return ", ".join(changes) or f"nominal: {_title(step['values'], names)}"

    return {
        "found": path["found"],
        "reason": path["reason"],
        "budget": show("budget"),
        "evaluated": show("evaluated") if "evaluated" in path else None,
        "num_edits": show("num_edits") if path["found"] else None,
        "steps": [
            {
                "edits": edits(step),
                "verdict": step["verdict"],
                "risk": show(f"steps.{n}.risk", "{:.2f}"),
            }
            for n, step in enumerate(path["steps"])
        ],
        "alternatives": [
            {"edits": edits(step), "risk": show(f"alternatives.{n}.risk", "{:.2f}")}
            for n, step in enumerate(path["alternatives"])
        ],
    }


def _basins(reader: Reader, spec: str, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "title": _title(b["values"], names),
            "radius": reader.field("basin", b["key"], "radius", "{:.1f}")
            if b["radius"] is not None
            else None,
            "reason": b["reason"],
            "reach": reader.field("basin", b["key"], "reach", "{}"),
        }
        for b in reader.payloads("basin", spec=spec)
    ]
