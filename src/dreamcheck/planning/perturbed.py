"""Planning success with clean and with perturbed images, on identical episodes and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models.protocol import WorldModel
from dreamcheck.planning.control import Progress
from dreamcheck.planning.evaluate import plan
from dreamcheck.planning.paired import Comparison, compare_arms
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.results import Evaluation
from dreamcheck.tasks.protocol import Task


@dataclass(frozen=True)
class PerturbedSuccess:
    """One checkpoint under one protocol, seeing clean and perturbed images.

    comparison: perturbed minus clean, paired case by case (a is perturbed, b clean): a loss is
    negative.
    """

    perturbation: Perturbation
    clean: Evaluation
    perturbed: Evaluation
    comparison: Comparison

    @property
    def loss_points(self) -> float:
        """Success lost, in percentage points; negative where the perturbation helped."""
        return -100 * self.comparison.difference

    def to_dict(self) -> dict[str, Any]:
        """Rates, paired difference with its interval, and every case's outcome."""
        ids, clean = self.clean.planner.table()
        _, perturbed = self.perturbed.planner.table()
        _, trivial = self.clean.planner.table("trivial")
        c = self.comparison
        return {
            "label": self.perturbed.label,
            "clean": c.rate_b.to_dict(),
            "perturbed": c.rate_a.to_dict(),
            "loss_points": self.loss_points,
            "loss_low": -100 * c.high,
            "loss_high": -100 * c.low,
            "interval": c.kind,
            "test": c.test,
            "p": c.p,
            "num_cases": c.num_cases,
            "num_streams": c.num_streams,
            "verdict": c.verdict,
            "cases": ids,
            "clean_success": clean.astype(int).tolist(),
            "perturbed_success": perturbed.astype(int).tolist(),
            "trivial": trivial[:, 0].astype(int).tolist(),
            "notes": list(self.perturbed.realised.notes),
        }


def plan_perturbed(
    model: WorldModel,
    task: Task,
    protocol: Protocol,
    perturbations: Sequence[Perturbation],
    *,
    controls: Sequence[str] = (),
    progress: Progress | None = None,
    **options: Any,
) -> list[PerturbedSuccess]:
    """Success under each perturbation beside one clean evaluation.

    The episodes, the simulator, its success test and the planner's random numbers are the same;
    only what the planner sees differs. An identity severity is the clean evaluation itself.

    Args:
        protocol: without a perturbation of its own.
        controls: arms of the clean evaluation; they look at no image.
        options: further arguments of ``plan``, e.g. ``keep`` to go on where a run was stopped.

    Raises:
        UsageError: the protocol already perturbs.
    """
    if protocol.perturbation is not None:
        raise UsageError(
            f"protocol {protocol.name} already perturbs its images; leave `perturbation` out of it."
        )
    options = {"log": False, **options}
    clean = plan(
        model, task, protocol, controls=controls, progress=_named(progress, "clean"), **options
    )
    out = []
    for p in perturbations:
        seen = {"name": p.name, "severity": p.severity, "on": p.on, "draw": p.draw}
        perturbed = clean
        if not p.is_identity:
            perturbed = plan(
                model, task, protocol.replace(perturbation=seen), controls=(),
                progress=_named(progress, p.label), **options,
            )  # fmt: skip
        found = compare_arms(
            perturbed.planner, clean.planner, label=perturbed.label, name_a="perturbed images",
            name_b="clean images",
        )  # fmt: skip
        out.append(PerturbedSuccess(p, clean, perturbed, found))
    return out


def _named(progress: Progress | None, name: str) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total, what: progress(done, total, f"{what}, {name}")
