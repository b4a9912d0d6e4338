"""Planning results as diagnoses of a folder, and back again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck import __version__
from dreamcheck.digest import plain
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Record, Store
from dreamcheck.evidence.diagnoses import KIND, record_diagnosis
from dreamcheck.planning.attribution import Explanation
from dreamcheck.planning.protocol import load_protocol
from dreamcheck.planning.reading import evaluation_from, read_evaluation
from dreamcheck.planning.results import Evaluation, Realised, deviations
from dreamcheck.planning.two_horizons import Checkpoint, Dissociation

REFERENCE = "lewm-repo"
"""The protocol that the deviations text compares with."""

FRAME = 112
"""Side of a film's frames, px."""

NOT_INPUTS = (
    "notes", "num_eligible", "span_min", "span_mean", "span_max", "moved_starts", "iterations",
    "candidates", "domain_guard", "norm_audit", "committed",
)  # fmt: skip
"""Fields of a realised protocol that follow from the others, or were measured."""


def record_plan(directory: str | Path, evaluation: Evaluation, *, model: str) -> Record:
    """Keep an evaluation.

    Args:
        model: what the user calls the checkpoint.

    Raises:
        EvidenceError: the same inputs are stored with another result.
    """
    reference = load_protocol(REFERENCE).model_dump()
    return record_diagnosis(
        directory,
        name="plan",
        subject=_subject(evaluation.realised, model),
        inputs=_inputs(evaluation.realised),
        result=plain(
            {
                **evaluation.to_dict(),
                "label": evaluation.label,
                "reference": REFERENCE,
                "deviations": deviations(evaluation.realised, reference),
            }
        ),
        stamps=evaluation.stamps,
    )


def record_explanation(
    directory: str | Path, explanation: Explanation, *, model: str, task: Any
) -> Record:
    """Keep an explanation, with the frames of its film as pictures.

    Args:
        task: draws the frames.
    """
    reference = load_protocol(REFERENCE).model_dump()
    return record_diagnosis(
        directory,
        name="explain",
        subject=_subject(explanation.realised, model),
        inputs={
            **_inputs(explanation.realised),
            "true_cost": explanation.true_cost,
            "search_factor": explanation.search_factor,
            "cells": sorted(explanation.cells),
            "readout": explanation.readout,
        },
        result=plain(
            {
                **explanation.to_dict(),
                "reference": REFERENCE,
                "deviations": deviations(explanation.realised, reference),
                "frames": _shown_steps(explanation),
            }
        ),
        artifacts=_frames(explanation, task),
        stamps=explanation.stamps,
    )


def record_dissociation(
    directory: str | Path, found: Dissociation, checkpoints: list[Checkpoint]
) -> Record:
    """Keep a dissociation with every episode's outcome at both horizons."""
    return record_diagnosis(
        directory,
        name="dissociation",
        subject={
            "models": {c.name: c.short.realised.model for c in checkpoints},
            "task": checkpoints[0].short.realised.task,
        },
        inputs={
            c.name: {
                "one_step": c.encoding,
                "short": _inputs(c.short.realised),
                "long": _inputs(c.long.realised),
            }
            for c in checkpoints
        },
        result=plain(
            {
                **found.to_dict(),
                "episodes": [
                    {
                        "name": c.name,
                        "short": _table(c.short),
                        "long": _table(c.long),
                    }
                    for c in checkpoints
                ],
            }
        ),
        stamps=tuple(sorted({s for c in checkpoints for s in (*c.short.stamps, *c.long.stamps)})),
    )


def stored_evaluation(source: str | Path) -> Evaluation:
    """An evaluation from a JSON file, or from a folder that holds exactly one.

    ``FOLDER#KEY`` names one of several by the beginning of its record's key.

    Raises:
        UsageError: nothing there, or several and none named.
    """
    text, _, wanted = str(source).partition("#")
    path = Path(text)
    if path.is_file():
        return read_evaluation(path)
    if not path.is_dir():
        raise UsageError(
            f"{text} is neither a folder written by `dreamcheck plan --out` nor a JSON file "
            "written with `--json`."
        )
    with Store.read(path) as store:
        held = [
            r
            for r in store.records(KIND)
            if r.payload["name"] == "plan"
            and (r.key.startswith(wanted) or r.key.removeprefix("plan-").startswith(wanted))
        ]
    if len(held) != 1:
        known = ", ".join(
            f"{r.key.removeprefix('plan-')[:12]} ({r.payload['result']['label']})" for r in held
        )
        raise UsageError(
            f"{source} holds {len(held)} planning evaluations, one is needed"
            + (f": {known}. Name one as {text}#{held[0].key[5:17]}." if held else ".")
        )
    values = dict(held[0].payload["result"])
    for name in ("label", "reference", "deviations"):
        values.pop(name)
    return evaluation_from(values)


def _subject(realised: Realised, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "identity": realised.model,
        "task": realised.task,
        "task_version": realised.task_version,
        "data": realised.data_digest,
    }


def _inputs(realised: Realised) -> dict[str, Any]:
    values = {k: v for k, v in realised.to_dict().items() if k not in NOT_INPUTS}
    return plain({**values, "dreamcheck": __version__})


def _table(evaluation: Evaluation) -> dict[str, Any]:
    """Success and final distance [cases][streams], with the cases' names."""
    out: dict[str, Any] = {"arms": {}}
    for name, arm in {"planner": evaluation.planner, **evaluation.controls}.items():
        ids, success = arm.table()
        out["cases"] = ids
        out["arms"][name] = {
            "success": success.astype(int).tolist(),
            "final_distance": arm.table("final_distance")[1].tolist(),
        }
    return out


def _shown_steps(explanation: Explanation) -> dict[str, Any] | None:
    film = explanation.film
    if film is None:
        return None
    block = int(explanation.protocol["block"])
    steps = film.steps(block)
    places = film.places(steps, block)
    return {
        "steps": steps,
        **{k: [None if p is None else p.tolist() for p in v] for k, v in places.items()},
    }


def _frames(explanation: Explanation, task: Any) -> dict[str, bytes]:
    shown = _shown_steps(explanation)
    if shown is None:
        return {}
    out = {}
    for strip in ("imagined", "executed", "swapped"):
        for step, place in zip(shown["steps"], shown[strip], strict=True):
            if place is not None:
                out[f"{strip}-{step}"] = _png(task, np.asarray(place))
    return out


def _png(task: Any, place: np.ndarray) -> bytes:
    from PIL import Image

    state = task.with_state(task.reset(None, [0]), np.clip(place, 0, 223)[None])
    side = FRAME if FRAME in task.sizes else None
    pixels = task.observe(state, ("pixels",), image_size=side)["pixels"][0]
    picture = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(
        picture, format="PNG", optimize=True
    )
    return picture.getvalue()
