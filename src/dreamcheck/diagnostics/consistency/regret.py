"""Does ACPC predict what a perturbed history costs the planner? (the planner experiment)

A row is one history under one severity: the regret of paired searches with common random numbers,
and what the first pool, which both searches share, says beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dreamcheck.diagnostics.consistency.planner import Choice, choices
from dreamcheck.diagnostics.consistency.reduction import reduction
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.imagination.perturbations import KINDS, Perturbation
from dreamcheck.planning.solvers import CEM
from dreamcheck.stats import held_out_errors

SEVERITIES = (0.02, 0.05, 0.08)
NUM_HISTORIES = 100
HeldOut = Literal["task", "history"]


@dataclass(frozen=True, slots=True)
class RegretRow:
    """One history of one checkpoint, named, under one severity.

    augmented: whether the checkpoint was trained under noise. acpc_1, acpc_plan, displacement: 90th
    percentile over the first pool of ACPC after one step, over the plan, and of the distance after
    its last step. oldest_shift: how far the encoder moves the oldest history frame. clean_gap:
    second-best minus best clean cost of that pool. regret: (C_h(perturbed plan) - C_h(plan))_+.
    """

    task: str
    checkpoint: str
    history: str
    severity: float
    augmented: bool
    acpc_1: float
    acpc_plan: float
    displacement: float
    oldest_shift: float
    clean_gap: float
    regret: float


def regret_rows(
    found: Mapping[Perturbation, Sequence[Choice]],
    rollouts: PairedRollouts,
    *,
    task: str,
    checkpoint: str,
    augmented: bool,
) -> tuple[RegretRow, ...]:
    """Rows of one checkpoint from what ``choices`` found."""
    clean = rollouts.points(rollouts.history[:, :1])[:, 0]
    at = {scene: i for i, scene in enumerate(rollouts.anchors.scenes)}
    out = []
    for p, chosen in found.items():
        seen = rollouts.points(rollouts.perturbed(p)[:, :1])[:, 0]
        shift = np.linalg.norm(seen - clean, axis=-1)
        out += [
            RegretRow(
                task=task, checkpoint=checkpoint, history=c.scene, severity=p.severity,
                augmented=augmented,
                acpc_1=c.acpc_1, acpc_plan=c.acpc_plan, displacement=c.displacement,
                oldest_shift=float(shift[at[c.scene]]), clean_gap=c.clean_gap, regret=c.regret,
            )
            for c in chosen
        ]  # fmt: skip
    return tuple(out)


def identity_changes_no_plan(
    rollouts: PairedRollouts, *, solver: CEM, steps: int, kind: str = "gaussian", count: int = 2
) -> int:
    """Searches under the severity that changes no pixel: the same plans, ACPC and regret 0.

    Returns:
        How many histories were looked at.

    Raises:
        EvidenceError: a plan or a distance moved, which would be a bug in the code.
    """
    nothing = Perturbation(kind, KINDS[kind].identity)
    found = choices(rollouts, [nothing], solver=solver, steps=steps, count=count)[nothing]
    for c in found:
        if not (c.plan_unchanged and c.acpc_plan == 0.0 and c.signed_regret == 0.0):
            raise EvidenceError(
                f"{nothing.label} changes the plan of window {c.scene} although it changes no "
                "pixel: this is a bug, no number is given."
            )
    return len(found)


def baseline_features(rows: Sequence[RegretRow]) -> np.ndarray:
    """Severity, augmented indicator, log1p ACPC_1, log1p clean gap: [R, 4]."""
    return np.array(
        [[r.severity, float(r.augmented), np.log1p(r.acpc_1), np.log1p(r.clean_gap)] for r in rows]
    )


def released_features(rows: Sequence[RegretRow]) -> np.ndarray:
    """What the released code reads as "one-step ACPC", in place of ACPC_1: [R, 4].

    It is the encoder shift of the oldest history frame, one number for all candidates of a pool
    (consistency.md section 16.3); its "five-step ACPC" is the final displacement.
    """
    out = baseline_features(rows)
    out[:, 2] = np.log1p([r.oldest_shift for r in rows])
    return out


@dataclass(frozen=True)
class RegretRegression:
    """Held-out errors on log1p(regret) without and with a planner-horizon feature.

    held_out: what is left out: a task, as in the paper, or a history where there is one task only.
    baseline, expanded: absolute errors [R].
    """

    held_out: HeldOut
    group: tuple[str, ...]
    baseline: np.ndarray
    expanded: np.ndarray

    @cached_property
    def by_group(self) -> dict[str, tuple[float, float, int]]:
        """MAE without and with the feature, and the rows of every group."""
        labels = np.asarray(self.group)
        return {
            str(g): (
                float(self.baseline[labels == g].mean()),
                float(self.expanded[labels == g].mean()),
                int((labels == g).sum()),
            )
            for g in np.unique(labels)
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the errors of every row included; groups weigh equally."""
        without, with_, sizes = zip(*self.by_group.values(), strict=True)
        names = list(self.by_group)
        return {
            "held_out": self.held_out,
            "num_rows": len(self.group),
            "num_groups": len(names),
            "baseline_mae": float(np.mean(without)),
            "expanded_mae": float(np.mean(with_)),
            # Of the group-averaged errors: not the mean of the groups' reductions.
            "reduction": reduction(
                np.array(without), np.array(with_), names, identity=f"regret/{self.held_out}"
            ).to_dict(),
            "groups_improved": sum(b < a for a, b in zip(without, with_, strict=True)),
            "rows_of_a_group": sorted(set(sizes)),
            "group": list(self.group),
            "errors": {"baseline": self.baseline.tolist(), "expanded": self.expanded.tolist()},
        }


def regret_regression(
    rows: Sequence[RegretRow], *, held_out: HeldOut | None = None, released: bool = False
) -> RegretRegression:
    """Ridge (penalty 1) on log1p regret, leaving one task or one history out.

    Args:
        held_out: "task" by default where there are several, else "history".
        released: the features that the released code reads, under their own name.

    Source: consistency.md sections 13 and 16.3.
    """
    if not rows:
        raise UsageError("no rows to regress on: no history was planned from.")
    if held_out is None:
        held_out = "task" if len({r.task for r in rows}) > 1 else "history"
    group = tuple(r.task if held_out == "task" else f"{r.task}/{r.history}" for r in rows)
    target = np.log1p([r.regret for r in rows])
    base = released_features(rows) if released else baseline_features(rows)
    added = np.log1p([r.displacement if released else r.acpc_plan for r in rows])
    return RegretRegression(
        held_out=held_out,
        group=group,
        baseline=held_out_errors(base, target, group),
        expanded=held_out_errors(np.column_stack([base, added]), target, group),
    )
