"""Sound subjects that faults are put into: a shipped or trained LeWM, and a toy one can read."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.digest import digest
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.checkpoint import read_checkpoint
from dreamcheck.models.conventions import IMAGENET_MEAN, IMAGENET_STD, Conventions
from dreamcheck.models.lewm_model import module_digest, normalise_frames, resize_frames
from dreamcheck.models.protocol import LatentSpec, WorldModel
from dreamcheck.models.reference import SupportReference, load_support
from dreamcheck.tasks.protocol import Task

FIRST_ENV_SEED = 5_000_000
"""Far from the seeds anything ships or trains with."""
EPISODES = 16
STEPS = 80
SPEED = 5.0
VARIANCE = 3000.0


@cache
def recorded(seed: int, image_size: int, first: int = FIRST_ENV_SEED) -> ArrayEpisodes:
    """Sixteen fresh exploratory TwoRoom episodes of a seed."""
    from dreamcheck.tasks.tworoom import Exploratory, TwoRoom
    from dreamcheck.training.record import record_episodes

    return record_episodes(
        cast(Task, TwoRoom()),
        Exploratory(),
        env_seeds=first + EPISODES * seed + np.arange(EPISODES),
        steps=STEPS,
        image_size=image_size,
        root_seed=seed,
    )


class _ToyNet(nn.Module):
    """Batch-normalised position of the red dot."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2, affine=False)
        self.dropout = nn.Dropout(0.1)
        with torch.no_grad():
            assert self.norm.running_mean is not None and self.norm.running_var is not None
            self.norm.running_mean.copy_(torch.tensor([112.0, 112.0]))
            self.norm.running_var.copy_(torch.tensor([VARIANCE, VARIANCE]))
            assert self.norm.num_batches_tracked is not None
            self.norm.num_batches_tracked.fill_(1000)


class LinearToy:
    """Latent = normalised position of the dot; prediction = position + summed actions.

    It knows no walls. It was "trained" with ImageNet pixels and standard actions, so that wrong
    conventions reach it as wrong inputs.
    """

    history_min = 1

    def __init__(self, conventions: Conventions) -> None:
        self.conventions = conventions
        self.trained = conventions
        self.module: nn.Module = _ToyNet().eval()
        self.latent = LatentSpec(shape=(2,))
        self.history_max = conventions.history
        self.device = torch.device("cpu")

    @property
    def identity(self) -> str:
        """Digest of buffers and conventions."""
        return digest(["linear toy", module_digest(self.module), self.conventions.digest])

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """uint8 [N, 3, H, W] -> [N, 2]."""
        c = self.conventions
        seen = resize_frames(observation["pixels"], size=c.image_size, rule=c.resize)
        px = normalise_frames(seen, c)
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        px = px * std[:, None, None] + mean[:, None, None]
        # The dot is red on white: red minus green is its alpha. Walls and borders are black.
        alpha = (px[:, 0] - px[:, 1]).clamp(min=0).double()
        side = px.shape[-1]
        at = (torch.arange(side, dtype=torch.float64) + 0.5) * (224 / side) - 0.5
        mass = alpha.sum(dim=(1, 2)).clamp(min=1e-9)
        x = (alpha.sum(dim=1) * at).sum(dim=1) / mass
        y = (alpha.sum(dim=2) * at).sum(dim=1) / mass
        return cast(Any, self.module).norm(torch.stack([x, y], dim=1).float())

    def embed_actions(self, blocks: Tensor) -> Tensor:
        """Blocks as they are."""
        return blocks

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        """Last latent plus the summed raw actions times the speed, normalised."""
        t = self.trained
        raw = actions[:, -1].reshape(len(actions), t.frameskip, t.action_dim)
        raw = raw * torch.tensor(t.action_std) + torch.tensor(t.action_mean)
        moves = raw.clamp(-1, 1).sum(dim=1) * SPEED
        # A weight learned when the variance was right: stale statistics then show.
        return latents[:, -1] + (moves / VARIANCE**0.5).float()


class ModelBase:
    """A sound model with the episodes of a seed.

    Args:
        image_size: of the frames that are recorded. support: the model's training reference.
    """

    def __init__(
        self,
        name: str,
        model: WorldModel,
        *,
        seed: int = 0,
        image_size: int | None = None,
        support: SupportReference | None = None,
        provenance: Mapping[str, Any] | None = None,
        windows: int = 64,
    ) -> None:
        self.name, self.seed = name, seed
        self._model, self._support = model, support
        self._size = image_size or model.conventions.image_size
        self._windows, self._provenance = windows, dict(provenance or {})

    def subject(self, **changes: Any) -> Subject:
        """A fresh sound subject; parts replaced by name."""
        from dreamcheck.tasks.tworoom import TwoRoom

        parts: dict[str, Any] = {
            "model": copy.deepcopy(self._model) if "model" not in changes else None,
            "task": TwoRoom(),
            "episodes": recorded(self.seed, self._size),
            "train": recorded(self.seed, self._size, FIRST_ENV_SEED + 1_000_000),
            "support": self._support,
            "provenance": self._provenance,
            "windows": self._windows,
            "seed": self.seed,
        }
        return Subject(**{**parts, **changes})


def toy_base(seed: int = 0) -> ModelBase:
    """The readable toy."""
    from dreamcheck.models.lewm_model import fit_action_statistics

    mean, std, _ = fit_action_statistics([recorded(0, 56).actions(e) for e in range(EPISODES)])
    conventions = Conventions(
        image_size=56, frameskip=5, action_dim=2, action_mean=mean, action_std=std, history=3
    )
    return ModelBase("linear toy", LinearToy(conventions), seed=seed)


def checkpoint_base(folder: str | Path, *, seed: int = 0, name: str | None = None) -> ModelBase:
    """A LeWM checkpoint trained on TwoRoom."""
    checkpoint = read_checkpoint(folder)
    return ModelBase(
        name or Path(folder).name,
        checkpoint.model,
        seed=seed,
        support=load_support(folder),
        provenance=checkpoint.training,
    )
