"""A set of checkpoints under two horizons, ready for the dissociation analysis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.control import Progress
from dreamcheck.planning.evaluate import plan, prepare
from dreamcheck.planning.one_step import one_step_error
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.two_horizons import Checkpoint
from dreamcheck.tasks.protocol import Task


def measured_checkpoints(
    models: Mapping[str, tuple[WorldModel, Readout | None]],
    task: Task,
    *,
    short: Protocol,
    long: Protocol,
    data: Episodes | None = None,
    windows: int = 400,
    speed: str = "exact",
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Checkpoint]:
    """One-step error and both evaluations of every checkpoint.

    The one-step error is measured on the short protocol's episodes, the same windows for all.

    Raises:
        UsageError: fewer than two checkpoints, or one network under two names.
    """
    if len(models) < 2:
        raise UsageError("a dissociation needs at least two checkpoints.")
    seen: dict[str, str] = {}
    for name, (model, _) in models.items():
        if model.identity in seen:
            raise UsageError(
                f"{name} and {seen[model.identity]} are the same network: each checkpoint counts "
                "once."
            )
        seen[model.identity] = name
    _, _, held, _, _ = prepare(short, task, data=data)
    out = []
    for name, (model, readout) in models.items():
        step = one_step_error(model, task, held, windows=windows, seed=short.seed)

        both: list[Any] = [
            plan(
                model, task, p, data=data, readout=readout, controls=("random",), speed=speed,
                keep=keep, progress=_named(progress, f"{name}, {p.label}"),
            )
            for p in (short, long)
        ]  # fmt: skip
        out.append(
            Checkpoint(
                name=name,
                one_step_error=step.ratio.ratio,
                short=both[0],
                long=both[1],
                encoding=step.encoding,
                attributes={
                    "history": model.history_max,
                    "action_width": model.conventions.action_width,
                    "latent": "x".join(map(str, model.latent.shape)),
                },
            )
        )
    return out


def _named(progress: Progress | None, name: str) -> Progress | None:
    """Progress whose stages say which checkpoint and horizon they belong to."""
    if progress is None:
        return None
    return lambda done, total, what: progress(done, total, f"{name}, {what}")
