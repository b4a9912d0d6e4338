"""The paper's experiments on what ACPC predicts, on checkpoints of one task, in one record.

Which checkpoint plays which part is read from its own training record: noise on its training
frames makes it the augmented one, another weight of the regulariser a member of the ablation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck import __version__
from dreamcheck.data.episodes import Episodes
from dreamcheck.diagnostics.consistency import drift, geometry, regret, sensitivity
from dreamcheck.diagnostics.consistency.anchors import HORIZON, NUM_ANCHORS, Anchors, draw_anchors
from dreamcheck.diagnostics.consistency.labels import LabelRule
from dreamcheck.diagnostics.consistency.measuring import NUM_DRAWS, measure
from dreamcheck.diagnostics.consistency.planner import PLAN_STEPS, REDUCED, SEED, choices
from dreamcheck.diagnostics.consistency.radius import Pairing
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.digest import digest, plain
from dreamcheck.errors import UsageError
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.evidence.record import Record
from dreamcheck.imagination.perturbations import KINDS, Perturbation
from dreamcheck.models.protocol import WorldModel
from dreamcheck.models.registry import recorded_recipe
from dreamcheck.planning.solvers import CEM
from dreamcheck.progress import Progress
from dreamcheck.tasks.protocol import Task

EXPERIMENTS = ("drift", "planner", "geometry", "collapse", "sensitivity")
COLLAPSE_NOISE = 0.005


_NOT_TRAINING = ("augment", "name", "objective", "measure", "floors")


@dataclass(frozen=True)
class Trained:
    """What a checkpoint's own record says of its training; None where it says nothing.

    sigma_max: largest noise on training frames, 0 without any. weight: of the regulariser.
    otherwise: digest of what else the recipe trains with, which an ablation keeps fixed.
    """

    sigma_max: float | None = None
    weight: float | None = None
    otherwise: str | None = None


def trained_as(checkpoint: str | Path) -> Trained:
    """What the checkpoint of that name records."""
    recipe = recorded_recipe(checkpoint)
    if recipe is None or "objective" not in recipe:
        return Trained()
    objective = dict(recipe["objective"])
    weight = objective.pop("weight", None)
    rest = {k: v for k, v in recipe.items() if k not in _NOT_TRAINING}
    # Of what is measured only this changes the network: its batch statistics.
    rest["recalibration_batches"] = recipe.get("measure", {}).get("recalibration_batches")
    noise = (recipe.get("augment") or {}).get("sigma_max", 0.0)
    return Trained(float(noise), weight, digest({**rest, "objective": objective}))


@dataclass(frozen=True)
class Budget:
    """Sizes of the experiments: the paper's, but for ``histories`` where the caller says less.

    groups, drift_draws: windows of distinct episodes and draws of the error drift. histories,
    solver, plan_steps: of the planner experiment. scenes, geometry_draws: of the local geometry.
    windows, draws: of radius and separation. severities: of drift and planner;
    geometry_severities; collapse_severity; sensitivity_severity.
    """

    perturbation: str = "gaussian"
    severities: tuple[float, ...] = drift.SEVERITIES
    geometry_severities: tuple[float, ...] = geometry.SEVERITIES
    collapse_severity: float = COLLAPSE_NOISE
    sensitivity_severity: float = drift.SEVERITIES[-1]
    horizon: int = HORIZON
    groups: int = drift.NUM_GROUPS
    drift_draws: int = drift.NUM_DRAWS
    histories: int = regret.NUM_HISTORIES
    plan_steps: int = PLAN_STEPS
    solver: CEM = REDUCED
    scenes: int = geometry.NUM_HISTORIES
    geometry_draws: int = geometry.NUM_DRAWS
    windows: int = NUM_ANCHORS
    draws: int = NUM_DRAWS

    def under(self, kind: str, severities: Sequence[float] | None = None) -> Budget:
        """The same sizes under another kind of perturbation, or at other severities.

        Gaussian noise keeps the paper's severities; another kind takes its own default sweep.
        """
        given = tuple(severities or ())
        if kind == "gaussian":
            return replace(self, severities=given or self.severities)
        steps = given or KINDS[kind].steps
        return replace(
            self, perturbation=kind, severities=steps, geometry_severities=steps,
            collapse_severity=steps[0], sensitivity_severity=steps[-1],
        )  # fmt: skip


@dataclass(frozen=True)
class Experiments:
    """What was found; every part None where it was not asked for or could not be run.

    skipped: by experiment, why it could not be run or whom it left out.
    """

    task: str
    reference: str
    checkpoints: tuple[dict[str, Any], ...]
    budget: Budget
    parts: Mapping[str, Any]
    skipped: Mapping[str, str]
    data_digest: str
    windows: str
    stamps: tuple[str, ...] = ()
    protocol: Mapping[str, Any] | None = None
    rule: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        b = asdict(self.budget)
        return plain(
            {
                "task": self.task,
                "reference": self.reference,
                "checkpoints": list(self.checkpoints),
                "budget": {**b, "solver": self.budget.solver.settings},
                "label": self.rule,
                "protocol": self.protocol,
                "skipped": dict(self.skipped),
                **{name: self.parts.get(name) for name in EXPERIMENTS},
            }
        )


Success = Callable[[str, WorldModel], Mapping[str, Any]]
"""(name, model) -> clean planning success {"value", "low", "high", "n"}."""


class _Runner:
    """One run of the experiments over all checkpoints."""

    def __init__(
        self,
        models: Mapping[str, WorldModel],
        trained: Mapping[str, Trained],
        episodes: Episodes,
        task: str,
        simulator: Task | None,
        reference: str,
        budget: Budget,
        progress: Progress,
    ) -> None:
        self.models, self.trained, self.reference = models, trained, reference
        self.budget, self.progress = budget, progress
        self.task, self._episodes, self._simulator = task, episodes, simulator
        self._drawn: dict[tuple[int, bool], Anchors] = {}
        self._rollouts: dict[tuple[str, str], PairedRollouts] = {}
        self.windows = self.drawn(budget.windows)

    def drawn(self, count: int, *, distinct: bool = False) -> Anchors:
        """Windows that every checkpoint meets, drawn once; distinct: of different episodes."""
        if (count, distinct) not in self._drawn:
            self._drawn[count, distinct] = draw_anchors(
                self._episodes, self.models[self.reference], task=self._simulator, count=count,
                horizon=self.budget.horizon, distinct=distinct,
            )  # fmt: skip
        return self._drawn[count, distinct]

    @property
    def digest(self) -> str:
        """SHA-256 of all windows that were drawn."""
        return digest([a.digest for _, a in sorted(self._drawn.items())])

    def rollouts(self, name: str, anchors: Anchors) -> PairedRollouts:
        """The checkpoint's clean side on these anchors, made once."""
        key = (name, anchors.digest)
        if key not in self._rollouts:
            self._rollouts[key] = PairedRollouts(self.models[name], anchors)
        return self._rollouts[key]

    def ablated(self, name: str) -> bool:
        """Whether another weight of the regulariser was trained with than the reference's."""
        mine, base = self.trained[name].weight, self.trained[self.reference].weight
        return mine is not None and base is not None and mine != base

    def augmented(self, name: str) -> bool:
        """Trained under noise; a checkpoint that does not say is, unless it is the reference."""
        sigma = self.trained[name].sigma_max
        return name != self.reference if sigma is None else sigma > 0

    @property
    def pair(self) -> list[str]:
        """The reference and the augmented checkpoints."""
        return [n for n in self.models if n == self.reference or self._plainly_augmented(n)]

    def _plainly_augmented(self, name: str) -> bool:
        return self.augmented(name) and not self.ablated(name)

    def role(self, name: str) -> str:
        """Which part a checkpoint plays, in words."""
        if name == self.reference:
            return "reference"
        if self.augmented(name):
            return "augmented"
        return "ablation" if self.ablated(name) else "unaugmented"

    def drift(self) -> dict[str, Any]:
        """Error drift of every unaugmented checkpoint of the usual weight."""
        chosen = [
            n for n in self.models if not self.ablated(n) and (n == self.reference or not self.augmented(n))
        ]  # fmt: skip
        anchors = self.drawn(self.budget.groups, distinct=True)
        cells = []
        with self.progress.stage("error drift", len(chosen), unit="checkpoints") as stage:
            for name in chosen:
                rows = drift.drift_rows(
                    self.rollouts(name, anchors),
                    perturbation=self.budget.perturbation,
                    severities=self.budget.severities,
                    draws=self.budget.drift_draws,
                )
                cells.append({"name": name, **drift.drift_cell(rows).to_dict()})
                stage.advance(note=name)
        return {"windows": len(anchors), "cells": cells}

    def planner(self) -> dict[str, Any]:
        """Selection regret of reference and augmented checkpoints, and what predicts it."""
        b = self.budget
        anchors = self.drawn(b.histories, distinct=True)
        shifts = [Perturbation(b.perturbation, s) for s in b.severities]
        rows: list[regret.RegretRow] = []
        checked = 0
        searches = len(self.pair) * len(anchors) * (1 + len(shifts))
        with self.progress.stage("planner", searches, unit="searches") as stage:
            for name in self.pair:
                r = self.rollouts(name, anchors)
                checked += regret.identity_changes_no_plan(
                    r, solver=b.solver, steps=b.plan_steps, kind=b.perturbation
                )
                found = choices(
                    r, shifts, solver=b.solver, steps=b.plan_steps, seed=SEED, done=stage.advance
                )
                rows += regret.regret_rows(
                    found, r, task=self.task, checkpoint=name, augmented=self.augmented(name)
                )
        return {
            "histories": len(anchors),
            "identity_histories": checked,
            "regression": regret.regret_regression(rows, held_out="history").to_dict(),
            "released": regret.regret_regression(rows, held_out="history", released=True).to_dict(),
            "rows": [asdict(row) for row in rows],
            "regret": [
                {
                    "name": name,
                    "severity": s,
                    "median": float(np.median(values)),
                    "mean": float(np.mean(values)),
                    "positive": int((np.array(values) > 0).sum()),
                    "num_histories": len(values),
                }
                for name in self.pair
                for s in b.severities
                for values in [[r.regret for r in rows if r.checkpoint == name and r.severity == s]]
            ],
        }

    def geometry(self) -> dict[str, Any]:
        """Local geometry of reference and augmented checkpoints, in both spaces."""
        b = self.budget
        anchors = self.drawn(b.scenes, distinct=True)
        rows = []
        with self.progress.stage("local geometry", len(self.pair), unit="checkpoints") as stage:
            for name in self.pair:
                spaces = geometry.geometry_of(
                    self.rollouts(name, anchors),
                    perturbation=b.perturbation,
                    severities=b.geometry_severities,
                    draws=b.geometry_draws,
                )
                rows += [{"name": name, "space": s, **g.to_dict()} for s, g in spaces.items()]
                stage.advance(note=name)
        return {"rows": rows}

    def collapse(self, pairing: Pairing, success: Success | None) -> dict[str, Any]:
        """Spread, radius, separation and clean success by the weight of the regulariser."""
        fixed = self.trained[self.reference].otherwise
        chosen = [
            n for n in self.models
            if n == self.reference
            or (fixed is not None and self.trained[n].otherwise == fixed and not self.augmented(n))
        ]  # fmt: skip
        chosen.sort(key=lambda n: (self.trained[n].weight is None, self.trained[n].weight or 0.0))
        shift = Perturbation(self.budget.perturbation, self.budget.collapse_severity)
        rows = []
        with self.progress.stage("collapse", len(chosen), unit="checkpoints") as stage:
            for name in chosen:
                found = measure(
                    self.models[name], self.windows, [shift], pairing, draws=self.budget.draws,
                    rollouts=self.rollouts(name, self.windows),
                ).to_dict()  # fmt: skip
                shifted = found.pop("severities")[0]
                rows.append(
                    {
                        "name": name,
                        "weight": self.trained[name].weight,
                        "spread": found["spread"],
                        "median_different": found["median_different"],
                        "num_still": found["num_still"],
                        "scales": found["scales"],
                        "distances": shifted["distances"],
                        "different": found["different"],
                        **{k: shifted[k] for k in ("ir_raw", "sr", "sr_count", "sr_eligible")},
                        "clean": None if success is None else success(name, self.models[name]),
                    }
                )
                stage.advance(note=name)
        return {"severity": shift.severity, "rows": rows}

    def sensitivity(self) -> dict[str, Any]:
        """The radius by horizon and by quantile, and its ratio to the reference's."""
        shift = Perturbation(self.budget.perturbation, self.budget.sensitivity_severity)
        by_name = {
            name: sensitivity.radius_sensitivity(
                self.rollouts(name, self.windows), shift, draws=self.budget.draws
            )
            for name in self.pair
        }
        base = by_name[self.reference]
        rows = [
            {
                "name": name,
                **cell,
                "ratio": cell["ir_raw"] / other["ir_raw"] if other["ir_raw"] > 0 else None,
            }
            for name, cells in by_name.items()
            for cell, other in zip(cells, base, strict=True)
        ]
        return {"severity": shift.severity, "rows": rows}


def run_experiments(
    models: Mapping[str, WorldModel],
    trained: Mapping[str, Trained],
    episodes: Episodes,
    *,
    task: str,
    reference: str | None = None,
    simulator: Task | None = None,
    rule: LabelRule | None = None,
    names: Sequence[str] = EXPERIMENTS,
    budget: Budget | None = None,
    success: Success | None = None,
    progress: Progress | None = None,
) -> Experiments:
    """The named experiments on checkpoints of one task that read the same windows.

    Error drift takes the unaugmented checkpoints, the planner experiment and the pictures the
    reference and the augmented ones, the ablation those whose recipe differs from the reference's
    in the regulariser's weight alone.

    Args:
        models: by name. trained: by the same names, see ``trained_as``.
        reference: the unaugmented checkpoint; the first that records no noise by default.
        success: clean planning success of a checkpoint of the ablation; left out when None.

    Raises:
        UsageError: an unknown experiment, a reference that was augmented, models that read other
            windows.
        EvidenceError: a law of the measurement does not hold: a bug in the code.

    Source: consistency.md sections 12 to 15.
    """
    unknown = [n for n in names if n not in EXPERIMENTS]
    if unknown or not names:
        raise UsageError(f"experiments are {', '.join(EXPERIMENTS)}, not {', '.join(unknown)!r}.")
    if reference is None:
        reference = next((n for n in models if not trained[n].sigma_max), next(iter(models)))
    if trained[reference].sigma_max:
        raise UsageError(
            f"{reference} was trained under noise up to {trained[reference].sigma_max:g}: the "
            "reference is the unaugmented checkpoint. Name one, or give one among the checkpoints."
        )
    budget = budget or Budget()
    run = _Runner(
        models,
        trained,
        episodes,
        task,
        simulator,
        reference,
        budget,
        progress or Progress(quiet=True),
    )
    pairing = Pairing((None,) * len(run.windows), 0.0)
    if rule is not None:
        pairing = run.windows.pairing(rule)
    parts: dict[str, Any] = {}
    for name in names:
        parts[name] = run.collapse(pairing, success) if name == "collapse" else getattr(run, name)()
    return Experiments(
        task=task,
        reference=reference,
        checkpoints=tuple(
            {
                "name": n,
                "identity": m.identity,
                "sigma_max": trained[n].sigma_max,
                "weight": trained[n].weight,
                "role": run.role(n),
            }
            for n, m in models.items()
        ),
        budget=budget,
        parts=parts,
        skipped=_left_out(run, parts),
        data_digest=run.windows.data_digest,
        windows=run.digest,
        rule="" if rule is None else rule.task,
    )


def _left_out(run: _Runner, parts: Mapping[str, Any]) -> dict[str, str]:
    out = {}
    alone = len(run.pair) == 1
    for name in ("planner", "geometry", "sensitivity"):
        if name in parts and alone:
            out[name] = "no augmented checkpoint was given: the reference stands alone"
    if "collapse" in parts:
        held = {r["name"] for r in parts["collapse"]["rows"]}
        if len(held) == 1:
            out["collapse"] = (
                "no checkpoint differs from the reference in the regulariser's weight alone"
            )
    return out


def record_experiments(directory: str | Path, found: Experiments, *, data_name: str) -> Record:
    """Keep the experiments as one diagnosis.

    Raises:
        EvidenceError: the same checkpoints, windows and sizes are stored with other numbers.
    """
    result = found.to_dict()
    return record_diagnosis(
        directory,
        name="consistency-experiments",
        subject={
            "task": found.task,
            "data": found.data_digest,
            "data_name": data_name,
            "windows": found.windows,
            "reference": found.reference,
            "models": {c["name"]: c["identity"] for c in found.checkpoints},
        },
        inputs={
            "experiments": [n for n in EXPERIMENTS if result[n] is not None],
            "budget": result["budget"],
            "label": found.rule,
            "protocol": result["protocol"],
            "seed": SEED,
            "dreamcheck": __version__,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
        },
        result=result,
        stamps=found.stamps,
    )
