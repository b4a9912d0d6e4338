"""Your own PyTorch model under Dreamcheck: a twenty-line adapter (class ``Adapter`` below).

Run it from this folder:  python own_model_torch.py    (it also writes dots.npz)
Use it anywhere a model is asked for:  dreamcheck inspect own_model_torch:make --data dots.npz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.data.npz import write_npz
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.inspecting import inspect_checkpoint
from dreamcheck.models.lewm_model import module_digest
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column

SIDE, SPEED = 16, 1.5


class DotNet(nn.Module):
    """Stands for your model: it sees a frame as a latent and moves latents by actions."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Sequential(
            nn.Flatten(), nn.Linear(SIDE * SIDE, 64), nn.GELU(), nn.Linear(64, 8)
        )
        self.move = nn.Sequential(nn.Linear(8 + 2, 64), nn.GELU(), nn.Linear(64, 8))

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        return latents + self.move(torch.cat([latents, actions], dim=-1))


# --- the adapter: twenty lines ---------------------------------------------------------------------
class Adapter:
    history_min = history_max = 1
    latent = LatentSpec(shape=(8,))
    conventions = Conventions(
        image_size=SIDE, resize="area", frameskip=1, action_dim=2, action_mean=(0.0, 0.0),
        action_std=(1.0, 1.0), action_units="environment units", history=1,
        pixel_mean=(0.0, 0.0, 0.0), pixel_std=(1.0, 1.0, 1.0),
    )  # fmt: skip

    def __init__(self, net: DotNet) -> None:
        self.module, self.device = net.eval(), torch.device("cpu")
        self.identity = f"DotNet {module_digest(net)}"

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        return self.module.see(observation["pixels"][:, 0].float() / 255)

    def embed_actions(self, blocks: Tensor) -> Tensor:
        return blocks

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        return self.module(latents[:, -1], actions[:, -1])


# ---------------------------------------------------------------------------------------------------


def dots(*, episodes: int = 40, length: int = 15, seed: int = 0) -> ArrayEpisodes:
    """A bright dot pushed about by actions: frames, actions and its position as state."""
    rng = np.random.default_rng(seed)
    grid = np.arange(SIDE)
    frames, actions, places = [], [], []
    for _ in range(episodes):
        at = rng.uniform(4, SIDE - 5, 2)
        for t in range(length):
            glow = np.exp(-((grid[:, None] - at[1]) ** 2 + (grid[None] - at[0]) ** 2) / 4)
            frames.append(np.repeat((255 * glow).astype(np.uint8)[None], 3, axis=0))
            places.append(at)
            push = rng.uniform(-1, 1, 2)
            actions.append(push if t + 1 < length else np.full(2, np.nan))
            at = np.clip(at + SPEED * push, 1, SIDE - 2)
    return ArrayEpisodes(
        lengths=np.full(episodes, length),
        actions=np.array(actions),
        pixels=np.array(frames),
        state=np.array(places),
        columns=(Column("dot_x", "px"), Column("dot_y", "px")),
    )


def make(steps: int = 400) -> Adapter:
    """Train the stand-in for a few seconds; a real factory would load your weights here."""
    torch.manual_seed(0)
    net, data = DotNet(), dots(seed=1)
    count = len(data.lengths)
    pixels = torch.stack(
        [torch.from_numpy(data.frames(e, np.arange(15))[:, 0]).float() / 255 for e in range(count)]
    )
    actions = torch.stack([torch.from_numpy(data.actions(e)[:-1]).float() for e in range(count)])
    places = torch.stack([torch.from_numpy(data.state(e)).float() / SIDE for e in range(count)])
    read = nn.Linear(8, 2)
    optimiser = torch.optim.Adam([*net.parameters(), *read.parameters()], lr=3e-3)
    for _ in range(steps):
        latents = net.see(pixels.flatten(0, 1)).unflatten(0, pixels.shape[:2])
        ahead = net(latents[:, :-1], actions)
        loss = (ahead - latents[:, 1:]).square().mean() + (
            read(latents) - places
        ).square().mean() * 20
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Adapter(net)


if __name__ == "__main__":
    torch.set_num_threads(1)
    recorded = dots(seed=2)
    write_npz("dots.npz", recorded)
    report = inspect_checkpoint(make(), data=recorded, horizon=3)
    print("\n".join(report.lines()))
