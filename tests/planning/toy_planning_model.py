"""A world model that reads positions off TwoRoom pictures and moves them exactly, walls ignored.

Latent: the agent's position / 32 px. Its errors are the wall and nothing else, so what planning
with it should do is known.
"""

from __future__ import annotations

import numpy as np
import torch

from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column

SCALE = 32.0


class ToyModel:
    """speed: px per step and unit of action that the model believes in; the truth is 5."""

    def __init__(self, *, speed: float = 5.0, history: int = 3, std: float = 0.5) -> None:
        self.conventions = Conventions(
            image_size=56,
            frameskip=5,
            action_dim=2,
            action_mean=(0.0, 0.0),
            action_std=(std, std),
            history=history,
        )
        self.latent = LatentSpec(shape=(2,))
        self.history_min, self.history_max = 1, history
        self.identity = f"toy-{speed}-{history}-{std}"
        self.device = torch.device("cpu")
        self.speed = speed
        self.calls: list[tuple[int, ...]] = []

    def encode(self, observation):
        pixels = observation["pixels"].float()
        side = pixels.shape[-1]
        red = (pixels[:, 0] - pixels[:, 1]).clamp(min=0)
        axis = (torch.arange(side) + 0.5) * (224 / side) - 0.5
        total = red.sum(dim=(1, 2)).clamp(min=1)  # a grey frame has no agent: the corner
        x = (red * axis[None, None, :]).sum(dim=(1, 2)) / total
        y = (red * axis[None, :, None]).sum(dim=(1, 2)) / total
        return torch.stack([x, y], dim=1) / SCALE

    def embed_actions(self, blocks):
        return blocks

    def predict(self, latents, actions, *, row_seeds=None):
        self.calls.append(tuple(latents.shape))
        c = self.conventions
        raw = actions[:, -1].unflatten(-1, (c.frameskip, c.action_dim)) * torch.tensor(c.action_std)
        # Not clamped: the environment clamps, the model does not know it.
        return latents[:, -1] + raw.sum(dim=1) * self.speed / SCALE


class ToyReadout:
    """The toy's latent in px."""

    columns = (Column("agent_x", "px"), Column("agent_y", "px"))
    identity = "toy-readout"
    heldout_mae = np.array([0.1, 0.1])
    heldout_rmse = np.array([0.1, 0.1])

    def predict(self, latents):
        return latents.reshape(len(latents), 2).double().numpy() * SCALE

    def disagreement(self, latents):
        return np.zeros(len(latents))


def random_lewm(*, history: int = 3, seed: int = 0) -> LeWM:
    """A small LeWM with random weights in every place that starts at zero or one."""
    torch.manual_seed(seed)
    net = LeWMNet(
        LeWMConfig(
            image_size=56,
            patch_size=14,
            encoder_width=24,
            encoder_depth=1,
            encoder_mlp=48,
            head_hidden=64,
            latent_width=16,
            action_hidden=32,
            predictor_width=24,
            predictor_depth=3,
            predictor_heads=2,
            predictor_head_width=16,
            predictor_mlp=64,
            history=history,
        )
    )
    with torch.no_grad():
        for layer in net.predictor.layers:
            layer.modulation.weight.normal_(std=0.1)
            layer.modulation.bias.normal_(std=0.3)
        for module in net.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.normal_(1, 0.2)
                module.bias.normal_(0, 0.2)
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.001, 2)
                module.weight.normal_(1, 0.2)
    conventions = Conventions(
        image_size=56,
        frameskip=5,
        action_dim=2,
        action_mean=(0.0, -0.05),
        action_std=(0.87, 0.87),
        history=history,
    )
    return LeWM(net, conventions)
