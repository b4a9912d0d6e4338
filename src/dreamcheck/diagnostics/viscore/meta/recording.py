"""A meta-evaluation kept as one diagnosis, the section "meta" of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dreamcheck import __version__
from dreamcheck.diagnostics.viscore.meta.evaluate import MetaReport, TransferRow
from dreamcheck.diagnostics.viscore.meta.pool import Pool
from dreamcheck.digest import digest_arrays, plain
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.evidence.record import Record


def record_meta(
    directory: str | Path,
    pool: Pool,
    report: MetaReport,
    transfer: Sequence[TransferRow],
    *,
    seed: int,
    resamples: int,
) -> Record:
    """Keep the report, with the pool's rows (labels and metrics) that it was computed from."""
    rows = {
        "runs": pool.runs.tolist(),
        "tasks": pool.tasks.tolist(),
        "epochs": pool.epochs.tolist(),
        "labels": pool.labels.tolist(),
        "metrics": {k: v.tolist() for k, v in pool.metrics.items()},
    }
    numeric = {"labels": pool.labels, "epochs": pool.epochs, **pool.metrics}
    return record_diagnosis(
        directory,
        name="meta",
        subject={
            "pool": pool.name,
            "digest": digest_arrays(numeric),
            "runs": sorted(set(pool.runs.tolist())),
        },
        inputs={
            "seed": seed,
            "resamples": resamples,
            "episodes": report.episodes,
            "metrics": sorted(pool.metrics),
            "planners": sorted({t.planner for t in transfer}),
            "frozen": sorted({f.fit for f in report.frozen}),
            "dreamcheck": __version__,
        },
        result=plain(
            _nulls({**report.to_dict(), "rows": rows, "transfer": [t.to_dict() for t in transfer]})
        ),
    )


def _nulls(value: Any) -> Any:
    """NaN as None, all the way down: a report shows it as not measured."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _nulls(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_nulls(v) for v in value]
    return value
