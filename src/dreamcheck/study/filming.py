"""Film strips: what really happened above what the model imagined, kept as artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dreamcheck.evidence import Measurement
from dreamcheck.imagination.risk import Imagined
from dreamcheck.models.protocol import Decode
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import CONTROL, Asked
from dreamcheck.study.study import Study
from dreamcheck.tasks.protocol import Backdrop, Restartable

SHOWN_SIZE = 112
"""Side of the frames in a strip, px; the nearest size the task renders."""


def film(study: Study, search: Search, findings: Sequence[Mapping[str, Any]]) -> None:
    """One strip for each of the worst shortlisted inputs, and one for the default reset.

    Each shows one validation seed: the one whose loss is nearest to the input's risk, so that
    the strip is what the number stands for, neither the best nor the worst of it.
    """
    worst = sorted(
        (f for f in findings if f["group"] == "shortlist" and f["risk"] is not None),
        key=lambda f: (-f["risk"], f["input"]),
    )[: study.config.checks.strips]
    if not worst:
        return
    wanted: list[tuple[Asked, float]] = [(Asked(f["input"], f["values"]), f["risk"]) for f in worst]
    default = worst[0]["default_risk"]
    if default is not None:
        wanted.append((CONTROL, default))
    with study.progress.stage(f"film {search.specification}", len(wanted), unit="strips") as stage:
        for asked, risk in wanted:
            key = f"{search.specification}:{asked.id}"
            if study.store.get("strip", key) is None:
                _strip(study, search, asked, risk, key)
            stage.advance()
    if study.store.get("arena", study.bench.task.name) is None:
        _arena(study)


def _strip(study: Study, search: Search, asked: Asked, risk: float, key: str) -> None:
    seeds = study.seeds("validation")[: study.config.checks.validation_steps[0]]
    measured = study.measurer.measure([asked], seeds, partition="validation")[asked.id]
    chosen: Measurement = min(
        (m for m in measured if m.loss is not None),
        key=lambda m: (abs((m.loss or 0.0) - risk), m.seed),
    )
    inputs = None if asked.values is None else [asked.values]
    batch = study.probe.imagine(inputs, [chosen.seed])
    row = study.probe.rows_of(batch, inputs, [chosen.seed])[0]
    size = min(study.bench.task.sizes, key=lambda s: abs(s - SHOWN_SIZE))
    arrays = {"real": _real_frames(study, inputs, chosen.seed, size)}
    shown, kind = _imagined_frames(study, batch, row.nearest, size)
    if shown is not None:
        arrays["imagined"] = shown
    payload: dict[str, Any] = {
        "spec": search.specification,
        "input": asked.id,
        "interface": study.interface,
        "values": asked.values,
        "seed": chosen.seed,
        "measurement": chosen.key,
        "loss": chosen.loss,
        "risk": risk,
        "steps": row.steps,
        "frozen_steps": row.frozen_steps,
        "imagined_kind": kind,
        "support_imagined": row.support_imagined,
        "true_states": batch.futures.frame_states[0].tolist(),
        "path": batch.futures.states[0].tolist(),
        "goal": batch.futures.goals[0].tolist(),
        "history": study.probe.horizons.history,
        "frameskip": study.probe.horizons.frameskip,
        "artifacts": {"frames": study.store.artifacts.put_arrays(arrays)},
    }
    if study.bench.readout is not None:
        payload["imagined_states"] = study.bench.readout.predict(batch.imagined[0]).tolist()
    study.keep("strip", key, payload)


def _real_frames(study: Study, inputs: Sequence[Any] | None, seed: int, size: int) -> np.ndarray:
    from dreamcheck.imagination.futures import collect

    futures = collect(
        study.bench.task,
        study.bench.policy,
        inputs,
        [seed],
        horizons=study.probe.horizons,
        root_seed=study.config.root_seed,
        image_size=size,
    )
    assert futures.frames is not None
    return futures.frames[0]


def _imagined_frames(
    study: Study, batch: Imagined, nearest: Sequence[int], size: int
) -> tuple[np.ndarray | None, str]:
    """Decoded frames where the model decodes, else the nearest real training frames."""
    model, task, support = study.bench.model, study.bench.task, study.bench.support
    if isinstance(model, Decode):
        with torch.no_grad():
            return model.decode(batch.imagined[0]).numpy(), "decoded by the model"
    if support is None or not nearest or not isinstance(task, Restartable):
        return None, "not shown: no decoder, and no reference frames to take the nearest from"
    state = task.reset(None, [0] * len(nearest))
    placed = task.with_state(state, support.states[np.asarray(nearest)])
    frames = task.observe(placed, ("pixels",), image_size=size)["pixels"]
    return frames, "nearest training frame to each imagined latent (a proxy, not a decoding)"


def _arena(study: Study) -> None:
    """The task's picture without an agent, where the task can show it: the map's background."""
    task = study.bench.task
    if not isinstance(task, Backdrop):
        return
    picture = task.backdrop()
    ref = study.store.artifacts.put_arrays({"picture": picture})
    study.keep("arena", task.name, {"task": task.name, "artifacts": {"picture": ref}})
