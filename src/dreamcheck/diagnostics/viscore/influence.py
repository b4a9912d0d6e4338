"""Influence: how much of the future the actions decide, above the noise floor of the horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from dreamcheck.diagnostics.viscore.bank import LatentBank
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.rollouts import Forecaster, windows
from dreamcheck.errors import Abstention

TAU_NATS = 82.0
NUM_ANCHORS = 32
NUM_PERTURBATIONS = 64
ANCHOR_STRIDE = 4
MAX_WINDOWS = 4000
DENSE_WIDTH = 4096
"""Widest latent whose covariances are formed densely; above it the Gram form is used."""
MEMORY_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Capacity:
    """What influence is made of.

    nats: m_emp, ½ log det(I + N⁻¹S) against the horizon-consistent noise.
    nats_one_step: the same against the raw one-step error (a diagnostic).
    spectrum: λ, largest first, of N^(-1/2) S N^(-1/2); at most rank(S) of them in the Gram form.
    num_responses, num_residuals: rows behind S and E.
    form: "dense" or "gram".
    """

    nats: float
    nats_one_step: float
    spectrum: tuple[float, ...]
    num_anchors: int
    num_responses: int
    num_residuals: int
    form: str


def anchor_rows(
    probe: Probe, *, history: int, horizon: int, limit: int, rng: np.random.Generator
) -> np.ndarray:
    """Rows that rollouts start from, in drawing order.

    Raises:
        Abstention: no episode is long enough, or every candidate meets a NaN action.

    Source: spec/viscore.md section 5.1.
    """
    candidates = [
        t
        for a, b in probe.episodes
        if b - a >= history + horizon
        for t in range(a + history - 1, b - horizon, ANCHOR_STRIDE)
        if probe.has_action[t : t + horizon].all()
    ]
    if not candidates:
        raise Abstention(
            f"no row has {history - 1} rows before it and {horizon} rows with recorded actions "
            f"after it: the longest episode has {int(np.diff(probe.ep_ptr).max())} rows"
        )
    pool = np.asarray(candidates, dtype=np.int64)
    return pool[rng.choice(len(pool), min(limit, len(pool)), replace=False)]


def perturbations(
    probe: Probe, *, horizon: int, rng: np.random.Generator, count: int = NUM_PERTURBATIONS
) -> np.ndarray:
    """Action perturbations float32 [count, H, A], shaped by the recorded actions' covariance.

    Source: spec/viscore.md section 5.2.
    """
    known = probe.normalized_blocks[probe.has_action].astype(np.float64)
    sigma = np.atleast_2d(np.cov(known, rowvar=False))
    sigma = 0.9 * sigma + 0.1 * np.diag(np.diag(sigma))
    factor = np.linalg.cholesky(sigma + 1e-6 * np.eye(len(sigma)))
    noise = rng.standard_normal((count, horizon, len(sigma)))
    return (noise @ factor.T).astype(np.float32)


def action_responses(
    probe: Probe, bank: LatentBank, forecaster: Forecaster, *, horizon: int
) -> tuple[np.ndarray, int]:
    """Terminal displacements [M · anchors, P], perturbation-major, and the number of anchors.

    All perturbations of all anchors run in one stream of full batches.

    Source: spec/viscore.md section 5.4.
    """
    rng = np.random.default_rng(0)
    history = forecaster.model.history_max
    anchors = anchor_rows(probe, history=history, horizon=horizon, limit=NUM_ANCHORS, rng=rng)
    shifts = perturbations(probe, horizon=horizon, rng=rng)
    plan = windows(probe.normalized_blocks, anchors, horizon)
    # Row 0 of every anchor is the unperturbed plan; then perturbation-major.
    blocks = np.concatenate([plan[None], plan[None] + shifts[:, None]])
    count = len(anchors)
    first = bank.latents[torch.from_numpy(anchors)].repeat(
        len(blocks), *([1] * (bank.latents.ndim - 1))
    )
    flat = torch.from_numpy(blocks.reshape(-1, *blocks.shape[2:]))
    ends = forecaster.terminal(first, flat).numpy().reshape(len(blocks), count, -1)
    return (ends[1:] - ends[0]).reshape((len(blocks) - 1) * count, -1), count


def residual_windows(probe: Probe, *, history: int) -> np.ndarray:
    """First rows of the windows of HS latents with a row after them and no NaN among their blocks.

    Episodes in order; stops after the episode in which the count exceeds 4000.

    Raises:
        Abstention: fewer than two windows, so no covariance.

    Source: spec/viscore.md section 5.5.
    """
    starts: list[int] = []
    for a, b in probe.episodes:
        starts += [t for t in range(a, b - history) if probe.has_action[t : t + history].all()]
        if len(starts) > MAX_WINDOWS:
            break
    if len(starts) < 2:
        raise Abstention(
            f"{len(starts)} window(s) of {history} rows with recorded actions and a row after "
            "them; the one-step error needs at least 2"
        )
    return np.asarray(starts, dtype=np.int64)


def one_step_residuals(
    probe: Probe, bank: LatentBank, forecaster: Forecaster, starts: np.ndarray
) -> np.ndarray:
    """predict − z after the windows that begin at ``starts``, [n, P].

    Source: spec/viscore.md section 5.5.
    """
    history = forecaster.model.history_max
    context = bank.latents[torch.from_numpy(starts)[:, None] + torch.arange(history)]
    blocks = torch.from_numpy(windows(probe.normalized_blocks, starts, history))
    predicted = forecaster.run(context, blocks, lambda z, _: forecaster.points(z[:, 0])).numpy()
    return predicted - bank.points[starts + history]


def noise_covariance(residuals: np.ndarray) -> np.ndarray:
    """E: covariance of the residuals, shrunk toward its diagonal, with a small ridge.

    Source: spec/viscore.md section 5.5.
    """
    e = np.atleast_2d(np.cov(residuals.astype(np.float64), rowvar=False))
    e = 0.9 * e + 0.1 * np.diag(np.diag(e))
    return e + 1e-8 * (np.trace(e) / len(e)) * np.eye(len(e))


def capacity_dense(signal: np.ndarray, noise: np.ndarray) -> tuple[float, np.ndarray]:
    """½ Σ log(1 + λ) in nats, and λ (largest first) of N^(-1/2) S N^(-1/2).

    Eigenvalues of N are clipped below at 1e-12, λ at 0.

    Source: spec/viscore.md section 5.7.
    """
    values, vectors = np.linalg.eigh(noise)
    root = vectors * (1.0 / np.sqrt(np.clip(values, 1e-12, None)))
    whitened = root.T @ signal @ root
    lam = np.clip(np.linalg.eigvalsh((whitened + whitened.T) / 2), 0.0, None)[::-1]
    return float(0.5 * np.log1p(lam).sum()), lam


GRAM_CHUNK = 512
"""Columns of the samples that the Gram form holds in float64 at a time."""


def gram_memory_bytes(num_responses: int, num_residuals: int, width: int) -> int:
    """Most memory the Gram form holds: both sample matrices (float32, given), four matrices as
    large as the samples are many (float64), and slices of the samples. Measured in a test.
    """
    rows = num_responses + num_residuals
    return 4 * rows * width + 4 * 8 * rows * rows + 6 * 8 * rows * min(GRAM_CHUNK, width)


def capacity_gram(
    responses: np.ndarray, residuals: np.ndarray, *, scale: float, chunk: int = GRAM_CHUNK
) -> tuple[float, np.ndarray]:
    """``capacity_dense`` without a width × width matrix.

    N = scale · (0.9 RᵀR/(m−1) + diagonal) is a diagonal Δ plus U Uᵀ, and S = V Vᵀ, so that
    log det(N + S) − log det N = log det(I + [U V]ᵀ Δ⁻¹ [U V]) − log det(I + Uᵀ Δ⁻¹ U): matrices
    as large as the number of samples. Summed over slices of the width, so no copy of the samples
    in float64 exists.

    Args:
        responses: [n, P] and residuals: [m, P], not centred.
        scale: σ_roll² / tr E turns E into E_H; 1 leaves the one-step error.

    Source: spec/viscore.md section 5.7; the matrix determinant lemma.
    """
    n, width = responses.shape
    m = len(residuals)
    gram = np.zeros((m + n, m + n))
    diagonal = _residual_diagonal(residuals)
    ridge = 1e-8 * diagonal.sum() / width
    for start in range(0, width, chunk):
        part = slice(start, start + chunk)
        v = responses[:, part].astype(np.float64)
        u = residuals[:, part].astype(np.float64)
        v = (v - v.mean(axis=0)) / np.sqrt(n - 1)
        u = (u - u.mean(axis=0)) * np.sqrt(0.9 * scale / (m - 1))
        delta = scale * (0.1 * diagonal[part] + ridge)
        both = np.concatenate([u, v]) / np.sqrt(np.clip(delta, 1e-12, None))
        gram += both @ both.T
    base = np.linalg.cholesky(np.eye(m) + gram[:m, :m])
    # Schur complement: Vᵀ N⁻¹ V by Woodbury; its eigenvalues are the nonzero λ.
    half = np.linalg.solve(base, gram[:m, m:])
    inner = gram[m:, m:] - half.T @ half
    lam = np.clip(np.linalg.eigvalsh((inner + inner.T) / 2), 0.0, None)[::-1]
    return float(0.5 * np.log1p(lam).sum()), lam


def _residual_diagonal(residuals: np.ndarray) -> np.ndarray:
    """Diagonal of the residuals' covariance, float64, without a float64 copy of the residuals."""
    width = residuals.shape[1]
    return np.concatenate(
        [
            residuals[:, s : s + GRAM_CHUNK].astype(np.float64).var(axis=0, ddof=1)
            for s in range(0, width, GRAM_CHUNK)
        ]
    )


def capacity(
    responses: np.ndarray,
    residuals: np.ndarray,
    *,
    sigma_roll: float,
    num_anchors: int = 0,
    dense_width: int = DENSE_WIDTH,
    memory_bytes: int = MEMORY_BYTES,
) -> Capacity:
    """m_emp from the responses to actions and the one-step residuals.

    Raises:
        Abstention: the Gram form would need more than ``memory_bytes``.

    Source: spec/viscore.md sections 5.5-5.7.
    """
    n, width = responses.shape
    m = len(residuals)
    if not (np.isfinite(responses).all() and np.isfinite(residuals).all()):
        raise Abstention("a predicted latent is NaN or infinite, so no capacity can be formed")
    if width <= dense_width:
        e = noise_covariance(residuals)
        signal = np.atleast_2d(np.cov(responses.astype(np.float64), rowvar=False))
        scale = sigma_roll**2 / max(float(np.trace(e)), 1e-12)
        nats, spectrum = capacity_dense(signal, scale * e)
        one_step, _ = capacity_dense(signal, e)
        form = "dense"
    else:
        need = gram_memory_bytes(n, m, width)
        if need > memory_bytes:
            raise Abstention(
                f"latents of {width} numbers need {need / 2**30:.1f} GiB in the low-rank form, "
                f"above the bound of {memory_bytes / 2**30:.1f} GiB; raise the bound or declare a "
                "projection"
            )
        # tr(0.9 C + 0.1 diag C) = tr C, and the ridge adds 1e-8 of it.
        trace = float(_residual_diagonal(residuals).sum()) * (1 + 1e-8)
        scale = sigma_roll**2 / max(trace, 1e-12)
        nats, spectrum = capacity_gram(responses, residuals, scale=scale)
        one_step, _ = capacity_gram(responses, residuals, scale=1.0)
        form = "gram"
    return Capacity(
        nats=nats,
        nats_one_step=one_step,
        spectrum=tuple(float(v) for v in spectrum),
        num_anchors=num_anchors,
        num_responses=n,
        num_residuals=m,
        form=form,
    )


def influence(m_emp: float, *, tau: float = TAU_NATS) -> float:
    """min(m_emp / τ, 1); NaN when m_emp is not finite.

    Source: spec/viscore.md section 5.8.
    """
    return float(min(m_emp / tau, 1.0)) if np.isfinite(m_emp) else float("nan")
