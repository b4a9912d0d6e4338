"""How often a check is wrong: measured by benchmarks/doctor.py, shipped beside the checks."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

FILE = "operating.json"


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
