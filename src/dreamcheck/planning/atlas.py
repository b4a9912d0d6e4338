"""Latents by position: what the encoder says of every place, so that search need not render.

A TwoRoom picture depends on the agent's position alone (the target is not drawn and the layout is
fixed), so the encoder over the arena is a smooth map from two numbers. It is sampled on a grid and
interpolated; the error is measured at random places against exact encodings and the grid is made
finer until the error is small, else the measurement abstains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dreamcheck.errors import Abstention
from dreamcheck.imagination.runner import Runner
from dreamcheck.streams import stream

LOW, HIGH = 14.0, 210.0
TOLERANCE = 0.1
"""Largest 95th percentile of the interpolation error, as a share of what one step changes."""


@dataclass(frozen=True, eq=False)
class LatentAtlas:
    """Latents on a grid of agent positions.

    grid: [1, D, rows (y), columns (x)]. error: 95th percentile of the interpolation error over
    256 random places, divided by the median change of the latent over 5 px.
    """

    grid: Tensor
    spacing: float
    error: float
    num_frames: int

    def latents(self, positions: np.ndarray) -> Tensor:
        """[..., 2] px -> [..., D], bicubic between grid points."""
        lead = positions.shape[:-1]
        flat = torch.from_numpy(np.asarray(positions, np.float32).reshape(-1, 2))
        place = (flat - LOW) / (HIGH - LOW) * 2 - 1
        found = F.grid_sample(
            self.grid, place[None, None], mode="bicubic", padding_mode="border", align_corners=True
        )
        return found[0, :, 0].T.reshape(*lead, -1)

    def nearest(self, latents: Tensor) -> np.ndarray:
        """The grid position whose latent is nearest, [N, D] -> [N, 2] px: a proxy, no decoding."""
        flat = self.grid[0].flatten(1).T
        index = torch.cdist(latents.flatten(1), flat).argmin(dim=1).numpy()
        side = self.grid.shape[3]
        return LOW + self.spacing * np.stack([index % side, index // side], axis=1)


def build_atlas(
    runner: Runner,
    task: Any,
    *,
    image_size: int | None,
    seed: int,
    spacing: float = 4.0,
    finest: float = 1.0,
) -> LatentAtlas:
    """The atlas of one model in TwoRoom's declared layout.

    Args:
        spacing: px between grid points to begin with; halved until the error is small.

    Raises:
        Abstention: even at the finest spacing the interpolation is too far off to stand for the encoder.
    """
    rng = stream(seed, "atlas-check")
    probes = rng.uniform(21.0, 203.0, size=(256, 2))
    exact = _encode(runner, task, probes, image_size)
    moved = np.clip(probes + _unit(rng, 256) * 5.0, 21.0, 203.0)
    step = (_encode(runner, task, moved, image_size) - exact).norm(dim=1).median()
    while True:
        side = round((HIGH - LOW) / spacing) + 1
        axis = LOW + spacing * np.arange(side)
        places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        grid = _encode(runner, task, places, image_size).T.reshape(1, -1, side, side)
        atlas = LatentAtlas(grid.contiguous(), spacing, 0.0, len(places))
        apart = (atlas.latents(probes) - exact).norm(dim=1)
        error = float(torch.quantile(apart, 0.95) / step.clamp(min=1e-12))
        if error <= TOLERANCE:
            return LatentAtlas(atlas.grid, spacing, error, len(places))
        if spacing <= finest:
            raise Abstention(
                f"the encoder is too rough to interpolate: at {spacing:g} px the latent is off by "
                f"{error:.2f} of what one step changes (at most {TOLERANCE} is allowed). The "
                "model cost under simulator dynamics is not measured."
            )
        spacing /= 2


def _unit(rng: np.random.Generator, n: int) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _encode(runner: Runner, task: Any, places: np.ndarray, image_size: int | None) -> Tensor:
    out = []
    for first in range(0, len(places), 512):
        some = places[first : first + 512]
        state = task.with_state(task.reset(None, [0] * len(some)), some)
        frames = task.observe(state, ("pixels",), image_size=image_size)["pixels"]
        out.append(runner.encode(frames).flatten(1))
    return torch.cat(out)
