"""Scoring recorded answers: latents and predictions that some program computed, whatever it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.digest import digest_arrays, plain
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.exchange.queries import Queries, load_arrays, read_queries
from dreamcheck.models.inspecting import StepError, Verdict, verdict_of
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.models.readout import ColumnError
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Column

MIN_PROBE_FRAMES = 20


@dataclass(frozen=True)
class RecordedAnswers:
    """What a model answered; it cannot be asked anything else.

    latents: float32 [F, ...]; predictions: float32 [Q, K, ...].
    identity: digest of the answers and of the questions they answer.
    """

    latents: np.ndarray
    predictions: np.ndarray
    identity: str

    @property
    def latent(self) -> LatentSpec:
        """Shape of one latent."""
        return LatentSpec(shape=tuple(self.latents.shape[1:]))


@dataclass(frozen=True)
class AnswerReport:
    """Scores of recorded answers, as ``inspect`` gives them for a model.

    control: one-step error on the rows with another episode's actions.
    """

    identity: str
    open_loop: tuple[StepError, ...]
    control: StepError | None
    probes: tuple[ColumnError, ...]
    verdict: Verdict
    why: str
    skipped: tuple[str, ...]
    manifest: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""

        def step(s: StepError) -> dict[str, Any]:
            return {k: plain(getattr(s, k)) for k in StepError.__slots__}

        return {
            "identity": self.identity,
            "open_loop": [step(s) for s in self.open_loop],
            "control": step(self.control) if self.control else None,
            "probes": [
                {"name": e.name, "unit": e.unit, "r2": plain(e.r2), "mae": plain(e.mae)}
                for e in self.probes
            ],
            "verdict": self.verdict,
            "why": self.why,
            "skipped": list(self.skipped),
            "manifest": dict(self.manifest),
        }

    def lines(self) -> list[str]:
        """Plain text for a console."""
        out = [f"recorded answers {self.identity[:12]}"]
        for s in self.open_loop:
            out.append(
                f"  step {s.step}: {s.ratio:.3f} of a frozen world's error "
                f"[{s.low:.3f}, {s.high:.3f}] ({s.windows} windows of {s.episodes} episodes)"
            )
        if self.control is not None:
            out.append(f"  step 1 with another episode's actions: {self.control.ratio:.3f}")
        for e in self.probes:
            unit = " (unit not declared)" if e.unit in ("", "?") else f" {e.unit}"
            out.append(f"  probe {e.name}: R2 {e.r2:.3f}, mean error {e.mae:.4g}{unit}, held out")
        out += [f"  skipped: {s}" for s in self.skipped]
        out.append(f"verdict: {self.verdict} - {self.why}")
        return out


def read_answers(queries: Queries, path: str | Path) -> RecordedAnswers:
    """Answers that belong to these questions, whole and finite.

    Raises:
        UsageError: other questions, wrong shapes, or numbers that are not finite; each with the
            array, the value and what was expected.
    """
    path = Path(path)
    arrays = load_arrays(path, ("latents", "predictions", "queries"))
    asked = str(arrays["queries"].reshape(-1)[0]) if arrays["queries"].size else ""
    if asked != queries.digest:
        raise UsageError(
            f"{path} answers the questions {asked[:12] or '(none)'}, not {queries.digest[:12]}. Run "
            "the script on this folder's queries.npz and copy its `digest` into `queries`."
        )
    latents, predictions = arrays["latents"], arrays["predictions"]
    rows, horizon = queries.future.shape
    if latents.ndim < 2 or len(latents) != len(queries.frames):
        raise UsageError(
            f"{path}: latents have shape {latents.shape}; expected [{len(queries.frames)}, ...], "
            "one per frame of queries.npz, in its order."
        )
    wanted = (rows, horizon, *latents.shape[1:])
    if predictions.shape != wanted:
        raise UsageError(
            f"{path}: predictions have shape {predictions.shape}; expected {wanted}: one latent "
            "per row and forecast step, of the latents' own shape."
        )
    for name, values in (("latents", latents), ("predictions", predictions)):
        if values.dtype.kind != "f":
            raise UsageError(f"{path}: {name} are {values.dtype}, not floating point.")
        if not np.isfinite(values).all():
            first = int(
                np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0]
            )
            raise UsageError(
                f"{path}: {name}[{first}] holds NaN or infinity. Find out why before scoring; a "
                "failed answer is not a large error."
            )
    return RecordedAnswers(
        latents=latents.astype(np.float32),
        predictions=predictions.astype(np.float32),
        identity=digest_arrays(
            {"latents": latents, "predictions": predictions, "queries": np.array(asked)}
        ),
    )


def _steps(
    queries: Queries, answers: RecordedAnswers, rows: np.ndarray, horizon: int, seed: int
) -> tuple[StepError, ...]:
    from dreamcheck.training.measures import ratio_of_means

    flat = answers.latents.reshape(len(answers.latents), -1).astype(np.float64)
    predicted = answers.predictions.reshape(*answers.predictions.shape[:2], -1).astype(np.float64)
    last = flat[queries.history[rows, -1]]
    out = []
    for k in range(horizon):
        real = flat[queries.future[rows, k]]
        r = ratio_of_means(
            np.linalg.norm(predicted[rows, k] - real, axis=1),
            np.linalg.norm(last - real, axis=1),
            queries.episodes[rows],
            seed=seed,
        )
        out.append(
            StepError(k + 1, r.ratio, r.low, r.high, r.error, r.baseline, r.windows, r.episodes)
        )
    return tuple(out)


def _probes(
    queries: Queries, answers: RecordedAnswers, seed: int, skipped: list[str]
) -> tuple[ColumnError, ...]:
    from dreamcheck.models.inspecting import fit_and_measure

    columns = tuple(Column(n, u) for n, u in queries.manifest["columns"])
    if not columns:
        skipped.append("state probes: the data had no state columns; export with a mapping")
        return ()
    known = ~np.isnan(queries.states).any(axis=1)
    owners = np.unique(queries.frame_episodes[known])
    held = set(stream(seed, "split", len(owners)).permutation(owners)[: max(1, len(owners) // 4)])
    heldout = known & np.isin(queries.frame_episodes, list(held))
    train = known & ~heldout
    if min(train.sum(), heldout.sum()) < MIN_PROBE_FRAMES:
        skipped.append(
            f"state probes: {int(train.sum())} and {int(heldout.sum())} frames of disjoint "
            f"episodes; {MIN_PROBE_FRAMES} of each are needed: export more windows"
        )
        return ()
    flat = torch.from_numpy(answers.latents.reshape(len(answers.latents), -1))
    return fit_and_measure(
        flat[torch.from_numpy(train)],
        queries.states[train],
        flat[torch.from_numpy(heldout)],
        queries.states[heldout],
        columns=columns,
        model_identity=answers.identity,
        seed=seed,
    )


def import_answers(folder: str | Path, answers: str | Path, *, seed: int = 0) -> AnswerReport:
    """Score answers to an exported folder of questions.

    Args:
        folder: what ``export_queries`` wrote.
        answers: the NPZ that the user's script wrote.
        seed: of the bootstrap and of the probe's split by episode.

    Raises:
        UsageError: answers that cannot belong to these questions.
        EvidenceError: the questions were changed after the export.

    Source: spec/protocol.md C7, C8, R1.
    """
    queries = read_queries(folder)
    given = read_answers(queries, answers)
    skipped: list[str] = []
    real = np.flatnonzero(~queries.control)
    other = np.flatnonzero(queries.control)
    steps: tuple[StepError, ...] = ()
    control: StepError | None = None
    try:
        steps = _steps(queries, given, real, queries.future.shape[1], seed)
        if len(other):
            control = _steps(queries, given, other, 1, seed)[0]
        else:
            skipped.append("another episode's actions: the data hold one episode")
    except Abstention as reason:
        skipped.append(f"one-step and open-loop error: {reason}")
    probes = _probes(queries, given, seed, skipped)
    skipped.append(
        "VIScore, planning, discovery: recorded answers cannot be asked again; they need an adapter"
    )
    verdict, why = verdict_of(steps[0] if steps else None, control)
    if not steps:
        why = "no forecast could be scored; see what was skipped"
    return AnswerReport(
        identity=given.identity,
        open_loop=steps,
        control=control,
        probes=probes,
        verdict=verdict,
        why=why,
        skipped=tuple(skipped),
        manifest=queries.manifest,
    )
