"""What was asked of a checkpoint before it planned, as plain values for the record (P1, law 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.models.protocol import WorldModel
from dreamcheck.planning.recorded import Recorded
from dreamcheck.tasks.protocol import Task


@dataclass(frozen=True)
class Guarded:
    """Stamps of guards that failed and were allowed, and two readings.

    domain_guard, norm_audit: {"verdict", "measured": {name: {"value", "unit"}}, "threshold",
        "evidence"}: does the simulator draw what the model was trained on (E2-E4), and does
        evaluation mode distort what batch normalisation passes on (B1-B5); None where nobody asked.
    """

    stamps: tuple[str, ...] = ()
    domain_guard: Mapping[str, Any] | None = None
    norm_audit: Mapping[str, Any] | None = None


Guard = Callable[[WorldModel, Task, Recorded], Guarded]
"""Asks a loaded model about the very task and episodes that will be planned on, or refuses."""


def audit_text(reading: Mapping[str, Any] | None) -> str:
    """A reading in a few words: "fine, gap 1.02", "skipped", "not asked"."""
    if reading is None:
        return "not asked"
    for name, headline in reading["measured"].items():
        return f"{reading['verdict']}, {name} {headline['value']:.3g}"
    why = next(iter(reading.get("evidence", ())), "")
    return f"{reading['verdict']} ({why})" if why else str(reading["verdict"])
