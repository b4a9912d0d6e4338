"""What a planner's candidate is, and what it becomes for the model and for the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.tasks.protocol import ActionBox

PlannerActionSpace = Literal["dense_normalised", "held"]


class Driving(BaseModel):
    """How a planned action reaches the model's input (spec/protocol.md C9, C10).

    encoding: "dense": every step of the block its own action (a held action fills all of them,
        which is "repeat"). "slots": a held action in the named slots, zeros elsewhere.
    slots: which of the block's steps carry it.
    scale: multiplies the action on its way into the model only.
    normalise: z-score by the conventions' constants; the release drove the authors' weights
        without.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoding: Literal["dense", "repeat", "slots"] = "dense"
    slots: tuple[int, ...] = ()
    scale: float = Field(default=1.0, gt=0)
    normalise: bool = True

    @property
    def digest(self) -> str:
        """SHA-256 of every field."""
        return digest(self.model_dump())


@dataclass(frozen=True)
class PlannerSpace:
    """Candidates [..., T, width] of one model in one task.

    kind: "dense_normalised" (the reference): one action per step, z-scored, never clipped; the
        environment clamps in its own units. "held" (the release): one raw action per block,
        clipped to the box.

    Source: spec/protocol.md P11.
    """

    kind: PlannerActionSpace
    conventions: Conventions
    box: ActionBox
    driving: Driving = Driving()

    def __post_init__(self) -> None:
        check_action_box(self.conventions, self.box)
        if self.driving.encoding == "slots" and (
            self.kind != "held" or self.conventions.action_combine != "concat"
        ):
            raise UsageError(
                "driving.encoding = 'slots' puts one held action into chosen steps of a block: it "
                "needs planner_action_space = 'held' and a model that reads concatenated blocks."
            )
        f = self.conventions.frameskip
        if any(not 0 <= s < f for s in self.driving.slots):
            raise UsageError(
                f"driving.slots = {self.driving.slots}: a block has steps 0 to {f - 1}."
            )
        if self.driving.encoding == "slots" and not self.driving.slots:
            raise UsageError("driving.encoding = 'slots' needs driving.slots, e.g. [0, 1].")

    @property
    def width(self) -> int:
        """Numbers in one planned action."""
        return self.conventions.action_dim if self.kind == "held" else self.conventions.action_width

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The action box in the candidates' own units, float32 [width] each."""
        low, high = np.asarray(self.box.low), np.asarray(self.box.high)
        if self.kind == "dense_normalised":
            mean, std = (
                np.asarray(self.conventions.action_mean),
                np.asarray(self.conventions.action_std),
            )
            tiles = self.width // len(low)
            low, high = np.tile((low - mean) / std, tiles), np.tile((high - mean) / std, tiles)
        return low.astype(np.float32), high.astype(np.float32)

    def raw(self, plans: np.ndarray) -> np.ndarray:
        """[B, T, width] -> environment actions, float64 [B, T * frameskip, dim], not clamped."""
        if self.kind == "held":
            return np.repeat(np.asarray(plans, np.float64), self.conventions.frameskip, axis=1)
        return self.conventions.unblock(plans)

    def model_blocks(self, candidates: Tensor) -> Tensor:
        """[N, T, width] -> model-ready blocks [N, T, A], differentiable."""
        c, d = self.conventions, self.driving
        if self.kind == "dense_normalised" and d.scale == 1.0 and d.normalise:
            return candidates
        mean = torch.tensor(c.action_mean, dtype=torch.float32)
        std = torch.tensor(c.action_std, dtype=torch.float32)
        n, t, _ = candidates.shape
        if self.kind == "dense_normalised":
            steps = candidates.reshape(n, t, -1, c.action_dim) * std + mean
        elif d.encoding == "slots":
            mask = torch.zeros(c.frameskip, 1)
            mask[list(d.slots)] = 1.0
            steps = candidates[:, :, None, :] * mask
        else:
            per_block = c.frameskip if c.action_combine == "concat" else 1
            steps = candidates[:, :, None, :].expand(n, t, per_block, c.action_dim)
        steps = steps * d.scale
        if d.normalise:
            steps = (steps - mean) / std
        return steps.reshape(n, t, c.action_width)

    def past_blocks(self, actions: np.ndarray) -> np.ndarray:
        """Executed raw actions [B, n * frameskip, dim] as model-ready blocks [B, n, A].

        Scale and normalisation are the driving spec's, so that past and future actions agree.
        """
        c, d = self.conventions, self.driving
        scaled = np.clip(actions, self.box.low, self.box.high) * d.scale
        if d.normalise:
            return c.blocks(scaled)
        identity = c.model_copy(
            update={"action_mean": (0.0,) * c.action_dim, "action_std": (1.0,) * c.action_dim}
        )
        return identity.blocks(scaled)


def out_of_range(candidates: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Share of candidate sequences with any action outside the box: [B, K, T, A] -> [B]."""
    outside = (candidates < low - 1e-6) | (candidates > high + 1e-6)
    return outside.flatten(2).any(dim=2).float().mean(dim=1)


def check_action_box(conventions: Conventions, box: ActionBox) -> None:
    """Refuse a model whose action statistics no data inside the box can have.

    Data inside [low, high] with mean m have a variance of at most (high - m)(m - low)
    (Bhatia and Davis, 2000), so a larger one means other units or another box.

    Raises:
        UsageError: widths differ, or the statistics exceed the box.
    """
    if box.width != conventions.action_dim:
        raise UsageError(
            f"action_box has {box.width} numbers but the model's action_dim is "
            f"{conventions.action_dim}: this model was trained for another task."
        )
    stats = zip(conventions.action_mean, conventions.action_std, box.low, box.high, strict=True)
    for i, (mean, std, low, high) in enumerate(stats):
        largest = max(0.0, (high - mean) * (mean - low)) ** 0.5
        # 1%: statistics are often stored with few digits. A constant dimension is stored as 1.
        if low <= mean <= high and (std <= 1.01 * largest or std == 1.0):
            continue
        raise UsageError(
            f"action_box[{i}] = [{low:g}, {high:g}] cannot hold the actions this model was "
            f"trained on: mean {mean:.4g}, standard deviation {std:.4g} (at most {largest:.4g} is "
            "possible inside the box). The model's actions are in other units, or its statistics "
            "come from another data set: check conventions.action_mean and action_std."
        )
