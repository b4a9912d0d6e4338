"""A gate's result as a record, for the report."""

from __future__ import annotations

from pathlib import Path

from dreamcheck.evidence import Record
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.gate.judge import GateResult


def record_gate(directory: str | Path, result: GateResult) -> Record:
    """Keep the result in a study or a new directory."""
    return record_diagnosis(
        directory,
        name="gate",
        subject={"old": result.old, "new": result.new, "bank": result.bank},
        inputs={"seeds": list(result.seeds), "null": result.null_label},
        result=result.to_dict(),
    )
