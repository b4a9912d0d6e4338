"""Your own network under Dreamcheck: a small one that is not LeWM, wrapped in thirty lines.

Run it:            python examples/tiny_model.py
Name it:           dreamcheck discover --model examples.tiny_model:make
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from dreamcheck.digest import digest
from dreamcheck.models import Conventions, LatentSpec
from dreamcheck.models.lewm_model import module_digest
from dreamcheck.testing import check_world_model


class TinyNet(nn.Module):
    """A convolutional encoder and a recurrent predictor: nothing that LeWM has."""

    def __init__(self, *, latent: int = 12, action_width: int = 10) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.LazyLinear(latent),
        )  # fmt: skip
        self.step = nn.GRUCell(latent + action_width, 32)
        self.move = nn.Linear(32, latent)
        self.encoder(torch.zeros(1, 3, 28, 28))  # gives the lazy layer its size


class TinyModel:
    """The adapter: conventions, sizes, and three methods."""

    history_min, history_max = 1, 4

    def __init__(self, module: TinyNet, conventions: Conventions) -> None:
        self.module, self.conventions = module.eval(), conventions
        self.latent = LatentSpec(shape=(module.move.out_features,))
        self.device = torch.device("cpu")

    @property
    def identity(self) -> str:
        return digest([module_digest(self.module), self.conventions.digest])

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.module.encoder(observation["pixels"].float() / 255)

    def embed_actions(self, blocks: Tensor) -> Tensor:
        return blocks

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        hidden = latents.new_zeros(len(latents), 32)
        for i in range(latents.shape[1]):  # actions[:, i] is the block that leaves latent i
            hidden = self.module.step(torch.cat([latents[:, i], actions[:, i]], dim=1), hidden)
        return latents[:, -1] + self.module.move(hidden)


def make() -> TinyModel:
    """An untrained one; yours would load its weights here."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = TinyNet()
    conventions = Conventions(
        image_size=28, frameskip=5, action_dim=2, action_mean=(0.0, 0.0), action_std=(1.0, 1.0),
        pixel_mean=(0.0, 0.0, 0.0), pixel_std=(1.0, 1.0, 1.0), history=4,
    )  # fmt: skip
    return TinyModel(net, conventions)


if __name__ == "__main__":
    check_world_model(make())
    print("TinyModel keeps every promise of a WorldModel.")
