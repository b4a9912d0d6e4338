"""A world model simple enough to know what it must answer: it sees the dot and adds the actions.

It knows nothing of walls, so it is right in open space and wrong exactly where the environment
blocks the agent. Its latent is the agent's position in px; its readout is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from dreamcheck.digest import digest
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column

SPEED = 5.0


class CentroidModel:
    """Latent = [x, y] of the agent's dot in px of the 224 px frame.

    gain: multiplies the imagined motion (1 is right). nan_left_of: predictions of agents left of
    this x are NaN, to play a broken model.
    """

    def __init__(self, *, gain: float = 1.0, nan_left_of: float | None = None) -> None:
        self.gain = gain
        self.nan_left_of = nan_left_of
        self.conventions = Conventions(
            image_size=56,
            frameskip=5,
            action_dim=2,
            action_mean=(0.0, 0.0),
            action_std=(1.0, 1.0),
            history=3,
        )
        self.latent = LatentSpec(shape=(2,))
        self.history_min, self.history_max = 1, 3
        self.device = torch.device("cpu")
        self.identity = digest({"toy": "centroid", "gain": gain, "nan": nan_left_of})
        self.calls: list[int] = []

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        px = observation["pixels"].double()
        self.calls.append(len(px))
        # The dot is red on white: red minus green is its alpha. Walls and borders are black.
        alpha = (px[:, 0] - px[:, 1]).clamp(min=0)
        side = px.shape[-1]
        scale = 224 / side
        at = (torch.arange(side, dtype=torch.float64) + 0.5) * scale - 0.5
        mass = alpha.sum(dim=(1, 2)).clamp(min=1e-9)
        x = (alpha.sum(dim=1) * at).sum(dim=1) / mass
        y = (alpha.sum(dim=2) * at).sum(dim=1) / mass
        return torch.stack([x, y], dim=1).float()

    def embed_actions(self, blocks: Tensor) -> Tensor:
        return blocks

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        moves = actions[:, -1].reshape(len(actions), 5, 2).clamp(-1, 1).sum(dim=1) * SPEED
        out = latents[:, -1] + self.gain * moves
        if self.nan_left_of is not None:
            out = torch.where(latents[:, -1, :1] < self.nan_left_of, torch.nan, out)
        return out


class IdentityReadout:
    """The latent is the state."""

    columns = (Column("agent_x", "px"), Column("agent_y", "px"))
    identity = digest("identity readout")
    heldout_mae = np.array([0.5, 0.5])
    heldout_rmse = np.array([0.5, 0.5])

    def predict(self, latents: Tensor) -> np.ndarray:
        return latents.double().numpy()

    def disagreement(self, latents: Tensor) -> np.ndarray:
        return np.zeros(len(latents))
