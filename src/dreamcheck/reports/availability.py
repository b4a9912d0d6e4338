"""What of a declared validation is there, as the report says it."""

from __future__ import annotations

from typing import Any

from dreamcheck.reports.charts import GROUP_NAMES
from dreamcheck.reports.reading import Reader

KIND = "availability"


def availability(reader: Reader, spec: str) -> dict[str, Any] | None:
    """Caps, and per group the complete and the incomplete inputs; None in older studies."""
    record = reader.store.get(KIND, spec)
    if record is None:
        return None
    payload = record.payload

    def show(path: str) -> Any:
        return reader.field(KIND, spec, path, "{}")

    return {
        "unique": show("num_unique"),
        "restarts": show("restarts"),
        "left_out": show("num_left_out") if payload["num_left_out"] else None,
        "per_restart": show("per_restart") if payload["per_restart"] else None,
        "cap_inputs": show("cap_inputs"),
        "cap_seeds": show("cap_seeds"),
        "seeds": show("num_seeds"),
        "groups": [
            {
                "name": GROUP_NAMES[g["group"]],
                "inputs": show(f"groups.{i}.num_inputs"),
                "complete": show(f"groups.{i}.num_complete"),
                "undecided": show(f"groups.{i}.num_undecided") if g["num_undecided"] else None,
                "incomplete": [
                    {
                        "input": row["input"],
                        "missing": show(f"groups.{i}.incomplete.{k}.num_missing"),
                        "why": row["why"],
                    }
                    for k, row in enumerate(g["incomplete"])
                ],
            }
            for i, g in enumerate(payload["groups"])
        ],
    }
