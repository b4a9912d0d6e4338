"""Statistics of displayed numbers that only reports need; found by `verify` through their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dreamcheck.reports.consistency_statistics
import dreamcheck.reports.score_statistics
import dreamcheck.reports.search_statistics  # noqa: F401  (registers the statistics of searches)
from dreamcheck.errors import Abstention
from dreamcheck.evidence import Record, statistic
from dreamcheck.stats import shrinkage_slope


def _best(record: Record) -> float:
    scores = [o for o in record.payload["outcomes"] if o is not None]
    if not scores:
        raise Abstention(f"every query of trace {record.key[:12]} failed.")
    return max(scores)


@statistic("trace-best-mean")
def trace_best_mean(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Mean over restarts of the best score found."""
    if not records:
        raise Abstention("no search was run.")
    best = [_best(r) for r in records]
    return math.fsum(best) / len(best)


@statistic("trace-best-sem")
def trace_best_sem(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Standard error of that mean over restarts: Monte Carlo error of the search alone."""
    if len(records) < 2:
        raise Abstention("one restart has no standard error.")
    best = [_best(r) for r in records]
    mean = math.fsum(best) / len(best)
    spread = math.fsum((b - mean) ** 2 for b in best) / (len(best) - 1)
    return math.sqrt(spread / len(best))


@statistic("shrinkage-slope")
def shrinkage(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Slope of validation risk on search score over the shortlist."""
    pairs = [
        (r.payload["search_score"], r.payload["risk"])
        for r in records
        if r.payload["search_score"] is not None and r.payload["risk"] is not None
    ]
    if len(pairs) < 3:
        raise Abstention(f"{len(pairs)} shortlisted inputs make no slope; 3 are needed.")
    slope = shrinkage_slope([a for a, _ in pairs], [b for _, b in pairs]).slope
    if not math.isfinite(slope.value):
        raise Abstention(slope.reason)
    return slope.value


@statistic("failed-measurements", across_interfaces=True)
def failed_measurements(records: Sequence[Record], params: Mapping[str, Any]) -> int:
    """Measurements that gave no loss: crashes, NaN, time-outs."""
    return sum(r.payload["failure"] is not None for r in records)
