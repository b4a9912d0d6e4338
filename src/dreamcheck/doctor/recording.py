"""An examination as a diagnosis record, for the report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dreamcheck import __version__
from dreamcheck.doctor.examination import Examination
from dreamcheck.doctor.subject import Subject
from dreamcheck.evidence import Record
from dreamcheck.evidence.diagnoses import record_diagnosis


def record_examination(
    directory: str | Path, found: Examination, subject: Subject, *, model: str | None
) -> Record:
    """Keep it in a study, or a new store; wall times stay beside the record."""
    result = found.to_dict()
    seconds = {"total": result.pop("seconds")}
    for row in result["findings"]:
        seconds[row["check"]] = row.pop("seconds")
        # A list: displayed numbers are found by dotted paths, and names may hold anything.
        row["measured"] = [{"name": k, **m} for k, m in row["measured"].items()]
    return record_diagnosis(
        directory,
        name="doctor",
        subject={
            "model": model,
            "identity": None if subject.model is None else subject.model.identity,
            "task": None if subject.task is None else f"{subject.task.name} {subject.task.version}",
            "episodes": None if subject.episodes is None else subject.episodes.digest,
            "episodes_from": None if subject.episodes is None else subject.episodes_from,
            "train": None if subject.train is None else subject.train.digest,
            "protocol": getattr(subject.protocol, "digest", None),
        },
        inputs={
            "thresholds": subject.thresholds.name,
            "windows": subject.windows,
            "seed": subject.seed,
            "checks": [f.check for f in found.findings],
            "results": None if subject.results is None else repr(subject.results),
            "dreamcheck": __version__,
        },
        result=_finite(result),
        meta={"seconds": seconds},
    )


def _finite(value: Any) -> Any:
    """Infinity and NaN as words: JSON has neither."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
