"""Several checkpoints under one perturbation: the table, the film, and the record of it all."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck import __version__
from dreamcheck.diagnostics.consistency.anchors import Anchors
from dreamcheck.diagnostics.consistency.labels import LabelRule
from dreamcheck.diagnostics.consistency.measuring import (
    Measured,
    family_of,
    measure,
    refuse_other_family,
    relative,
)
from dreamcheck.diagnostics.consistency.pairwise import step_weights
from dreamcheck.diagnostics.consistency.planner import REDUCED, SEED, choices, summary
from dreamcheck.diagnostics.consistency.radius import Pairing
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.diagnostics.consistency.screening import (
    screening_score,
    separation_cannot_change_sign,
)
from dreamcheck.digest import plain
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.evidence.record import Record
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models.protocol import WorldModel
from dreamcheck.planning.perturbed import PerturbedSuccess
from dreamcheck.planning.solvers import CEM
from dreamcheck.progress import Progress

T_IR, T_SR = 0.3, 0.95
"""The screen's thresholds that the paper's splits choose most often."""
FILM_STEPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Settings:
    """What a table depends on beside checkpoints, windows and perturbations.

    draws: M. weights: of the rollout steps, None for equal ones. t_ir, t_sr: the screen.
    solver, histories, plan_steps: of the paired searches; 0 histories leave them out.
    """

    draws: int = 5
    weights: tuple[float, ...] | None = None
    t_ir: float = T_IR
    t_sr: float = T_SR
    solver: CEM = REDUCED
    histories: int = 25
    plan_steps: int = 5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.t_ir) and self.t_ir > 0):
            raise UsageError(f"t_IR {self.t_ir:g} accepts nothing: relative radii are positive.")
        if not 0 < self.t_sr <= 1:
            raise UsageError(f"t_SR {self.t_sr:g} is no rate above 0 and up to 1.")


@dataclass(frozen=True)
class Examined:
    """A finished table.

    measured: by name, the reference under its own name. planner: per name and severity, the
    summary of ``choices``. success: per name, one entry per severity, where it was evaluated.
    film: pictures and numbers of one window, of the first checkpoint that is not the reference, at
    the severity farthest from the identity.
    """

    task: str
    reference: str | None
    perturbations: tuple[Perturbation, ...]
    anchors: Anchors
    rule: LabelRule | None
    pairing: Pairing
    settings: Settings
    measured: Mapping[str, Measured]
    planner: Mapping[str, Sequence[dict[str, Any]]]
    success: Mapping[str, Sequence[PerturbedSuccess]] = field(default_factory=dict)
    protocol: Mapping[str, Any] | None = None
    film: Mapping[str, Any] = field(default_factory=dict)
    stamps: tuple[str, ...] = ()
    no_success: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, everything that a displayed number comes from included."""
        first = self.perturbations[0]
        return plain(
            {
                "task": self.task,
                "perturbation": first.name,
                "severity_means": first.kind.severity,
                "identity_severity": first.kind.identity,
                "on": first.on,
                "severities": [p.severity for p in self.perturbations],
                "reference": self.reference,
                "horizon": self.anchors.horizon,
                "history": self.anchors.history,
                "frameskip": self.anchors.frameskip,
                "image_size": int(self.anchors.frames.shape[-1]),
                "num_anchors": len(self.anchors),
                "num_windows": self.anchors.num_windows,
                "num_episodes": len({s.partition(":")[0] for s in self.anchors.scenes}),
                "nan_rows": self.anchors.nan_rows,
                "draws": self.settings.draws,
                "t_ir": self.settings.t_ir,
                "t_sr": self.settings.t_sr,
                "sign_from_radius_alone": separation_cannot_change_sign(t_ir=self.settings.t_ir),
                "label": "" if self.rule is None else self.rule.task,
                "eligible": self.pairing.eligible,
                "skipped": len(self.anchors) - self.pairing.eligible,
                "cutoff": self.pairing.cutoff,
                "solver": self.settings.solver.settings,
                "plan_steps": self.settings.plan_steps,
                "cost_scale": "squared distance summed over latent coordinates",
                "no_success": self.no_success,
                "protocol": self.protocol,
                "checkpoints": [self._row(name) for name in self.measured],
                "film": {k: v for k, v in self.film.items() if k != "frames"} or None,
            }
        )

    def _row(self, name: str) -> dict[str, Any]:
        m = self.measured[name]
        made = m.to_dict()
        base = None if self.reference is None else self.measured[self.reference]
        for i, (p, row) in enumerate(zip(self.perturbations, made["severities"], strict=True)):
            row.update(self._screened(m, base, p, row))
            row["planner"] = self.planner[name][i] if name in self.planner else None
            row["success"] = self.success[name][i].to_dict() if name in self.success else None
        return {"name": name, "is_reference": name == self.reference, **made}

    def _screened(
        self, m: Measured, base: Measured | None, p: Perturbation, row: Mapping[str, Any]
    ) -> dict[str, Any]:
        none = {"ir_rel": None, "score": None, "delta_score": None, "accepted": None}
        if base is None:
            return {**none, "not_relative": "no reference was named"}
        try:
            ratio = relative(m, base, p)
        except Abstention as e:
            why = "the identity severity moves nothing" if p.is_identity else str(e)
            return {**none, "not_relative": why}
        t_ir, t_sr = self.settings.t_ir, self.settings.t_sr
        mine, theirs = m.at(p).separation, base.at(p).separation
        if mine is None or theirs is None:
            return {**none, "ir_rel": ratio, "not_relative": row["undefined"]}
        score = screening_score(ratio, mine.rate, t_ir=t_ir, t_sr=t_sr)
        return {
            "ir_rel": ratio,
            "score": score,
            "delta_score": score - screening_score(1.0, theirs.rate, t_ir=t_ir, t_sr=t_sr),
            "accepted": score >= 0,
            "not_relative": "",
        }


def examine(
    models: Mapping[str, WorldModel],
    anchors: Anchors,
    perturbations: Sequence[Perturbation],
    *,
    task: str,
    reference: str | None,
    rule: LabelRule | None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Examined:
    """Radius, rate and the planner's choices of every checkpoint under every severity.

    Args:
        models: by name; the reference among them.
        perturbations: one kind at several severities.
        rule: labels for the separation rate; None leaves the rate undefined.

    Raises:
        UsageError: a reference of another family, input size or history; one checkpoint under two
            names; bad weights.
    """
    settings = settings or Settings()
    show = progress or Progress(quiet=True)
    if not perturbations or len({(p.name, p.on) for p in perturbations}) != 1:
        raise UsageError("a table holds one kind of perturbation, at one severity or more.")
    again = [p for i, p in enumerate(perturbations) if p in perturbations[:i]]
    if again:
        raise UsageError(f"severity {again[0].severity:g} is given twice; once is enough.")
    if reference is not None:
        if reference not in models:
            raise UsageError(f"the reference {reference!r} is not among {', '.join(models)}.")
        for name, model in models.items():
            refuse_other_family(family_of(model), family_of(models[reference]), name=name)
    _refuse_twice(models)
    step_weights(settings.weights, horizon=anchors.horizon)
    pairing = Pairing((None,) * len(anchors), 0.0) if rule is None else anchors.pairing(rule)
    measured: dict[str, Measured] = {}
    planner: dict[str, list[dict[str, Any]]] = {}
    film: dict[str, Any] = {}
    filmed = next((name for name in models if name != reference), reference)
    farthest = max(perturbations, key=lambda p: abs(p.severity - p.kind.identity))
    searches = min(settings.histories, len(anchors)) * (1 + len(perturbations))
    for name, model in models.items():
        rollouts = PairedRollouts(model, anchors)
        with show.stage(f"{name}: rollouts", len(perturbations), unit="severities") as stage:
            parts = []
            for p in perturbations:
                parts.append(
                    measure(
                        model, anchors, [p], pairing, draws=settings.draws,
                        weights=settings.weights, rollouts=rollouts,
                    )
                )  # fmt: skip
                stage.advance(note=p.label)
        measured[name] = joined(parts)
        if reference is not None and reference in measured:
            for p in perturbations:
                _refuse_unlike(measured[name], measured[reference], p)
        if name == filmed:
            film = {"checkpoint": name, **film_of(rollouts, farthest, measured[name])}
        if settings.histories:
            with show.stage(f"{name}: paired searches", searches, unit="searches") as stage:
                found = choices(
                    rollouts, perturbations, solver=settings.solver, steps=settings.plan_steps,
                    count=settings.histories, seed=SEED, done=stage.advance,
                )  # fmt: skip
            planner[name] = [summary(found[p]) for p in perturbations]
    return Examined(
        task=task, reference=reference, perturbations=tuple(perturbations), anchors=anchors,
        rule=rule, pairing=pairing, settings=settings, measured=measured, planner=planner,
        film=film,
    )  # fmt: skip


def _refuse_twice(models: Mapping[str, WorldModel]) -> None:
    seen: dict[str, str] = {}
    for name, model in models.items():
        if model.identity in seen:
            raise UsageError(
                f"{seen[model.identity]} and {name} are one checkpoint (identity "
                f"{model.identity[:12]}): beside itself it has a relative radius of 1 and says "
                "nothing. Name it once; the reference belongs to --reference alone."
            )
        seen[model.identity] = name


def _refuse_unlike(m: Measured, reference: Measured, p: Perturbation) -> None:
    try:
        relative(m, reference, p)
    except Abstention:
        return  # undefined, which the table says; not a mistake


def joined(parts: Sequence[Measured]) -> Measured:
    """One checkpoint measured severity by severity, as one."""
    from dataclasses import replace

    return replace(parts[0], severities=tuple(s for m in parts for s in m.severities))


def film_of(
    rollouts: PairedRollouts, perturbation: Perturbation, found: Measured
) -> dict[str, Any]:
    """One window as pictures: the one whose distance is nearest to the median over anchors.

    Imagined latents are shown as the nearest logged frame of all anchors.
    """
    anchors = rollouts.anchors
    shifted = found.at(perturbation)
    per_anchor = np.asarray(shifted.radius.per_anchor)
    i = int(np.abs(per_anchor - np.median(per_anchor)).argmin())
    t = anchors.history
    bank = rollouts.points(rollouts.clean).reshape(-1, rollouts.rolled.shape[-1])
    pictures = anchors.frames.flatten(0, 1)
    history = rollouts.perturbed(perturbation)
    clean, (perturbed,) = rollouts.roll_pairs([history])
    dreamt = {"clean": clean[i], "perturbed": perturbed[i]}
    steps = [k for k in FILM_STEPS if k <= anchors.horizon]
    frames = {
        "real-0": anchors.frames[i, t - 1],
        "clean-0": anchors.frames[i, t - 1],
        "perturbed-0": rollouts.perturbed_frames(perturbation)[i, t - 1],
    }
    for k in steps:
        frames[f"real-{k}"] = anchors.frames[i, t - 1 + k]
        for side, points in dreamt.items():
            nearest = int(np.linalg.norm(bank - points[k - 1], axis=1).argmin())
            frames[f"{side}-{k}"] = pictures[nearest]
    apart = np.linalg.norm(dreamt["clean"] - dreamt["perturbed"], axis=1)
    return {
        "scene": anchors.scenes[i],
        "label": perturbation.label,
        "steps": steps,
        "divergence": (apart / (found.scales[i] + 1e-8)).tolist(),
        "frames": {name: _png(f) for name, f in frames.items()},
    }


def _png(frame: Tensor) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    shown = frame.float().round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(np.ascontiguousarray(shown)).save(held, format="PNG", optimize=True)
    return held.getvalue()


def record_consistency(directory: str | Path, found: Examined, *, data_name: str) -> Record:
    """Keep a table as one diagnosis.

    Raises:
        EvidenceError: the same checkpoints, windows and settings are stored with other numbers.
    """
    result = found.to_dict()
    s = found.settings
    return record_diagnosis(
        directory,
        name="consistency",
        subject={
            "task": found.task,
            "data": found.anchors.data_digest,
            "data_name": data_name,
            "windows": found.anchors.digest,
            "reference": found.reference,
            "models": {name: m.identity for name, m in found.measured.items()},
        },
        inputs=plain(
            {
                "perturbations": [[p.name, p.severity, p.on, p.draw] for p in found.perturbations],
                "settings": {
                    "draws": s.draws,
                    "weights": s.weights,
                    "t_ir": s.t_ir,
                    "t_sr": s.t_sr,
                    "solver": s.solver.settings,
                    "histories": s.histories,
                    "plan_steps": s.plan_steps,
                    "seed": SEED,
                },
                "labels": None if found.rule is None else found.rule.digest,
                "protocol": found.protocol,
                "dreamcheck": __version__,
                "torch": str(torch.__version__),
                "threads": torch.get_num_threads(),
            }
        ),  # fmt: skip
        result=result,
        artifacts=found.film.get("frames", {}),
        stamps=found.stamps,
    )
