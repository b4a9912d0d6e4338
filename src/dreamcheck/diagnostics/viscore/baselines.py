"""Cheap numbers on the same bank that the score must beat."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamcheck.diagnostics.viscore.bank import LatentBank
from dreamcheck.diagnostics.viscore.criteria import Criterion, pick
from dreamcheck.diagnostics.viscore.probe import Probe


@dataclass(frozen=True)
class Baselines:
    """One number per baseline; NaN where it cannot be measured, with a reason.

    straightness: mean cosine between consecutive latent steps.
    probe_r2: held-out R² of a ridge probe on physical state; probe_r2_mlp: of a two-layer net.
    empowerment_nats: raw m_emp.
    effective_rank: participation ratio of the bank's covariance.
    embedding_spread: mean distance of a latent to the bank's mean, latent units.
    one_step_to_frozen: one-step error over the error of predicting no change (below 1 is better).
    epoch, training_loss: the two that cost nothing, when the caller knows them.
    """

    straightness: float
    probe_r2: float
    probe_r2_mlp: float
    empowerment_nats: float
    effective_rank: float
    embedding_spread: float
    one_step_to_frozen: float
    epoch: float = float("nan")
    training_loss: float = float("nan")
    reasons: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baselines:
        """What ``to_dict`` wrote: None is NaN again."""
        made: dict[str, Any] = {k: float("nan") if v is None else v for k, v in values.items()}
        made["reasons"] = tuple(values["reasons"].items())
        return cls(**made)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "reasons": dict(self.reasons)}


def straightness(probe: Probe, bank: LatentBank) -> float:
    """Mean cosine between z_t − z_{t−1} and z_{t+1} − z_t over all steps of all episodes.

    Steps with a norm of 1e-8 or less on either side are left out; NaN when none is left.

    Source: spec/viscore.md section 8.
    """
    z = bank.points.astype(np.float64)
    total, count = 0.0, 0
    for a, b in probe.episodes:
        if b - a < 3:
            continue
        step = np.diff(z[a:b], axis=0)
        size = np.linalg.norm(step, axis=1)
        kept = (size[:-1] > 1e-8) & (size[1:] > 1e-8)
        dot = (step[:-1] * step[1:]).sum(axis=1)
        total += float((dot[kept] / (size[:-1] * size[1:])[kept]).sum())
        count += int(kept.sum())
    return total / count if count else float("nan")


def probe_targets(probe: Probe, criterion: Criterion) -> np.ndarray:
    """Physical targets [F, K]; an angle becomes its cosine and sine, after the other columns."""
    where = pick(probe.columns, criterion.targets, criterion=criterion, what="probe target")
    plain, turned = [], []
    for name, column in zip(criterion.targets, where, strict=True):
        value = probe.state[:, column].astype(np.float64)
        if name in criterion.angles:
            turned += [np.cos(value), np.sin(value)]
        else:
            plain.append(value)
    return np.stack([*plain, *turned], axis=1)


def probe_split(probe: Probe, *, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out rows: permuted episodes, the first ⌊0.8 n⌋ train.

    Source: spec/viscore.md section 8.
    """
    episodes = probe.episodes
    order = np.random.default_rng(seed).permutation(len(episodes))
    cut = int(0.8 * len(episodes))

    def rows(index: np.ndarray) -> np.ndarray:
        parts = [np.arange(*episodes[e]) for e in index]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    return rows(order[:cut]), rows(order[cut:])


def _standardized(y: np.ndarray, train: np.ndarray) -> np.ndarray:
    return (y - y[train].mean(axis=0)) / (y[train].std(axis=0) + 1e-8)


def r_squared(target: np.ndarray, predicted: np.ndarray) -> float:
    """R² per dimension around the held-out mean, averaged; NaN when a dimension is constant."""
    residual = ((target - predicted) ** 2).sum(axis=0)
    spread = ((target - target.mean(axis=0)) ** 2).sum(axis=0)
    if (spread <= 0).any():
        return float("nan")
    return float((1.0 - residual / spread).mean())


def ridge_probe_r2(probe: Probe, bank: LatentBank, criterion: Criterion) -> float:
    """Held-out R² of a ridge map from latents to physical state.

    Source: spec/viscore.md section 8.
    """
    train, test = probe_split(probe)
    if not len(train) or not len(test):
        return float("nan")
    y = _standardized(probe_targets(probe, criterion), train)
    x = np.concatenate([bank.points.astype(np.float64), np.ones((len(y), 1))], axis=1)
    penalty = 0.01 * len(train)
    if x.shape[1] <= len(train):
        gram = x[train].T @ x[train] + penalty * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x[train].T @ y[train])
    else:
        # The same solution, XᵀK with K = (XXᵀ + c I)⁻¹Y: the smaller of the two systems.
        gram = x[train] @ x[train].T + penalty * np.eye(len(train))
        weights = x[train].T @ np.linalg.solve(gram, y[train])
    return r_squared(y[test], x[test] @ weights)


def network_probe_r2(
    probe: Probe,
    bank: LatentBank,
    criterion: Criterion,
    *,
    hidden: int = 128,
    num_steps: int = 400,
    seed: int = 1,
) -> float:
    """Held-out R² of a two-layer network from latents to physical state.

    Protocol (ours): the split and targets of the ridge probe; inputs standardised by the training
    rows; Linear, ReLU, Linear with ``hidden`` units; full-batch Adam, learning rate 3e-3, weight
    decay 1e-4, ``num_steps`` steps, no early stopping; initial weights from one seeded stream.
    """
    import torch

    train, test = probe_split(probe)
    if not len(train) or not len(test):
        return float("nan")
    y = _standardized(probe_targets(probe, criterion), train)
    x = _standardized(bank.points.astype(np.float64), train)
    rng = np.random.default_rng([seed, 128])

    def weight(rows: int, columns: int) -> torch.Tensor:
        values = rng.standard_normal((rows, columns)) * np.sqrt(2.0 / rows)
        return torch.tensor(values, dtype=torch.float32, requires_grad=True)

    def bias(columns: int) -> torch.Tensor:
        return torch.zeros(columns, requires_grad=True)

    w1, b1 = weight(x.shape[1], hidden), bias(hidden)
    w2, b2 = weight(hidden, y.shape[1]), bias(y.shape[1])
    xt = torch.tensor(x, dtype=torch.float32)
    yt = torch.tensor(y[train], dtype=torch.float32)

    def forward(rows: np.ndarray) -> torch.Tensor:
        return torch.relu(xt[torch.from_numpy(rows)] @ w1 + b1) @ w2 + b2

    optimizer = torch.optim.Adam([w1, b1, w2, b2], lr=3e-3, weight_decay=1e-4)
    with torch.enable_grad():
        for _ in range(num_steps):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.mse_loss(forward(train), yt).backward()
            optimizer.step()
    with torch.no_grad():
        predicted = forward(test).double().numpy()
    return r_squared(y[test], predicted)


def embedding_spread(bank: LatentBank) -> float:
    """Mean Euclidean distance of a latent to the bank's mean, in latent units."""
    z = bank.points.astype(np.float64)
    return float(np.linalg.norm(z - z.mean(axis=0), axis=1).mean())


def one_step_to_frozen(residuals: np.ndarray, steps: np.ndarray) -> float:
    """Mean squared one-step error over that of predicting no change, on the same windows.

    Args:
        residuals: predict − z, [n, P].
        steps: z[t] − z[t−1] of the same windows, [n, P].
    """
    frozen_error = float((steps.astype(np.float64) ** 2).sum(axis=1).mean())
    error = float((residuals.astype(np.float64) ** 2).sum(axis=1).mean())
    return error / frozen_error if frozen_error > 0 else float("nan")
