"""A pool of scored and evaluated checkpoints: what a meta-evaluation looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dreamcheck.errors import UsageError

GRADED_TASKS = ("pusht", "reacher", "tworoom")
EPISODES_PER_LABEL = 50


@dataclass(frozen=True)
class Pool:
    """N checkpoints, one row each.

    runs, tasks: the training run and the task of a row.
    epochs: float [N]. labels: success in percent, float [N], finite.
    metrics: name -> float [N]; NaN where missing.
    """

    name: str
    runs: np.ndarray
    tasks: np.ndarray
    epochs: np.ndarray
    labels: np.ndarray
    metrics: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        n = len(self.labels)
        for what, array in {
            "runs": self.runs,
            "tasks": self.tasks,
            "epochs": self.epochs,
            **self.metrics,
        }.items():
            if len(array) != n:
                raise UsageError(f"{what} has {len(array)} rows but there are {n} labels.")
        if not np.isfinite(self.labels).all():
            raise UsageError(
                f"pool {self.name}: {int((~np.isfinite(self.labels)).sum())} labels are missing; "
                "leave unlabelled checkpoints out of the pool."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def run_names(self) -> tuple[str, ...]:
        """Distinct runs, sorted."""
        return tuple(sorted(set(self.runs.tolist())))

    @property
    def task_names(self) -> tuple[str, ...]:
        """Distinct tasks, in order of first appearance."""
        return tuple(dict.fromkeys(self.tasks.tolist()))

    def where(self, mask: np.ndarray) -> Pool:
        """The rows of a boolean mask or of row numbers (repeats allowed)."""
        return Pool(
            name=self.name,
            runs=self.runs[mask],
            tasks=self.tasks[mask],
            epochs=self.epochs[mask],
            labels=self.labels[mask],
            metrics={k: v[mask] for k, v in self.metrics.items()},
        )

    def of_tasks(self, tasks: Sequence[str]) -> Pool:
        """The rows of some tasks."""
        return self.where(np.isin(self.tasks, list(tasks)))

    def measured(self, metric: str, tasks: Sequence[str]) -> Pool:
        """The rows of some tasks that have a metric."""
        return self.where(np.isin(self.tasks, list(tasks)) & np.isfinite(self.metric(metric)))

    def with_metric(self, name: str, values: np.ndarray) -> Pool:
        """The pool with one metric added or replaced."""
        return Pool(
            name=self.name,
            runs=self.runs,
            tasks=self.tasks,
            epochs=self.epochs,
            labels=self.labels,
            metrics={**self.metrics, name: np.asarray(values, dtype=np.float64)},
        )

    def metric(self, name: str) -> np.ndarray:
        """Values of a metric; "epoch" is always known.

        Raises:
            UsageError: no such metric; the message lists them.
        """
        if name == "epoch" and "epoch" not in self.metrics:
            return self.epochs
        if name not in self.metrics:
            raise UsageError(
                f"pool {self.name} has no metric {name!r}; it has {', '.join(self.metrics)}, epoch."
            )
        return self.metrics[name]
