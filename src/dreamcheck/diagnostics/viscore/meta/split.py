"""A split in which every training run is wholly development or wholly test."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dreamcheck.diagnostics.viscore.meta.pool import Pool
from dreamcheck.diagnostics.viscore.meta.ranking import resolvability

MIN_RESOLVABILITY = 2.2
MIN_CHECKPOINTS = 20


@dataclass(frozen=True, slots=True)
class RunSplit:
    """Run names of each side, sorted; disjoint and complete."""

    development: tuple[str, ...]
    test: tuple[str, ...]


def split_runs(
    pool: Pool,
    *,
    fresh_labels: Mapping[str, int],
    objectives: Mapping[str, str],
    min_resolvability: float = MIN_RESOLVABILITY,
    min_checkpoints: int = MIN_CHECKPOINTS,
) -> RunSplit:
    """Move runs to the test side while development stays able to rank.

    Runs are ordered by how many fresh-seed labels they carry (most first, ties by name) and
    moved round-robin over (task, objective). A move that would leave a task in development under
    the resolvability or the checkpoint bound is not made and ends its group.

    Args:
        fresh_labels: run -> number of fresh-seed labels.
        objectives: run -> training objective, the second key of the round-robin.

    Source: spec/viscore.md section 11.9 (described in the paper; its script is not released).
    """
    task_of = {r: str(pool.tasks[pool.runs == r][0]) for r in pool.run_names}
    groups: dict[tuple[str, str], list[str]] = {}
    for r in sorted(pool.run_names, key=lambda r: (-fresh_labels.get(r, 0), r)):
        groups.setdefault((task_of[r], objectives.get(r, "")), []).append(r)
    development = set(pool.run_names)
    queues = [groups[k] for k in sorted(groups)]
    while any(queues):
        for queue in queues:
            if not queue:
                continue
            run = queue[0]
            left = development - {run}
            rows = np.isin(pool.runs, list(left)) & (pool.tasks == task_of[run])
            labels = pool.labels[rows]
            if len(labels) < min_checkpoints or not (resolvability(labels) >= min_resolvability):
                queue.clear()
                continue
            development = left
            queue.pop(0)
    return RunSplit(
        development=tuple(sorted(development)),
        test=tuple(sorted(set(pool.run_names) - development)),
    )


def write_split(path: str | Path, pool: Pool, objectives: Mapping[str, str]) -> RunSplit:
    """``split_runs`` as a CSV file (run, fold); a run carries as many labels as it has rows."""
    counts = Counter(pool.runs.tolist())
    made = split_runs(pool, fresh_labels=counts, objectives=objectives)
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("run", "fold"))
        writer.writerows([(r, "development") for r in made.development])
        writer.writerows([(r, "test") for r in made.test])
    return made
