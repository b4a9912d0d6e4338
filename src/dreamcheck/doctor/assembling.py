"""From names on a command line to a subject: whatever is there, and what could not be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.doctor.subject import Subject
from dreamcheck.doctor.thresholds import load_thresholds
from dreamcheck.models.checkpoint import read_checkpoint
from dreamcheck.models.reference import load_support
from dreamcheck.models.registry import checkpoint_folder, load_model
from dreamcheck.study.assembling import load_companion_readout
from dreamcheck.tasks import get_task
from dreamcheck.tasks.protocol import MakesPolicies, Task

FRESH_SEED = 7_000_000
FRESH_EPISODES, FRESH_STEPS = 32, 80


def assemble_subject(
    model: str | None = None,
    *,
    task: str | None = None,
    data: str | Path | None = None,
    training_data: str | Path | None = None,
    mapping: str | Path | None = None,
    protocol: str | Path | None = None,
    results: str | Path | None = None,
    thresholds: str = "default",
    device: str = "cpu",
    seconds: float | None = None,
    windows: int = 128,
    seed: int = 0,
) -> Subject:
    """The subject; episodes are recorded now when there is a simulator and no data.

    Raises:
        CheckpointError, UsageError: a part that was named and cannot be had.
    """
    from dreamcheck.data.readers import open_episodes

    parts: dict[str, Any] = {}
    if model is not None:
        parts["model"] = load_model(model, device=device)
        folder = checkpoint_folder(model)
        if folder is not None:
            parts |= companions(folder, parts["model"])
            if (folder / "config.json").is_file():
                parts["provenance"] = read_checkpoint(folder).training
    if task is not None:
        parts["task"] = get_task(task)
    if data is not None:
        parts["episodes"] = open_episodes(data, mapping)
        parts["episodes_from"] = f"recorded ({Path(data).name})"
    elif parts.get("task") is not None:
        sizes = parts["task"].sizes
        side = parts["model"].conventions.image_size if "model" in parts else min(sizes, default=0)
        fresh = record_fresh(parts["task"], side, seed=seed)
        if fresh is not None:
            parts["episodes"] = fresh
            parts["episodes_from"] = "recorded now with the simulator"
    if training_data is not None:
        parts["train"] = open_episodes(training_data, mapping)
    if protocol is not None:
        from dreamcheck.planning.protocol import load_protocol

        parts["protocol"] = load_protocol(protocol)
    if results is not None:
        from dreamcheck.doctor.results import read_results

        parts["results"] = read_results(Path(results))
    return Subject(
        **parts,
        thresholds=load_thresholds(thresholds),
        seconds=seconds,
        windows=windows,
        seed=seed,
    )


def companions(folder: Path, model: Any) -> dict[str, Any]:
    """Readout and training reference beside a checkpoint, where they belong to the model."""
    support = load_support(folder)
    if support is not None:
        support.require(model)
    return {"readout": load_companion_readout(folder, model), "support": support}


def record_fresh(task: Task, image_size: int, *, seed: int = 0) -> ArrayEpisodes | None:
    """Episodes of the task's exploratory policy; None where it makes none, or not at that size."""
    from dreamcheck.training.record import record_episodes

    if not isinstance(task, MakesPolicies) or image_size not in task.sizes:
        return None
    return record_episodes(
        task,
        task.make_policy("exploratory"),
        env_seeds=FRESH_SEED + FRESH_EPISODES * seed + np.arange(FRESH_EPISODES),
        steps=FRESH_STEPS,
        image_size=image_size,
        root_seed=seed,
    )
