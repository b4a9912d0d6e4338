"""Reader of the authors' released tables: pools, labels, planning arms, planner transfer."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dreamcheck.diagnostics.viscore.meta.evaluate import transfer
from dreamcheck.diagnostics.viscore.meta.pool import Pool
from dreamcheck.errors import UsageError

TASK_OF_ENV = {
    "pusht": "pusht",
    "dmc": "reacher",
    "tworoom": "tworoom",
    "cube": "cube",
    "ogb": "cube",
    "maze2d": "maze2d",
}
METRICS = ("vis", "m_emp", "straightness", "probe_r2", "veracity", "influence", "sobriety")
PLANNERS = ("cem", "mppi", "icem", "ps", "ms", "ss")
PROBE_OF = {"cem": "mcem", "mppi": "mcem", "icem": "mcem", "ps": "mcem", "ms": "madam", "ss": "ss"}

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """Rows of a CSV file as strings.

    Raises:
        UsageError: the file is absent or empty.
    """
    try:
        with open(path, newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
    except OSError as e:
        raise UsageError(
            f"{path.name} is not in {path.parent}: {e.strerror}. Give the folder of the released "
            "tables with --data."
        ) from e
    if not rows:
        raise UsageError(f"{path.name} holds no rows.")
    return rows


def number(text: str) -> float:
    """A number; empty and "nan" both mean missing."""
    return float(text) if text.strip() else float("nan")


def column(rows: list[Row], name: str) -> np.ndarray:
    """A numeric column, float64 [N]."""
    return np.asarray([number(r[name]) for r in rows])


def pool_of(rows: list[Row], *, name: str, label: str) -> Pool:
    """The rows with a finite label as a pool.

    Source: spec/viscore.md section 11.1.
    """
    rows = [r for r in rows if np.isfinite(number(r[label]))]
    return Pool(
        name=name,
        runs=np.asarray([r["run"] for r in rows]),
        tasks=np.asarray([TASK_OF_ENV[r["env"]] for r in rows]),
        epochs=column(rows, "epoch") if rows and "epoch" in rows[0] else np.zeros(len(rows)),
        labels=column(rows, label),
        metrics={m: column(rows, m) for m in METRICS},
    )


@dataclass(frozen=True)
class Released:
    """The released tables as pools.

    development, heldout, method, dataset: the four pools of the paper's Table 6.
    fit472, fit137: the two pools that a frozen map may be fitted on.
    cube_development, cube_heldout: the Cube reference rows with each pool's label column.
    """

    manifest: list[Row]
    labels: list[Row]
    arms: list[Row]
    planner_cells: list[Row]
    method_labels: list[Row]

    @classmethod
    def read(cls, folder: str | Path) -> Released:
        """From the folder that holds the CSV files."""
        folder = Path(folder)
        return cls(
            manifest=read_rows(folder / "pool_manifest.csv"),
            labels=read_rows(folder / "success_labels.csv"),
            arms=read_rows(folder / "planning_arms.csv"),
            planner_cells=read_rows(folder / "planner_cells.csv"),
            method_labels=read_rows(folder / "heldout_method_labels.csv"),
        )

    def flagged(self, flag: str, label: str, *, name: str) -> Pool:
        """Rows with a flag set, with one label column."""
        return pool_of([r for r in self.manifest if r[flag] == "1"], name=name, label=label)

    @property
    def development(self) -> Pool:
        """137 rows of 14 runs."""
        return self.flagged("in_development", "sr_development", name="development")

    @property
    def heldout(self) -> Pool:
        """103 rows of 33 runs."""
        return self.flagged("in_heldout", "sr_heldout", name="heldout")

    @property
    def method(self) -> Pool:
        """Third-party methods, Cube rows included."""
        return self.flagged("in_heldout_method", "sr_heldout_method", name="heldout_method")

    @property
    def dataset(self) -> Pool:
        """The maze runs."""
        return self.flagged("in_heldout_dataset", "sr_heldout_dataset", name="heldout_dataset")

    @property
    def fit472(self) -> Pool:
        """What the code fits the frozen map on."""
        return self.flagged("in_calibration_fit", "sr_development", name="fit472")

    def cube(self, pool: str) -> Pool:
        """Cube reference rows with the label column of "development" or "heldout"."""
        return self.flagged("in_cube_reference", f"sr_{pool}", name=f"cube_{pool}")

    def planners(self) -> dict[str, Pool]:
        """One pool per planner of the transfer experiment.

        Source: spec/viscore.md section 12.
        """
        rows = self.planner_cells
        names = ("straightness", "probe_r2", "m_emp", "veracity", "influence")
        base = Pool(
            name="planner",
            runs=np.asarray([r["run"] for r in rows]),
            tasks=np.asarray([TASK_OF_ENV[r["env"]] for r in rows]),
            epochs=column(rows, "epoch"),
            labels=column(rows, "sr_cem"),
            metrics={m: column(rows, m) for m in names},
        )
        return transfer(
            base,
            {p: column(rows, f"sr_{p}") for p in PLANNERS},
            {s: column(rows, f"sobriety_{s}") for s in set(PROBE_OF.values())},
            PROBE_OF,
        )

    def planner_with_probe(self, planner: str, probe: str) -> Pool:
        """A planner's labels with the sobriety of any probe."""
        rows = self.planner_cells
        pool = self.planners()[planner]
        sobriety = column(rows, f"sobriety_{probe}")
        vis = pool.metric("veracity") * pool.metric("influence") * sobriety
        return pool.with_metric("sobriety", sobriety).with_metric("vis", vis)
