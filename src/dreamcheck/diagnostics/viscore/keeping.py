"""Finished scores kept on disk: one file each for going on, one record for the report."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dreamcheck import __version__
from dreamcheck.diagnostics.viscore.criteria import Criterion
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.record import ScoreRecord
from dreamcheck.diagnostics.viscore.settings import ScoreSettings
from dreamcheck.digest import digest, plain
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.evidence.record import Record
from dreamcheck.models.protocol import WorldModel

FORMAT = 1


def settings_dict(settings: ScoreSettings) -> dict[str, Any]:
    """What of the settings decides a number.

    Raises:
        UsageError: injected noise has no name that could be kept.
    """
    if not isinstance(settings.noise, str):
        raise UsageError("scores with injected noise are not kept; use noise numpy or torch.")
    return {name: getattr(settings, name) for name in settings.__slots__}


def score_key(
    model: WorldModel, criterion: Criterion, probe: Probe, settings: ScoreSettings, cell_id: str
) -> str:
    """Digest of everything a kept score depends on, the numerics included."""
    return digest(
        {
            "format": FORMAT,
            "dreamcheck": __version__,
            "model": model.identity,
            "criterion": criterion.digest,
            "targets": [criterion.targets, criterion.angles],
            "probe": probe.digest,
            "settings": settings_dict(settings),
            "cell": cell_id,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "device": str(model.device),
            "machine": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
        }
    )


def keep_score(folder: str | Path, key: str, record: ScoreRecord) -> Path:
    """Write one finished score; replaced at once."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    payload = plain(record.to_dict())
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
    path = folder / f"score-{key}.json"
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        json.dump({"key": key, "content": digest(payload), "record": payload}, f)
    os.replace(temporary, path)
    return path


def kept_score(folder: str | Path, key: str) -> ScoreRecord | None:
    """A score kept under this key, or None.

    Raises:
        EvidenceError: the file was altered or cannot be read.
    """
    path = Path(folder) / f"score-{key}.json"
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        payload = kept["record"]
        whole = kept["key"] == key and kept["content"] == digest(payload)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise EvidenceError(f"the kept score {path.name} is unreadable ({e}); delete it.") from e
    if not whole:
        raise EvidenceError(f"the kept score {path.name} was altered; delete it.")
    return ScoreRecord.from_dict(payload)


def record_scores(
    directory: str | Path,
    records: Sequence[ScoreRecord],
    *,
    criterion: Criterion,
    probe: Probe,
    settings: ScoreSettings,
    probe_name: str = "",
    stamps: tuple[str, ...] = (),
) -> Record:
    """Keep a table of scores as one diagnosis, the section "score" of a report.

    Raises:
        EvidenceError: the same checkpoints and settings are stored there with other numbers.
    """
    result = {"checkpoints": [_without_seconds(r) for r in records]}
    return record_diagnosis(
        directory,
        name="score",
        subject={
            "task": criterion.task,
            "probe": probe.digest,
            "probe_name": probe_name,
            "num_rows": probe.num_rows,
            "num_episodes": len(probe.episodes),
            "num_drawn": len(probe.ep_ids),
            "models": {r.cell_id: r.model_identity for r in records},
        },
        inputs={
            "criterion": plain(criterion.model_dump()),
            "settings": plain(settings_dict(settings)),
            "dreamcheck": __version__,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
        },
        result=plain(result),
        stamps=stamps,
        meta={"seconds": {r.cell_id: dict(r.seconds) for r in records}},
    )


def _without_seconds(record: ScoreRecord) -> dict[str, Any]:
    out = record.to_dict()
    del out["seconds"]
    return out
