"""What a latent world model is trained with: the prediction loss, SIGReg and VISReg.

Both regularisers keep the latents of a batch near a standard normal distribution, so that
predicting everything as one point does not pay. Statistics are over the batch, separately for each
time index.

Source: spec/viscore.md section 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

VISREG_MIN_SIGMA = 1e-6


def unit_directions(raw: Tensor) -> Tensor:
    """Columns of a Gaussian matrix [D, K] scaled to unit length: random directions in D space."""
    return raw / raw.norm(dim=0, keepdim=True)


def prediction_loss(predicted: Tensor, latents: Tensor) -> Tensor:
    """Mean squared error between predictions and the latents one step later.

    No stop-gradient on the target: encoder and predictor move towards each other.

    Args:
        predicted: [B, h, D], position i predicts latent i + 1.
        latents: [B, h + 1, D].
    """
    return F.mse_loss(predicted.float(), latents[:, 1:].float())


def sigreg(latents: Tensor, directions: Tensor, *, knots: int = 17) -> Tensor:
    """Distance of the batch's characteristic function from the standard normal one.

    Args:
        latents: [T, B, D], time first; at least 2 rows.
        directions: [D, K] unit columns, fresh at every call (``unit_directions``).
        knots: equally spaced points on [0, 3], at least 2.

    Returns:
        scalar, mean over directions and time.
    """
    latents, directions = latents.float(), directions.float()
    t = torch.linspace(0.0, 3.0, knots, device=latents.device)
    phi = torch.exp(-t * t / 2)
    weights = 2.0 * (3.0 / (knots - 1)) * phi
    weights[0] /= 2
    weights[-1] /= 2
    angles = (latents @ directions).unsqueeze(-1) * t  # [T, B, K, knots]
    real = angles.cos().mean(dim=1) - phi
    imaginary = angles.sin().mean(dim=1)
    statistic = latents.shape[1] * ((real * real + imaginary * imaginary) @ weights)
    return statistic.mean()


@dataclass(frozen=True, slots=True)
class VISRegTerms:
    """VISReg's three parts and their weighted sum, each a scalar."""

    center: Tensor
    scale: Tensor
    shape: Tensor
    loss: Tensor


def visreg(
    latents: Tensor,
    directions: Tensor,
    *,
    scale_weight: float = 1.0,
    shape_weight: float = 1.0,
    center_weight: float = 1.0,
) -> VISRegTerms:
    """Means to 0, deviations to 1, and sorted projections to the normal quantiles.

    The shape term sees latents divided by their deviation without a gradient through it, so it
    cannot trade against the scale term. Even for perfectly Gaussian data it has a floor that falls
    with the batch size: values at different batch sizes cannot be compared.

    Args:
        latents: [T, B, D], time first; at least 2 rows.
        directions: [D, K] unit columns, fresh at every call.
    """
    latents, directions = latents.float(), directions.float()
    batch = latents.shape[1]
    centred = latents - latents.mean(dim=1, keepdim=True)
    # The Euclidean norm has no gradient at 0; a constant dimension must give 0, not NaN.
    sigma = centred.norm(dim=1) / math.sqrt(batch)
    sigma = sigma.clamp_min(VISREG_MIN_SIGMA)
    center = latents.mean(dim=1).square().mean()
    scale = (sigma - 1).square().mean()
    ranks = torch.arange(1, batch + 1, device=latents.device, dtype=torch.float32)
    quantiles = math.sqrt(2.0) * torch.erfinv(2 * ranks / (batch + 1) - 1)
    projected = (centred / sigma.detach().unsqueeze(1)) @ directions
    shape = (projected.sort(dim=1).values - quantiles[:, None]).square().mean()
    loss = scale_weight * scale + shape_weight * shape + center_weight * center
    return VISRegTerms(center=center, scale=scale, shape=shape, loss=loss)
