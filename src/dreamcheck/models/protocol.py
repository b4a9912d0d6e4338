"""What a world model must offer, and what it may.

The required part is small on purpose: ``encode``, ``embed_actions``, ``predict``. Everything else
is an optional capability, asked for by name; a missing one is an abstention that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import Abstention
from dreamcheck.models.conventions import Conventions
from dreamcheck.tasks.protocol import Column

LatentKind = Literal["embedding", "patches", "pixels", "tokens"]


@dataclass(frozen=True, slots=True)
class LatentSpec:
    """What one latent is.

    shape: of one frame's latent, without batch and time.
    kind: decides which metrics apply; token latents have no distances.
    parts: named slices of the last axis, e.g. {"visual": (0, 384), "proprio": (384, 394)}.
    """

    shape: tuple[int, ...]
    kind: LatentKind = "embedding"
    dtype: str = "float32"
    parts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Numbers in one latent."""
        return int(np.prod(self.shape))


@runtime_checkable
class WorldModel(Protocol):
    """A frozen world model under test.

    Shapes: N frames, B rows, h latents of history, T blocks, A action width, E embedding width.
    Row i of every result depends on row i of the arguments only. The caller enforces evaluation
    mode and no-grad (see ``dreamcheck.imagination.runner``).
    """

    conventions: Conventions
    latent: LatentSpec
    history_min: int
    history_max: int
    device: torch.device

    @property
    def identity(self) -> str:
        """Digest of parameters, buffers, architecture and conventions."""
        ...

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """{"pixels": uint8 [N, 3, H, W] RGB, ...} -> float32 [N, *latent.shape].

        Frames may be larger than conventions.image_size; the model resizes by its own rule.
        """
        ...

    def embed_actions(self, blocks: Tensor) -> Tensor:
        """[B, T, A] model-ready blocks (``Conventions.blocks``) -> [B, T, E]."""
        ...

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        """[B, h, *shape], [B, h, E], actions[:, i] the block leaving latent i -> [B, *shape].

        history_min <= h <= history_max. ``row_seeds``: stochastic models only, one per row.
        """
        ...


@runtime_checkable
class Rollout(Protocol):
    """A faster open-loop path; a contract test compares it with the generic one."""

    def rollout(self, latents: Tensor, actions: Tensor) -> Tensor:
        """[B, h, *shape], [B, h + K - 1, E] -> the K predicted latents [B, K, *shape]."""
        ...


@runtime_checkable
class SharedRollouts(Protocol):
    """Several histories under the same actions, sharing what the actions alone decide."""

    def rollouts(self, histories: Sequence[Tensor], actions: Tensor) -> list[Tensor]:
        """Each [B, h, *shape], [B, h + K - 1, E] -> each [B, K, *shape], the bits of ``rollout``."""
        ...


@runtime_checkable
class EncodeLevels(Protocol):
    """Frames that are no bytes: noise on display pixels is neither rounded nor clipped then."""

    def encode_levels(self, frames: Tensor) -> Tensor:
        """float32 [N, 3, s, s] RGB on the 0..255 scale, s = conventions.image_size, values outside
        it allowed -> [N, *latent.shape]; whole numbers give what ``encode`` gives."""
        ...


@runtime_checkable
class Decode(Protocol):
    """Latents back to frames."""

    def decode(self, latents: Tensor) -> Tensor:
        """[N, *shape] -> uint8 [N, 3, H, W] RGB."""
        ...


@runtime_checkable
class PlanSpace(Protocol):
    """Where distances and costs are measured; the identity where a model does not say."""

    def plan_space(self, latents: Tensor) -> Tensor:
        """[N, *shape] -> [N, P]."""
        ...


@runtime_checkable
class HasModule(Protocol):
    """The torch module behind the model: mode, buffers, BatchNorm checks, recalibration."""

    module: torch.nn.Module


@runtime_checkable
class TrainingLoss(Protocol):
    """The loss the model was trained with."""

    def training_loss(self, pixels: Tensor, blocks: Tensor) -> Mapping[str, Tensor]:
        """uint8 [B, T, 3, H, W], [B, T, A] -> {"loss": scalar, "prediction": scalar, ...}."""
        ...


@runtime_checkable
class Readout(Protocol):
    """State read from latents, with its own held-out error. Columns of the task's state.

    identity: digest of its weights and of the encoder it belongs to.
    heldout_mae, heldout_rmse: per column, on episodes it never saw, in the column's unit.
    """

    columns: tuple[Column, ...]
    identity: str
    heldout_mae: np.ndarray
    heldout_rmse: np.ndarray

    def predict(self, latents: Tensor) -> np.ndarray:
        """[N, *shape] -> float64 [N, len(columns)]."""
        ...

    def disagreement(self, latents: Tensor) -> np.ndarray:
        """Mean |probe A - probe B| over columns of two cross-fitted probes, [N]."""
        ...


def require(model: Any, capability: type, name: str) -> Any:
    """The model itself when it has the capability, else an abstention that names it.

    Raises:
        Abstention: the model does not offer it; the message says which method to add.
    """
    if isinstance(model, capability):
        return model
    raise Abstention(
        f"{type(model).__name__} has no `{name}`, which this measurement needs. "
        f"Add a `{name}` method to the model (see dreamcheck.models.protocol), or leave this "
        "measurement out; it is not estimated from something else."
    )


def plan_space(model: WorldModel, latents: Tensor) -> Tensor:
    """Latents in the space where the planner measures cost, [N, P].

    Raises:
        Abstention: token latents have no distances.
    """
    if isinstance(model, PlanSpace):
        return model.plan_space(latents)
    if model.latent.kind == "tokens":
        raise Abstention(
            "token latents have no distances: latent metrics do not apply to this model. "
            "Give it a `plan_space`, or use a decoded or probed target."
        )
    return latents.reshape(latents.shape[0], -1)
