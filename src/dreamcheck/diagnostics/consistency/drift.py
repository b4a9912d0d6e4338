"""Does ACPC predict how far a perturbation moves the prediction error? (the error-drift experiment)

Rows are pairs of one window's clean and perturbed history. The target is d = |e_h~ - e_h|, which
Proposition 1 bounds by ACPC_H; the question is how much of it ACPC_H predicts on windows that the
regression has not seen, beside severity, encoder shift and ACPC_1, and beside the same ACPC_H with
its actions destroyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency.pairwise import acpc, error_drift
from dreamcheck.diagnostics.consistency.reduction import reduction
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts, takes_draws
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.imagination.perturbations import KINDS, Perturbation
from dreamcheck.stats import held_out_errors
from dreamcheck.streams import stream

NUM_GROUPS = 16
SEVERITIES = (0.02, 0.05, 0.08)
NUM_DRAWS = 2
CONTROLS = ("zeroed", "swapped", "shuffled")
SEED = 9101


@dataclass(frozen=True)
class DriftRows:
    """One checkpoint's rows; every array is [R].

    group: the window a row is of; its rows are held out together.
    severity, encoder_shift, acpc_1, acpc_h: features, untransformed, under the recorded actions.
    control: by name, ACPC_H under destroyed actions. drift: the target d.
    """

    group: tuple[str, ...]
    severity: np.ndarray
    encoder_shift: np.ndarray
    acpc_1: np.ndarray
    acpc_h: np.ndarray
    control: Mapping[str, np.ndarray]
    drift: np.ndarray

    @property
    def base(self) -> np.ndarray:
        """Features of the Base regression [R, 3]."""
        return np.stack([self.severity, self.encoder_shift, self.acpc_1], axis=1)


def destroyed_blocks(blocks: np.ndarray, scenes: Sequence[str], *, how: str) -> np.ndarray:
    """Action blocks [N, L, A] that no longer fit their windows; the history's entries included.

    zeroed: standardised actions 0, the mean action. swapped: another window's actions, by one cycle
    through all of them. shuffled: the window's own blocks in another order.

    Source: consistency.md section 12.
    """
    if how == "zeroed":
        return np.zeros_like(blocks)
    if how == "swapped":
        if len(blocks) < 2:
            raise UsageError("one window alone has no other whose actions it could take.")
        order = stream(SEED, "consistency/swapped", "all").permutation(len(blocks))
        taken = np.empty_like(order)
        taken[order] = np.roll(order, 1)  # one cycle: nobody keeps their own
        return blocks[taken]
    if how == "shuffled":
        length = blocks.shape[1]
        out = np.empty_like(blocks)
        for i, scene in enumerate(scenes):
            rng = stream(SEED, "consistency/shuffled", scene)
            order = rng.permutation(length)
            while length > 1 and (order == np.arange(length)).all():
                order = rng.permutation(length)
            out[i] = blocks[i, order]
        return out
    raise UsageError(f"actions are {' or '.join(CONTROLS)}, not {how!r}.")


def drift_rows(
    rollouts: PairedRollouts,
    *,
    perturbation: str = "gaussian",
    severities: Sequence[float] = SEVERITIES,
    draws: int = NUM_DRAWS,
) -> DriftRows:
    """Target and features of every window, severity and draw.

    Args:
        rollouts: of windows from distinct episodes (``draw_anchors(distinct=True)``).

    Raises:
        EvidenceError: the identity severity moves a rollout, which would be a bug in the code.
    """
    anchors = rollouts.anchors
    _identity_moves_nothing(rollouts, perturbation)
    made = [
        Perturbation(perturbation, severity, draw=m)
        for severity in severities
        for m in range(draws if takes_draws(Perturbation(perturbation, severity)) else 1)
    ]
    histories = [rollouts.perturbed(p) for p in made]
    clean, perturbed = rollouts.roll_pairs(histories)
    future = rollouts.observed[:, 1:]
    still = rollouts.points(rollouts.history)
    control: dict[str, np.ndarray] = {}
    for how in CONTROLS:
        blocks = destroyed_blocks(rollouts.blocks, anchors.scenes, how=how)
        first, rest = rollouts.roll_pairs(histories, blocks)
        control[how] = np.concatenate([acpc(first, other) for other in rest])
    moved = [np.linalg.norm(rollouts.points(h) - still, axis=-1) for h in histories]
    return DriftRows(
        group=tuple(anchors.scenes) * len(made),
        severity=np.repeat([p.severity for p in made], len(anchors)),
        encoder_shift=np.concatenate([np.sqrt((m**2).mean(axis=1)) for m in moved]),
        acpc_1=np.concatenate([acpc(clean[:, :1], q[:, :1]) for q in perturbed]),
        acpc_h=np.concatenate([acpc(clean, q) for q in perturbed]),
        control=control,
        drift=np.concatenate([error_drift(clean, q, future) for q in perturbed]),
    )


def _identity_moves_nothing(rollouts: PairedRollouts, perturbation: str) -> None:
    nothing = Perturbation(perturbation, KINDS[perturbation].identity)
    clean, (again,) = rollouts.roll_pairs([rollouts.perturbed(nothing)])
    if not np.array_equal(again, clean):
        raise EvidenceError(
            f"{nothing.label} moves an imagined future although it changes no pixel: this is a bug, "
            "no number is given."
        )


@dataclass(frozen=True)
class DriftCell:
    """The three regressions of one checkpoint, every window held out once.

    base, acpc: absolute held-out errors [R]; control: the same by control.
    """

    group: tuple[str, ...]
    base: np.ndarray
    control: Mapping[str, np.ndarray]
    acpc: np.ndarray
    mean_drift: float
    mean_acpc: float

    @cached_property
    def best_control(self) -> str:
        """The control of lowest held-out error: chosen after the fact, to the control's favour."""
        return min(self.control, key=lambda how: float(self.control[how].mean()))

    @property
    def fold_wins(self) -> tuple[int, int]:
        """Windows on which ACPC errs less than the best control; than it and Base alike.

        The paper's text counts the first, its code the second (consistency.md section 16.7).
        """
        labels = np.asarray(self.group)
        over_control = over_both = 0
        for name in np.unique(labels):
            rows = labels == name
            mine = self.acpc[rows].mean()
            control, base = self.control[self.best_control][rows].mean(), self.base[rows].mean()
            over_control += bool(mine < control)
            over_both += bool(mine < min(control, base))
        return over_control, over_both

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the errors of every row included."""
        best = self.control[self.best_control]
        over_control, over_both = self.fold_wins
        return {
            "num_rows": len(self.group),
            "folds": len(set(self.group)),
            "base_mae": float(self.base.mean()),
            "control_mae": {how: float(e.mean()) for how, e in self.control.items()},
            "best_control": self.best_control,
            "best_control_mae": float(best.mean()),
            "acpc_mae": float(self.acpc.mean()),
            "vs_base": reduction(self.base, self.acpc, self.group, identity="base").to_dict(),
            "vs_control": reduction(best, self.acpc, self.group, identity="control").to_dict(),
            "folds_over_control": over_control,
            "folds_over_both": over_both,
            "mean_drift": self.mean_drift,
            "mean_acpc": self.mean_acpc,
            "group": list(self.group),
            "errors": {
                "base": self.base.tolist(),
                "acpc": self.acpc.tolist(),
                **{how: e.tolist() for how, e in self.control.items()},
            },
        }


def drift_cell(rows: DriftRows) -> DriftCell:
    """Base, Base + control and Base + ACPC by ridge (penalty 1), leaving one window out.

    Source: consistency.md section 12.
    """

    def errors(feature: np.ndarray | None) -> np.ndarray:
        x = rows.base if feature is None else np.column_stack([rows.base, feature])
        return held_out_errors(x, rows.drift, rows.group)

    return DriftCell(
        group=rows.group,
        base=errors(None),
        control={how: errors(values) for how, values in rows.control.items()},
        acpc=errors(rows.acpc_h),
        mean_drift=float(rows.drift.mean()),
        mean_acpc=float(rows.acpc_h.mean()),
    )
