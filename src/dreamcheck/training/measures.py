"""What a trained model is measured by before it ships: one-step and open-loop error, support.

Source: spec/protocol.md section 3.3 (C7, C8), spec/evidence.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.windows import Windows
from dreamcheck.errors import Abstention
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.readout import StateProbe
from dreamcheck.progress import Progress
from dreamcheck.streams import stream

MIN_BASELINE = 0.05
"""Under this mean displacement the latent hardly moves and a ratio to it means nothing (C7)."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of means with its bootstrap interval over episodes.

    error, baseline: mean L2 distances in latent units; ratio = error / baseline.
    """

    ratio: float
    low: float
    high: float
    error: float
    baseline: float
    windows: int
    episodes: int
    seed: int


def ratio_of_means(
    errors: np.ndarray,
    baselines: np.ndarray,
    groups: np.ndarray,
    *,
    seed: int = 0,
    resamples: int = 1000,
) -> Ratio:
    """mean(errors) / mean(baselines), resampled by group: windows of one episode are not fresh.

    Args:
        errors, baselines, groups: [N].

    Raises:
        Abstention: the baseline is under 0.05, or something is not finite.
    """
    baseline = float(baselines.mean())
    if not (np.isfinite(errors).all() and np.isfinite(baselines).all()) or baseline < MIN_BASELINE:
        raise Abstention(
            f"the latent's mean displacement is {baseline:.3g} (at least {MIN_BASELINE} is needed "
            "and everything finite): the encoder has collapsed or the frames do not move, so an "
            "error relative to a frozen world means nothing."
        )
    names, slot = np.unique(groups, return_inverse=True)
    sums = np.stack(
        [np.bincount(slot, w, minlength=len(names)) for w in (errors, baselines)], axis=1
    )
    draws = stream(seed, "bootstrap", "ratio").integers(len(names), size=(resamples, len(names)))
    totals = sums[draws].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975])
    return Ratio(
        ratio=float(errors.mean() / baseline),
        low=float(low),
        high=float(high),
        error=float(errors.mean()),
        baseline=baseline,
        windows=len(errors),
        episodes=len(names),
        seed=seed,
    )


def draw_windows(windows: Windows, count: int, *, seed: int, role: str) -> np.ndarray:
    """Up to ``count`` distinct clip numbers, sorted."""
    n = len(windows)
    return np.sort(stream(seed, role, n).choice(n, size=min(count, n), replace=False))


@dataclass(frozen=True)
class Forecasts:
    """Open-loop forecasts of N recorded windows, with what really followed.

    imagined, real: [N, K, D]. last: [N, D], the last observed latent.
    states: float64 [N, K, S] real; last_states [N, S]. episodes: int64 [N].
    """

    imagined: Tensor
    real: Tensor
    last: Tensor
    states: np.ndarray
    last_states: np.ndarray
    episodes: np.ndarray


def forecast(
    runner: Runner,
    windows: Windows,
    index: np.ndarray,
    *,
    history: int,
    progress: Progress | None = None,
) -> Forecasts:
    """Roll the model over recorded actions from ``history`` observed frames.

    Args:
        windows: clips of history + K frames.
    """
    imagined, real, last, states, last_states = [], [], [], [], []
    conventions = runner.model.conventions
    shown = progress or Progress(quiet=True)
    with shown.stage("forecasting", len(index), unit="windows") as stage:
        for start in range(0, len(index), runner.tile):
            clips = windows.take(index[start : start + runner.tile])
            assert clips.pixels is not None
            b, n = clips.pixels.shape[:2]
            latents = runner.encode(clips.pixels.reshape(b * n, *clips.pixels.shape[2:]))
            latents = latents.reshape(b, n, *latents.shape[1:])
            imagined.append(runner.rollout(latents[:, :history], conventions.blocks(clips.actions)))
            real.append(latents[:, history:])
            last.append(latents[:, history - 1])
            states.append(clips.states[:, history:])
            last_states.append(clips.states[:, history - 1])
            stage.advance(b)
    return Forecasts(
        imagined=torch.cat(imagined).flatten(2),
        real=torch.cat(real).flatten(2),
        last=torch.cat(last).flatten(1),
        states=np.concatenate(states),
        last_states=np.concatenate(last_states),
        episodes=windows.locate(index)[0],
    )


def step_ratios(forecasts: Forecasts, *, seed: int = 0) -> list[Ratio]:
    """Error of every forecast step over that of a world frozen at the last observed frame (C8)."""
    out = []
    for k in range(forecasts.real.shape[1]):
        error = (forecasts.imagined[:, k] - forecasts.real[:, k]).norm(dim=1).double().numpy()
        frozen = (forecasts.last - forecasts.real[:, k]).norm(dim=1).double().numpy()
        out.append(ratio_of_means(error, frozen, forecasts.episodes, seed=seed))
    return out


def step_position_errors(forecasts: Forecasts, probe: StateProbe) -> dict[str, list[float]]:
    """Mean Euclidean error of the probed state at every forecast step, in the columns' unit.

    "imagined": probe(imagined) to the true state. "encoded": probe(encoded real frame) to it, the
    probe's own error. "frozen": the last observed true state to it.
    """

    lengths = [i for i, c in enumerate(probe.columns) if c.unit == "px"] or slice(None)

    def mean_distance(states: np.ndarray) -> list[float]:
        apart = (states - forecasts.states)[..., lengths]
        return [float(v) for v in np.linalg.norm(apart, axis=2).mean(axis=0)]

    n, k, _ = forecasts.imagined.shape
    return {
        "imagined": mean_distance(
            probe.predict(forecasts.imagined.flatten(0, 1)).reshape(n, k, -1)
        ),
        "encoded": mean_distance(probe.predict(forecasts.real.flatten(0, 1)).reshape(n, k, -1)),
        "frozen": mean_distance(np.repeat(forecasts.last_states[:, None], k, axis=1)),
    }


def draw_frames(
    episodes: Episodes, subset: np.ndarray, count: int, *, seed: int, role: str
) -> tuple[np.ndarray, np.ndarray]:
    """Up to ``count`` distinct frames of the subset: (episode numbers, frame numbers), sorted."""
    lengths = np.asarray(episodes.lengths)[subset]
    total = int(lengths.sum())
    rows = np.sort(stream(seed, role, total).choice(total, size=min(count, total), replace=False))
    ends = np.cumsum(lengths)
    slot = np.searchsorted(ends, rows, side="right")
    return np.asarray(subset)[slot], rows - (ends[slot] - lengths[slot])


def encode_frames(
    runner: Runner, episodes: Episodes, where: np.ndarray, frames: np.ndarray
) -> tuple[Tensor, np.ndarray]:
    """Latents [N, D] and states float64 [N, S] of single frames, in the given order."""
    latents, states = [], []
    chunk = 4 * runner.tile
    for start in range(0, len(where), chunk):
        pairs = list(
            zip(
                where[start : start + chunk].tolist(),
                frames[start : start + chunk].tolist(),
                strict=True,
            )
        )
        pixels = np.concatenate([episodes.frames(e, [t]) for e, t in pairs])
        latents.append(runner.encode(pixels))
        states.append(np.stack([np.asarray(episodes.state(e)[t]) for e, t in pairs]))
    return torch.cat(latents).flatten(1), np.concatenate(states).astype(np.float64)


def effective_rank(latents: Tensor) -> float:
    """Participation ratio of the latents' covariance eigenvalues, between 1 and D (R4)."""
    values = torch.linalg.eigvalsh(torch.cov(latents.double().T)).clamp_min(0)
    return float(values.sum() ** 2 / (values**2).sum())
