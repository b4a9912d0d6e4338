"""Training augmentation: every frame of a clip, targets included, under noise of its own size.

Not the perturbation of a diagnosis (``imagination.perturbations``): that one has one severity and
touches only what is observed.

Source: spec/consistency.md section 4 ("Training augmentation is another thing").
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dreamcheck.models.conventions import Conventions
from dreamcheck.streams import stream


def noisy(
    frames: Tensor,
    conventions: Conventions,
    *,
    sigma_max: float,
    seed: int,
    role: str,
    identity: int,
) -> Tensor:
    """Normalised frames plus Gaussian noise, a fresh sigma ~ U(0, sigma_max) for every frame.

    sigma is in display units on [0, 1]; the noise is added as sigma / s_c in the normalised space
    and never clipped. ``sigma_max`` 0 returns the frames themselves.

    Args:
        frames: float32 [B, n, 3, s, s], normalised by ``conventions``.
        role, identity: with the seed they name the stream, so that a resumed run draws the same.

    Returns:
        float32, the shape of ``frames``.
    """
    if sigma_max == 0:
        return frames
    draws = stream(seed, role, identity)
    sigma = draws.uniform(0.0, sigma_max, size=frames.shape[:2]).astype(np.float32)
    # A torch generator fills a batch of pictures ten times as fast as numpy's.
    generator = torch.Generator().manual_seed(int(draws.integers(2**62)))
    noise = torch.randn(frames.shape, generator=generator).to(frames.device)
    std = torch.tensor(conventions.pixel_std, device=frames.device)[:, None, None]
    size = torch.from_numpy(sigma).to(frames.device)[:, :, None, None, None]
    # pixel_scale maps stored levels to the units of pixel_std; 255 levels are one display unit.
    return frames + noise * size * (255.0 * conventions.pixel_scale / std)
