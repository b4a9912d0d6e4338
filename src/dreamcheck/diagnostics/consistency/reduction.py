"""How much smaller the held-out error of one regression is than another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.stats import NotTestable, cluster_bootstrap
from dreamcheck.streams import stream

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Reduction:
    """(other - mine) / other of two mean absolute errors over the same held-out rows.

    low, high: 95 % percentile interval from resampling whole groups, None where it is undefined.
        The regressions are not fitted anew, so it says how much the value hangs on which groups
        were looked at, and not more.
    """

    value: float
    low: float | None
    high: float | None
    num_groups: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def reduction(other: Any, mine: Any, groups: Any, *, identity: str) -> Reduction:
    """The relative reduction of the mean absolute error.

    Args:
        other, mine: absolute errors [n] of two regressions on the same rows.
        groups: [n] label of the group each row was held out with.
        identity: key of the bootstrap's random stream.

    Raises:
        Abstention: the other regression makes no error: nothing can be smaller.
    """
    a, b = np.asarray(other, dtype=float), np.asarray(mine, dtype=float)
    if a.shape != b.shape or a.ndim != 1 or len(groups) != a.size:
        raise UsageError(f"errors {a.shape}, {b.shape} and {len(groups)} groups: one each per row")
    if not a.mean() > 0:
        raise Abstention("the regression compared with makes no error: nothing can reduce it")

    def value(counts: np.ndarray) -> float:
        below = float(counts @ a)
        return (below - float(counts @ b)) / below if below > 0 else float("nan")

    low = high = None
    num_groups = len(np.unique(np.asarray(groups)))
    try:
        interval = cluster_bootstrap(
            groups, value, rng=stream(0, "reduction", identity), resamples=RESAMPLES
        )
        low, high = interval.low, interval.high
    except NotTestable:
        pass  # one group has no spread; the value stands alone
    return Reduction(value(np.ones(a.size)), low, high, num_groups)


def _per_run(cells: Sequence[Mapping[str, Any]]) -> dict[Any, list[Mapping[str, Any]]]:
    runs: dict[Any, list[Mapping[str, Any]]] = {}
    for cell in cells:
        runs.setdefault(cell["run"], []).append(cell)
    return dict(sorted(runs.items()))


def drift_over_runs(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reductions per task, their mean over tasks in a run, then mean and sample SD over runs.

    Args:
        cells: each with run, base_mae, best_control_mae and acpc_mae; one per task and run.

    Source: consistency.md section 12.
    """

    def mean_reduction(of: Sequence[Mapping[str, Any]], other: str) -> float:
        return float(np.mean([(c[other] - c["acpc_mae"]) / c[other] for c in of]))

    per_run = {
        str(run): {
            "vs_base": mean_reduction(of, "base_mae"),
            "vs_control": mean_reduction(of, "best_control_mae"),
        }
        for run, of in _per_run(cells).items()
    }
    out: dict[str, Any] = {"per_run": per_run}
    for what in ("vs_base", "vs_control"):
        values = [run[what] for run in per_run.values()]
        out[f"{what}_mean"] = float(np.mean(values))
        out[f"{what}_sample_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        **out,
        "cells_best": sum(c["acpc_mae"] < min(c["base_mae"], c["best_control_mae"]) for c in cells),
        "cells": len(cells),
    }


def regret_over_runs(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reduction of a run from its task-averaged errors, then mean and sample SD over runs.

    Args:
        cells: each with run, baseline_mae and expanded_mae; one per held-out task and run.

    Source: consistency.md section 13.
    """
    per_run = {
        str(run): 1
        - float(np.mean([c["expanded_mae"] for c in of]))
        / float(np.mean([c["baseline_mae"] for c in of]))
        for run, of in _per_run(cells).items()
    }
    values = list(per_run.values())
    return {
        "per_run": per_run,
        "mean": float(np.mean(values)),
        "sample_sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "cells_improved": sum(c["expanded_mae"] < c["baseline_mae"] for c in cells),
        "cells": len(cells),
    }
