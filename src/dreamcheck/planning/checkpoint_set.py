"""A set of checkpoints under two horizons, ready for the dissociation analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.control import Progress
from dreamcheck.planning.evaluate import plan, prepare
from dreamcheck.planning.guarding import Guard
from dreamcheck.planning.one_step import one_step_error
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.results import Evaluation
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
    guard: Callable[[str, Protocol], Guard] | None = None,
    progress: Progress | None = None,
) -> list[Checkpoint]:
    """One-step error and both evaluations of every checkpoint.

    The one-step error is measured on the short protocol's episodes, the same windows for all.

    Args:
        guard: makes the guard of a named checkpoint under a protocol, as ``plan`` takes it.

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
    ready = [prepare(p, task, data=data) for p in (short, long)]
    out = []
    for name, (model, readout) in models.items():
        step = one_step_error(model, task, ready[0].held, windows=windows, seed=short.seed)
        both = [
            plan(
                model, task, p, data=data, readout=readout, controls=("random",), speed=speed,
                guard=None if guard is None else guard(name, p), prepared=prepared, keep=keep,
                progress=_named(progress, f"{name}, {p.label}"),
            )
            for p, prepared in zip((short, long), ready, strict=True)
        ]  # fmt: skip
        out.append(
            Checkpoint(
                name=name,
                one_step_error=step.ratio.ratio,
                short=both[0],
                long=both[1],
                encoding=step.encoding,
                attributes=_attributes(model, both[0]),
            )
        )
    return out


def _attributes(model: WorldModel, evaluation: Evaluation) -> dict[str, str]:
    """What may differ along with the error, and be the cause instead (H4)."""
    c = model.conventions
    out = {
        "context frames": str(model.history_max),
        "action width": str(c.action_width),
        "action normalisation": f"mean {_few(c.action_mean)}, std {_few(c.action_std)}",
        "pixel convention": f"{c.image_size} px {c.resize}, x {c.pixel_scale:.4g}, mean "
        f"{_few(c.pixel_mean)}, std {_few(c.pixel_std)}",
        "latent": "x".join(map(str, model.latent.shape)),
    }
    measured = (evaluation.realised.norm_audit or {}).get("measured", {})
    if "batches" in measured:
        # B7: the count tells recalibrated statistics from a training average.
        out["batches behind the normalisation statistics"] = f"{measured['batches']['value']:.0f}"
    return out


def _few(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{v:.3g}" for v in values) + ")"


def _named(progress: Progress | None, name: str) -> Progress | None:
    """Progress whose stages say which checkpoint and horizon they belong to."""
    if progress is None:
        return None
    return lambda done, total, what: progress(done, total, f"{name}, {what}")
