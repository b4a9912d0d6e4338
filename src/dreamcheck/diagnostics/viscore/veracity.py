"""Veracity: how far the open-loop forecast strays, against the latent size of the tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import erf

from dreamcheck.diagnostics.viscore.bank import LatentBank
from dreamcheck.diagnostics.viscore.criteria import Criterion, pick
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.rollouts import Forecaster, windows

MAX_CLIPS = 512
CLIP_STRIDE = 3
MAX_PAIRS = 40_000
MAX_OFFSET = 5
MIN_PAIRS = 30


@dataclass(frozen=True)
class OpenLoop:
    """The open-loop error curve.

    nmse_curve: NMSE(k), k = 1 ... h_max blocks; empty without clips.
    nmse: NMSE at the diagnostic horizon.
    sigma_roll: latent units.
    num_clips: clips measured, of num_clips_available.
    """

    nmse_curve: tuple[float, ...]
    nmse: float
    sigma_roll: float
    num_clips: int
    num_clips_available: int
    reason: str = ""


@dataclass(frozen=True)
class Tolerance:
    """The latent image of the success tolerance.

    d_tol: median latent distance of the pairs kept; NaN with a reason under 30 pairs.
    num_candidates: row pairs looked at; num_pairs: pairs in the shell that were used.
    nuisance_filtered: whether the quiet quarter of the shell was kept.
    """

    d_tol: float
    num_candidates: int
    num_pairs: int
    nuisance_filtered: bool
    reason: str = ""


def clip_starts(probe: Probe, *, history: int, curve: int) -> np.ndarray:
    """First rows of the clips, in measuring order, capped at 512; and how many there were.

    Source: spec/viscore.md section 4, "Clips".
    """
    length = history + curve
    starts = [
        t
        for a, b in probe.episodes
        for t in range(a, b - length + 1, CLIP_STRIDE)
        if probe.has_action[t : t + length].all()
    ]
    return np.asarray(starts, dtype=np.int64)


def open_loop_error(
    probe: Probe, bank: LatentBank, forecaster: Forecaster, *, horizon: int, curve: int
) -> OpenLoop:
    """The open-loop error over recorded actions, normalised by the bank's total variance.

    Source: spec/viscore.md section 4, "Open loop".
    """
    history = forecaster.model.history_max
    starts = clip_starts(probe, history=history, curve=curve)
    available = len(starts)
    nan = float("nan")
    if available == 0:
        longest = int(np.diff(probe.ep_ptr).max())
        return OpenLoop(
            (),
            nan,
            nan,
            0,
            0,
            f"no clip of {history} + {curve} rows without a NaN action: the longest episode has "
            f"{longest} rows of {probe.frameskip} steps",
        )
    if available > MAX_CLIPS:
        keep = np.random.default_rng(0).choice(available, MAX_CLIPS, replace=False)
        starts = starts[keep]
    rows = torch.from_numpy(starts)
    context = bank.latents[rows[:, None] + torch.arange(history)]
    # Step k reads the blocks ending at clip index HS - 2 + k; the last one is HS + h_max - 2.
    blocks = torch.from_numpy(windows(probe.normalized_blocks, starts, history + curve - 1))
    targets = torch.from_numpy(windows(bank.points, starts + history, curve))

    def squared_error(future: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        b, k = future.shape[:2]
        points = forecaster.points(future.reshape(b * k, *future.shape[2:])).reshape(b, k, -1)
        return ((points.cpu() - targets[index]) ** 2).sum(dim=2)

    errors = forecaster.run(context, blocks, squared_error).double().mean(dim=0).numpy()
    trace = bank.covariance_trace
    nmse_curve = errors / (trace + 1e-12)
    nmse = float(nmse_curve[horizon - 1])
    return OpenLoop(
        nmse_curve=tuple(float(v) for v in nmse_curve),
        nmse=nmse,
        sigma_roll=float(np.sqrt(max(nmse, 1e-9) * trace)) if np.isfinite(nmse) else nan,
        num_clips=len(starts),
        num_clips_available=available,
        reason="" if np.isfinite(nmse) else "the open-loop forecast is not finite",
    )


def tolerance_in_latent(probe: Probe, bank: LatentBank, criterion: Criterion) -> Tolerance:
    """Median latent distance of pairs about one tolerance apart.

    Source: spec/viscore.md section 4, "d_tol".
    """
    graded = pick(probe.columns, criterion.graded, criterion=criterion, what="graded")
    nuisance = pick(probe.columns, criterion.nuisance, criterion=criterion, what="nuisance")
    first, second = _pairs(probe)
    candidates = len(first)
    if candidates > MAX_PAIRS:
        keep = np.random.default_rng(0).choice(candidates, MAX_PAIRS, replace=False)
        first, second = first[keep], second[keep]
    state = probe.state.astype(np.float64)
    distance = criterion.distance(state[second][:, graded] - state[first][:, graded])
    inside = (distance > 0.8 * criterion.tolerance) & (distance < 1.2 * criterion.tolerance)
    first, second = first[inside], second[inside]
    if len(first) < MIN_PAIRS:
        return Tolerance(
            float("nan"),
            candidates,
            len(first),
            False,
            f"only {len(first)} of {candidates} row pairs lie between 0.8 and 1.2 tolerances "
            f"({criterion.tolerance:g} {criterion.unit}) apart; at least {MIN_PAIRS} are needed",
        )
    filtered = False
    if nuisance:
        shift = state[second][:, nuisance] - state[first][:, nuisance]
        size = np.sqrt((shift**2).sum(axis=1))
        quiet = size < np.quantile(size, 0.25)
        if quiet.sum() >= MIN_PAIRS:
            first, second, filtered = first[quiet], second[quiet], True
    gap = np.linalg.norm(bank.points[first] - bank.points[second], axis=1)
    return Tolerance(float(np.median(gap)), candidates, len(first), filtered)


def _pairs(probe: Probe) -> tuple[np.ndarray, np.ndarray]:
    """Row pairs one to five rows apart inside an episode: by episode, then offset, then row."""
    first, second = [], []
    for a, b in probe.episodes:
        if b - a < 3:
            continue
        for offset in range(1, MAX_OFFSET + 1):
            i = np.arange(a, b - offset)
            first.append(i)
            second.append(i + offset)
    if not first:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(first), np.concatenate(second)


def veracity(d_tol: float, sigma_roll: float) -> float:
    """erf((d_tol / 2) / (√2 σ_roll + 1e-12)); NaN when either is not finite.

    The share of a Gaussian rollout error that stays inside half the tolerance.

    Source: spec/viscore.md section 4, "Value".
    """
    if not (np.isfinite(d_tol) and np.isfinite(sigma_roll)):
        return float("nan")
    return float(erf((d_tol / 2) / (np.sqrt(2) * sigma_roll + 1e-12)))
