"""How often a check is wrong: measured by benchmarks/doctor.py, shipped beside the checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

FILE = "operating.json"
BEGIN, END = "<!-- operating characteristics: begin -->", "<!-- operating characteristics: end -->"
"""Between these lines of docs/doctor.md stands ``table``."""


@cache
def _file() -> dict[str, Any]:
    path = resources.files("dreamcheck.doctor") / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"checks": {}}


def operating(check: str) -> dict[str, Any] | None:
    """False-alarm rate with its interval and the smallest fault found; None when never measured."""
    return _file()["checks"].get(check)


def operating_text(check: str) -> str:
    """One line of it."""
    o = operating(check)
    if o is None:
        return "operating characteristics not measured"
    smallest = (
        f"finds faults from {o['smallest_found']:g} {o['unit']} up"
        if o["smallest_found"] is not None
        else "found no graded fault every time"
    )
    return (
        f"{o['false_alarms']} false alarms on {o['clean']} clean cases "
        f"(95% up to {o['false_alarm_high']:.1%}); {smallest}"
    )


def table(document: Mapping[str, Any]) -> str:
    """The operating characteristics as a Markdown table."""
    lines = [
        f"{document['cases']} cases; `{document['made_by']}`.",
        "",
        "| check | false alarms | 95 % up to | faults found | finds every fault from | unit |",
        "|---|---|---|---|---|---|",
    ]
    for name, o in sorted(document["checks"].items()):
        smallest = "none" if o["smallest_found"] is None else f"{o['smallest_found']:.3g}"
        lines.append(
            f"| {name} | {o['false_alarms']} of {o['clean']} | {o['false_alarm_high']:.1%} | "
            f"{o['found']} of {o['faulty']} | {smallest} | {o['unit']} |"
        )
    return "\n".join(lines) + "\n"
