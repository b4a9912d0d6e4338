"""Slices of logged data as a record: the section "slices" of a report."""

from __future__ import annotations

from pathlib import Path

import torch

from dreamcheck import __version__
from dreamcheck.data.episodes import Episodes
from dreamcheck.discovery.slices import SliceReport
from dreamcheck.evidence import Record
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.models.protocol import WorldModel


def record_slices(
    directory: str | Path,
    report: SliceReport,
    *,
    model: WorldModel,
    model_name: str,
    episodes: Episodes,
    data_name: str,
    columns: tuple[str, ...] | None = None,
) -> Record:
    """Keep the slices of one model on one set of episodes, in a study or a directory of their own.

    Args:
        model_name, data_name: as the user gave them, for the page.
        columns: as asked for; None for all usable ones.

    Raises:
        EvidenceError: the same model, data and settings are stored there with other numbers.
    """
    found = report.to_dict()
    tested = [s for s in report.slices if not s.reason]
    return record_diagnosis(
        directory,
        name="slices",
        subject={
            "model": model_name,
            "identity": model.identity,
            "data": data_name,
            "data_digest": episodes.digest,
            "interface": found.pop("interface"),
        },
        inputs={
            "settings": found.pop("settings"),
            "columns": list(columns) if columns else None,
            "dreamcheck": __version__,
            "torch": str(torch.__version__),
        },
        result={
            **found,
            "tested": len(tested),
            "confirmed": sum(s.confirmed for s in tested),
        },
    )
