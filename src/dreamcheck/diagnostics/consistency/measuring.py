"""Invariance radius and separation rate of one checkpoint, severity by severity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency.anchors import Anchors
from dreamcheck.diagnostics.consistency.pairwise import (
    acpc,
    error_drift,
    final_displacement,
    proposition_1_slack,
    proposition_1_tolerance,
    step_weights,
)
from dreamcheck.diagnostics.consistency.radius import (
    MOTION_EPSILON,
    Pairing,
    Radius,
    Separation,
    invariance_radius,
    motion_scale,
    relative_radius,
    separation,
)
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts, pair_points, takes_draws
from dreamcheck.digest import digest
from dreamcheck.errors import Abstention, EvidenceError, UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models.protocol import WorldModel

NUM_DRAWS = 5
ROLLED_AT_ONCE = 8
"""Perturbed histories that share one embedding of the actions."""


@dataclass(frozen=True)
class Shifted:
    """One checkpoint under one perturbation at one severity.

    distances: ACPC_H [M, N]. one_step: ACPC_1 [M, N]. encoder_shift: root mean square over the
    history's frames [M, N]. displacement: r, after the last step [M, N]. by_step: distance over
    the motion scale, median over anchors of the mean over draws [H].
    drift: |e_perturbed - e_clean| [M, N]. violations: pairs below Proposition 1's tolerance, of
    ``num_pairs``; min_slack: the smallest slack.
    radius, separation: None where undefined, then ``undefined`` says why.
    """

    perturbation: Perturbation
    distances: np.ndarray
    one_step: np.ndarray
    encoder_shift: np.ndarray
    displacement: np.ndarray
    by_step: np.ndarray
    drift: np.ndarray
    violations: int
    num_pairs: int
    min_slack: float
    radius: Radius
    separation: Separation | None
    undefined: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what the radius and the rate are made of is kept with them."""
        s = self.separation
        return {
            "severity": self.perturbation.severity,
            "label": self.perturbation.label,
            "distances": self.distances.tolist(),
            "one_step_median": float(np.median(self.one_step)),
            "encoder_shift_median": float(np.median(self.encoder_shift)),
            "displacement_median": float(np.median(self.displacement)),
            "drift_median": float(np.median(self.drift)),
            "by_step": self.by_step.tolist(),
            "violations": self.violations,
            "num_pairs": self.num_pairs,
            "min_slack": self.min_slack,
            "ir_raw": self.radius.raw,
            "sr": None if s is None else s.rate,
            "sr_count": None if s is None else s.count,
            "sr_eligible": None if s is None else s.eligible,
            "undefined": self.undefined,
        }


@dataclass(frozen=True)
class Measured:
    """One checkpoint on the anchors.

    scales: clean motion [N], num_still of them 0. different: normalised distances of the
    differently labelled pairs [eligible]. spread: median pairwise distance of the clean latents at
    the last observed frame, which a collapsed encoder brings to 0.
    """

    identity: str
    family: str
    signature: str
    scales: np.ndarray
    num_still: int
    different: np.ndarray
    spread: float
    clipped: bool
    severities: tuple[Shifted, ...]

    @property
    def median_different(self) -> float | None:
        """Median normalised distance of differently labelled pairs."""
        return float(np.median(self.different)) if len(self.different) else None

    def at(self, perturbation: Perturbation) -> Shifted:
        """The result under exactly this shift.

        Raises:
            UsageError: it was measured under others only.
        """
        for s in self.severities:
            if s.perturbation == perturbation:
                return s
        raise UsageError(
            f"the reference was measured under "
            f"{', '.join(s.perturbation.label for s in self.severities) or 'no shift'}, not under "
            f"{perturbation.label}: a relative radius needs the same shift."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "identity": self.identity,
            "family": self.family,
            "scales": self.scales.tolist(),
            "num_still": self.num_still,
            "different": self.different.tolist(),
            "median_different": self.median_different,
            "spread": self.spread,
            "clipped": self.clipped,
            "severities": [s.to_dict() for s in self.severities],
        }


def signature(model: WorldModel, anchors: Anchors, *, weights: Any = None) -> str:
    """Digest of what two checkpoints must share for one radius to be relative to the other's."""
    return digest(
        {
            "family": family_of(model),
            "anchors": anchors.digest,
            "weights": step_weights(weights, horizon=anchors.horizon).tolist(),
        }
    )


def family_of(model: WorldModel) -> str:
    """Which kind of network: what the model says, or its class."""
    return str(getattr(model, "family", type(model).__name__))


def refuse_other_family(family: str, reference: str, *, name: str = "the checkpoint") -> None:
    """Refuse a pair of networks whose radii are not on one scale.

    Raises:
        UsageError: the families differ.
    """
    if family != reference:
        raise UsageError(
            f"{name} is of family {family!r} and the reference of {reference!r}: a relative radius "
            "is defined inside one family only. Name the unaugmented checkpoint of its own family."
        )


def measure(
    model: WorldModel,
    anchors: Anchors,
    perturbations: Sequence[Perturbation],
    pairing: Pairing,
    *,
    draws: int = NUM_DRAWS,
    weights: Any = None,
    done: Callable[[int], None] | None = None,
    rollouts: PairedRollouts | None = None,
) -> Measured:
    """ACPC, invariance radius and separation rate under every perturbation.

    Args:
        perturbations: each at draw 0; the further draws are made here.
        draws: M; a perturbation without randomness is drawn once, its draws being identical.
        weights: of the rollout steps, [H]; 1/H each by default.
        done: told how many pairs of rollouts were finished.
        rollouts: the model's clean side, where it is already there.

    Raises:
        UsageError: weights, shapes or values that cannot be used.
        EvidenceError: Proposition 1 does not hold, which would be a bug in the code.
    """
    if draws < 1:
        raise UsageError(f"{draws} draws: at least one is needed.")
    step_weights(weights, horizon=anchors.horizon)
    r = rollouts or PairedRollouts(model, anchors)
    scales = motion_scale(r.observed)
    future = r.observed[:, 1:]
    eligible, others = pair_points(r, pairing.neighbour)
    different = (
        acpc(r.rolled[eligible], others, weights=weights) / (scales[eligible] + MOTION_EPSILON)
        if len(eligible)
        else np.zeros(0)
    )
    out = []
    for p in perturbations:
        made = [
            Perturbation(p.name, p.severity, p.on, p.draw + m)
            for m in range(draws if takes_draws(p) else 1)
        ]
        out.append(_shifted(r, p, made, scales, future, different, weights=weights, done=done))
    last = r.observed[:, -1]
    apart = np.linalg.norm(last[:, None] - last[None], axis=-1)
    return Measured(
        identity=model.identity,
        family=family_of(model),
        signature=signature(model, anchors, weights=weights),
        scales=scales,
        num_still=int((scales == 0).sum()),
        different=different,
        spread=float(np.median(apart[np.triu_indices(len(apart), k=1)])),
        clipped=not r.runner.takes_levels,
        severities=tuple(out),
    )


def _shifted(
    r: PairedRollouts,
    p: Perturbation,
    made: Sequence[Perturbation],
    scales: np.ndarray,
    future: np.ndarray,
    different: np.ndarray,
    *,
    weights: Any,
    done: Callable[[int], None] | None,
) -> Shifted:
    histories = [r.perturbed(m) for m in made]
    rolled: list[np.ndarray] = []
    partners: list[np.ndarray] = []
    for first in range(0, len(histories), ROLLED_AT_ONCE):
        some = histories[first : first + ROLLED_AT_ONCE]
        partner, others = r.roll_pairs(some)
        rolled += others
        partners += [partner] * len(some)
        if done is not None:
            done(len(some) * len(scales))
    both, clean = np.stack(rolled), np.stack(partners)
    distances = acpc(clean, both, weights=weights)
    slack = proposition_1_slack(clean, both, future[None], weights=weights)
    tolerance = proposition_1_tolerance(clean, both, future[None], weights=weights)
    violations = int((slack < -tolerance).sum())
    if violations:
        raise EvidenceError(
            f"Proposition 1 fails on {violations} of {slack.size} pairs under {p.label} (slack "
            f"{slack.min():.3g}): this is a bug, no number is given."
        )
    moved = np.stack(
        [np.linalg.norm(r.points(h) - r.points(r.history), axis=-1) for h in histories]
    )
    steps = np.linalg.norm(both - clean, axis=-1) / (scales[None, :, None] + MOTION_EPSILON)
    radius = invariance_radius(distances, scales)
    found, undefined = None, ""
    try:
        found = separation(different, raw_radius=radius.raw)
    except Abstention as e:
        undefined = str(e)
    return Shifted(
        perturbation=p,
        distances=distances,
        one_step=np.linalg.norm(both[:, :, 0] - clean[:, :, 0], axis=-1),
        encoder_shift=np.sqrt((moved**2).mean(axis=2)),
        displacement=final_displacement(clean, both),
        by_step=np.median(steps.mean(axis=0), axis=0),
        drift=error_drift(clean, both, future[None], weights=weights),
        violations=violations,
        num_pairs=int(slack.size),
        min_slack=float(slack.min()),
        radius=radius,
        separation=found,
        undefined=undefined,
    )


def relative(measured: Measured, reference: Measured, perturbation: Perturbation) -> float:
    """IR_rel of a checkpoint under one shift.

    Raises:
        UsageError: another family, other windows or weights, or a shift the reference was not
            measured under.
        Abstention: the reference's radius is not positive.

    Source: consistency.md section 5.5.
    """
    refuse_other_family(measured.family, reference.family)
    if measured.signature != reference.signature:
        raise UsageError(
            "the checkpoint and the reference were measured on other windows, tasks or weights: "
            "measure both in one command."
        )
    shifted = measured.at(perturbation)
    return relative_radius(shifted.radius.raw, reference.at(perturbation).radius.raw)
