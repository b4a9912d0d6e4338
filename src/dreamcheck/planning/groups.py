"""An arm in groups of episodes, each kept on disk when it is done.

An episode planned alone and among others gives the same plan (law 5), so an arm may be run a few
episodes at a time, and a stopped evaluation goes on with the first group that is missing.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.digest import digest
from dreamcheck.planning.control import Arm, CostMaker, ModelCosts, Replan, Setup, run_planner
from dreamcheck.planning.execution import Rows, Trajectories
from dreamcheck.planning.screening import ScreeningReport
from dreamcheck.planning.solvers import Solver

GROUP = 5
"""Cases run together."""


@dataclass(frozen=True)
class Kept:
    """Finished groups in a folder.

    The folder carries the digest of everything the outcomes depend on: another model, protocol,
    list, objective or numerics profile never meets these files.
    """

    folder: Path

    @classmethod
    def at(cls, folder: str | Path, inputs: Mapping[str, Any]) -> Kept:
        """The groups of one evaluation under ``folder``."""
        return cls(Path(folder) / digest(dict(inputs))[:16])

    def read(self, arm: str, rows: Rows) -> Arm | None:
        """A group as it was written; None where it is missing or unreadable (then it is redone)."""
        path = self._path(arm, rows)
        try:
            with np.load(path, allow_pickle=False) as held:
                meta = json.loads(str(held["meta"]))
                return Arm(
                    trajectories=Trajectories(*(held[f.name] for f in fields(Trajectories))),
                    replans=tuple(_replan(r) for r in meta["replans"]),
                    num_replans=held["num_replans"],
                    imagined=tuple(
                        (s, held[f"rows_{i}"], torch.from_numpy(held[f"latents_{i}"]))
                        for i, s in enumerate(meta["imagined"])
                    ),
                    screening=(
                        None if meta["screening"] is None else ScreeningReport(**meta["screening"])
                    ),
                )
        except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
            return None

    def write(self, arm: str, rows: Rows, made: Arm) -> None:
        """One group, in place at once or not at all."""
        path = self._path(arm, rows)
        arrays = {f.name: getattr(made.trajectories, f.name) for f in fields(Trajectories)}
        for i, (_, index, latents) in enumerate(made.imagined):
            arrays[f"rows_{i}"], arrays[f"latents_{i}"] = index, latents.numpy()
        meta = {
            "replans": [asdict(r) for r in made.replans],
            "imagined": [step for step, _, _ in made.imagined],
            "screening": None if made.screening is None else asdict(made.screening),
        }
        self._put(path, {"meta": json.dumps(meta), "num_replans": made.num_replans, **arrays})

    def read_arrays(self, *name: str) -> dict[str, np.ndarray] | None:
        """Named arrays as they were written; None where missing or unreadable."""
        try:
            with np.load(self._named(name), allow_pickle=False) as held:
                return {k: held[k] for k in held.files}
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def write_arrays(self, *name: str, **arrays: np.ndarray) -> None:
        """Arrays under a name, in place at once or not at all."""
        self._put(self._named(name), arrays)

    def _put(self, path: Path, arrays: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        with new.open("wb") as f:
            np.savez(f, **arrays)
            f.flush()
            os.fsync(f.fileno())
        os.replace(new, path)

    def _named(self, name: Sequence[str]) -> Path:
        return self.folder / f"{digest(list(name))[:24]}.npz"

    def _path(self, arm: str, rows: Rows) -> Path:
        return self.folder / f"{digest([arm, list(rows.names)])[:24]}.npz"


def run_groups(
    setup: Setup,
    maker: CostMaker,
    solver: Solver,
    *,
    log: ModelCosts | None = None,
    what: str = "planning",
    kept: Kept | None = None,
    size: int = GROUP,
) -> Arm:
    """``run_planner`` over all rows, a few cases at a time; finished groups are kept and reused."""
    groups = _split(setup.rows, size)
    p = setup.protocol
    rounds = -(-p.budget_steps // (p.receding * p.block))
    arms = []
    for i, rows in enumerate(groups):
        made = None if kept is None else kept.read(what, rows)
        if made is None:
            mine = maker
            if isinstance(maker, ModelCosts):
                mine = replace(maker, report=ScreeningReport())
            made = run_planner(
                replace(setup, rows=rows, progress=_offset(setup, i, len(groups), rounds)),
                mine,
                solver,
                log=log,
                what=what,
            )
            if kept is not None:
                kept.write(what, rows, made)
        arms.append(made)
        if setup.progress is not None:
            setup.progress((i + 1) * rounds, len(groups) * rounds, what)
    return joined(arms)


def joined(arms: Sequence[Arm]) -> Arm:
    """Arms on consecutive rows as one."""
    firsts = np.cumsum([0, *(len(a.num_replans) for a in arms)]).tolist()
    reports = [a.screening for a in arms if a.screening is not None]
    return Arm(
        trajectories=Trajectories(
            *(
                np.concatenate([getattr(a.trajectories, f.name) for a in arms])
                for f in fields(Trajectories)
            )
        ),
        replans=tuple(
            replace(r, row=first + r.row)
            for first, a in zip(firsts, arms, strict=False)
            for r in a.replans
        ),
        num_replans=np.concatenate([a.num_replans for a in arms]),
        plans=tuple(
            (step, first + index, plans)
            for first, a in zip(firsts, arms, strict=False)
            for step, index, plans in a.plans
        ),
        imagined=tuple(
            (step, first + index, latents)
            for first, a in zip(firsts, arms, strict=False)
            for step, index, latents in a.imagined
        ),
        screening=ScreeningReport.merged(reports) if reports else None,
    )


def _split(rows: Rows, size: int) -> list[Rows]:
    """Rows of ``size`` cases each, in order."""
    out = []
    for first in range(0, len(rows.cases), size):
        cases = rows.cases[first : first + size]
        inside = (rows.case >= first) & (rows.case < first + len(cases))
        out.append(Rows(cases, rows.case[inside] - first, rows.stream[inside]))
    return out


def _offset(setup: Setup, group: int, groups: int, rounds: int) -> Any:
    shown = setup.progress
    if shown is None:
        return None
    return lambda done, _total, what: shown(group * rounds + done, groups * rounds, what)


def _replan(values: Mapping[str, Any]) -> Replan:
    pairs = ("imagined_cost", "realised_cost", "imagined_distance", "realised_distance")
    states = ("imagined_state", "realised_state")
    return Replan(
        **{
            **values,
            **{k: None if values[k] is None else tuple(values[k]) for k in pairs},
            **{
                k: None if values[k] is None else tuple(tuple(v) for v in values[k]) for k in states
            },
        }
    )
