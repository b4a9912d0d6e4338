"""How recorded data become a model's inputs: declared once, carried by the checkpoint (law 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck.digest import digest

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Conventions(BaseModel):
    """Everything a driver must know to feed a model as it was trained.

    image_size: side of the square frames the encoder sees, in pixels.
    resize: how a larger frame becomes that size; "area" averages whole blocks of source pixels.
    pixel_scale, pixel_mean, pixel_std: (uint8 * pixel_scale - mean) / std, per RGB channel.
    frameskip: environment steps between two model frames; one action block spans as many.
    action_combine: how the block's raw actions become one entry: all of them side by side
        ("concat", width frameskip * action_dim), their mean, or the first one.
    action_dim: width of one raw environment action.
    action_mean, action_std: per raw dimension, in action_units; tiled over a concatenated block.
    history: most latents the predictor reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_size: int = Field(gt=0)
    resize: Literal["area", "bilinear", "none"] = "area"
    pixel_scale: float = 1.0 / 255.0
    pixel_mean: tuple[float, float, float] = IMAGENET_MEAN
    pixel_std: tuple[float, float, float] = IMAGENET_STD
    frameskip: int = Field(gt=0)
    action_combine: Literal["concat", "mean", "first"] = "concat"
    action_dim: int = Field(gt=0)
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    action_units: str = "environment units"
    history: int = Field(gt=0)
    observation_keys: tuple[str, ...] = ("pixels",)

    @model_validator(mode="after")
    def _widths_agree(self) -> Conventions:
        for name in ("action_mean", "action_std"):
            values = getattr(self, name)
            if len(values) != self.action_dim:
                raise ValueError(
                    f"{name} has {len(values)} numbers but action_dim is {self.action_dim}; "
                    "give one number per raw action dimension (they are tiled over a block)."
                )
        if any(not s > 0 for s in self.action_std):
            raise ValueError(
                f"action_std = {self.action_std} must be positive; a constant action dimension "
                "is stored with standard deviation 1."
            )
        if any(not s > 0 for s in self.pixel_std):
            raise ValueError(f"pixel_std = {self.pixel_std} must be positive.")
        return self

    @property
    def action_width(self) -> int:
        """Numbers in one model-ready action block."""
        return self.action_dim * (self.frameskip if self.action_combine == "concat" else 1)

    def blocks(self, actions: np.ndarray) -> np.ndarray:
        """Raw actions as model-ready blocks.

        Args:
            actions: [B, n * frameskip, action_dim] in action_units, one per environment step.
                NaN rows (the last row of a recorded episode) become 0 after standardising.

        Returns:
            float32 [B, n, action_width].

        Source: spec/protocol.md section 3.1.
        """
        actions = np.asarray(actions, dtype=np.float64)
        if actions.ndim != 3 or actions.shape[2] != self.action_dim:
            raise ValueError(
                f"actions has shape {actions.shape}; expected [B, steps, {self.action_dim}]."
            )
        if actions.shape[1] % self.frameskip:
            raise ValueError(
                f"{actions.shape[1]} environment steps do not fill whole blocks of "
                f"frameskip = {self.frameskip}."
            )
        scaled = (actions - np.asarray(self.action_mean)) / np.asarray(self.action_std)
        scaled = np.where(np.isnan(actions).any(axis=2, keepdims=True), 0.0, scaled)
        b, steps, _ = actions.shape
        grouped = scaled.reshape(b, steps // self.frameskip, self.frameskip, self.action_dim)
        if self.action_combine == "concat":
            out = grouped.reshape(b, steps // self.frameskip, self.action_width)
        elif self.action_combine == "mean":
            out = grouped.mean(axis=2)
        else:
            out = grouped[:, :, 0]
        return out.astype(np.float32)

    def unblock(self, blocks: np.ndarray) -> np.ndarray:
        """Planned blocks back to raw actions in action_units, one per environment step.

        "mean" and "first" blocks hold one action for the whole block. Not clipped: the
        environment clamps in its own units.

        Args:
            blocks: [B, n, action_width] model-ready.

        Returns:
            float64 [B, n * frameskip, action_dim].
        """
        blocks = np.asarray(blocks, dtype=np.float64)
        b, n, _ = blocks.shape
        if self.action_combine == "concat":
            steps = blocks.reshape(b, n * self.frameskip, self.action_dim)
        else:
            steps = np.repeat(blocks, self.frameskip, axis=1)
        return steps * np.asarray(self.action_std) + np.asarray(self.action_mean)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of every field."""
        return digest(self.model_dump())
