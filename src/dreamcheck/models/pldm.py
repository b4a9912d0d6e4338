"""PLDM: the LeWM network with another training loss.

Encoder, heads, action embedder and predictor are LeWM's; a checkpoint is read by the same importer.
What differs is how collapse is kept away: variance and covariance terms over the batch and over
time, neighbouring latents drawn together, and an inverse-dynamics head that reads the action off
two latents (used in training only and saved with no checkpoint).

Source: arXiv:2502.14819; the weights are those of stable-worldmodel's public configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STD_EPS = 1e-4
DEFAULT_WEIGHTS: Mapping[str, float] = {
    "std": 18.0,
    "std_t": 0.7,
    "cov": 12.0,
    "cov_t": 0.0,
    "temp_align": 0.2,
    "idm": 0.0,
}
"""Weights of the terms beside the prediction loss."""


class InverseDynamics(nn.Module):
    """The action block between two latents: Linear, LayerNorm, GELU, Linear over [next, now]."""

    def __init__(self, latent_width: int, action_width: int, *, hidden: int = 512) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * latent_width, hidden),
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Linear(hidden, action_width),
        )

    def forward(self, latents: Tensor) -> Tensor:
        """[B, T, D] -> blocks [B, T - 1, A], the one that leaves each latent but the last."""
        out: Tensor = self.net(torch.cat([latents[:, 1:], latents[:, :-1]], dim=-1))
        return out


def _std_loss(z: Tensor) -> Tensor:
    """How far deviations over the second axis stay below 1. z [G, N, D], centred."""
    std = (z.var(dim=1) + STD_EPS).sqrt()
    return F.relu(1 - std).mean()


def _cov_loss(z: Tensor, count: int) -> Tensor:
    """Mean squared off-diagonal covariance over the second axis. z [G, N, D], centred."""
    d = z.shape[-1]
    cov = z.transpose(1, 2) @ z / (count - 1)
    off = cov.square().sum(dim=(1, 2)) - cov.diagonal(dim1=1, dim2=2).square().sum(dim=1)
    return (off / (d * d - d)).mean()


@dataclass(frozen=True, slots=True)
class PLDMTerms:
    """Each a scalar. std, cov: over the batch at each time; std_t, cov_t: over time in each row."""

    std: Tensor
    std_t: Tensor
    cov: Tensor
    cov_t: Tensor
    temp_align: Tensor
    idm: Tensor | None

    def weighted(self, weights: Mapping[str, float] = DEFAULT_WEIGHTS) -> Tensor:
        """The weighted sum, to which the prediction loss is added."""
        total = torch.zeros((), device=self.std.device)
        for name, weight in weights.items():
            term = getattr(self, name)
            if term is not None and weight:
                total = total + weight * term
        return total


def pldm_terms(
    latents: Tensor, *, actions: Tensor | None = None, inverse: InverseDynamics | None = None
) -> PLDMTerms:
    """PLDM's terms beside the prediction loss.

    Latents are centred over the batch at each time first, also for the terms over time.

    Args:
        latents: [B, T, D], at least 2 rows and 2 times.
        actions: [B, T - 1, A] model-ready blocks, with ``inverse`` for the inverse-dynamics term.
    """
    z = latents - latents.mean(dim=0, keepdim=True)
    b, t, _ = z.shape
    by_time = z.transpose(0, 1)
    idm = None
    if inverse is not None and actions is not None:
        idm = F.mse_loss(inverse(latents), actions.detach())
    return PLDMTerms(
        std=_std_loss(by_time),
        std_t=_std_loss(z),
        cov=_cov_loss(by_time, b),
        cov_t=_cov_loss(z, t),
        temp_align=F.mse_loss(latents[:, :-1], latents[:, 1:]),
        idm=idm,
    )
