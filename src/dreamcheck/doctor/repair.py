"""Precise batch normalisation of a checkpoint, written beside the original (B6)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.doctor.checks.batchnorm import forward, four_way
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, GuardRefused, UsageError
from dreamcheck.models.checkpoint import read_checkpoint, save_checkpoint
from dreamcheck.models.protocol import HasModule
from dreamcheck.models.registry import checkpoint_folder
from dreamcheck.training.batchnorm import norm_layers, recalibrate

BATCHES, BATCH = 100, 64
MOST_MOVED = 0.15
"""A training-mode score that moves more makes the recalibration invalid (B6)."""


@dataclass(frozen=True)
class Repair:
    """What was written. gap_*: evaluation over batch statistics. moved: of the training score."""

    path: Path
    batches: int
    gap_before: float
    gap_after: float
    moved: float
    clips: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.__dict__, "path": str(self.path)}


def recalibrated(name: str, out: str | Path, subject: Subject, *, batches: int = BATCHES) -> Repair:
    """A new checkpoint with statistics averaged over training clips; the original stays.

    Clips come from the training episodes, or from the held-out ones when there are none, and the
    result says so.

    Raises:
        UsageError: no checkpoint folder, no BatchNorm layer, or ``out`` is taken.
        Abstention: no episodes.
        GuardRefused: the gap stays over its threshold, or the training-mode score moved.
    """
    folder = checkpoint_folder(name)
    if folder is None:
        raise UsageError(f"{name} is no checkpoint folder; its statistics cannot be rewritten.")
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; name a new folder, the original stays as it is.")
    if not subject.has("frames"):
        raise Abstention("recalibration needs clips: give --training-data (or --data).")
    checkpoint = read_checkpoint(folder)
    model = copy.deepcopy(checkpoint.model)
    assert isinstance(model, HasModule)
    if not norm_layers(model.module):
        raise UsageError(f"{name} has no batch normalisation to recalibrate.")
    source = subject.train if subject.train is not None else subject.episodes
    clips = "training episodes" if subject.train is not None else (
        f"held-out episodes ({subject.episodes_from}): evaluation on them is not independent"
    )  # fmt: skip
    before = four_way(model, subject.sample)

    def batch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = subject.draw(
            frames=model.history_max + 1, count=BATCH, episodes=source, role=f"recalibrate {i}"
        )
        return (
            torch.from_numpy(np.ascontiguousarray(drawn.pixels)),
            torch.from_numpy(model.conventions.blocks(drawn.actions)),
        )

    done = recalibrate(
        model.module, lambda b: forward(model, *b), (batch(i) for i in range(batches))
    )
    after = four_way(model, subject.sample)
    gap = {k: v["eval"] / v["batch_statistics"] for k, v in (("b", before), ("a", after))}
    moved = abs(after["batch_statistics"] / before["batch_statistics"] - 1)
    most = subject.thresholds.get("batchnorm", "gap")
    if not gap["a"] <= most.value or moved > MOST_MOVED:
        raise GuardRefused(
            f"after recalibration on {done.batches} batches the gap is {gap['a']:.3g} (before "
            f"{gap['b']:.3g}, at most {most.value:g}) and the batch-statistics score moved by "
            f"{moved:.1%} (at most {MOST_MOVED:.0%}): nothing was written. The statistics are not "
            "the only fault, or the clips are not like training."
        )
    repair = Repair(out, done.batches, gap["b"], gap["a"], moved, clips)
    save_checkpoint(
        out,
        model.module,
        checkpoint.conventions,
        family=checkpoint.family,
        training={
            **checkpoint.training,
            "recalibrated": {
                **{k: v for k, v in repair.to_dict().items() if k != "path"},
                "original": checkpoint.model.identity,
            },
        },
    )
    return repair
