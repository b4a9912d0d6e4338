"""The cost of a batch of candidates under a model, in calls of one fixed shape (law 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.imagination.runner import MIN_TILE, frozen, open_loop
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.protocol import WorldModel
from dreamcheck.planning.lewm_rollout import LeWMRollout, rollout_of
from dreamcheck.planning.objectives import Objective
from dreamcheck.planning.space import PlannerSpace

Path = Literal["exact", "generic", "bfloat16"]


@dataclass(frozen=True)
class Contexts:
    """What a plan starts from, one row per episode.

    latents: [B, h, *shape] observed, oldest first. past: float32 [B, h - 1, A], the model-ready
    blocks that left all but the last of them. goals: [B, *shape].
    """

    latents: Tensor
    past: np.ndarray
    goals: Tensor

    def __post_init__(self) -> None:
        if self.past.shape[:2] != (len(self.latents), self.latents.shape[1] - 1):
            raise UsageError(
                f"{self.latents.shape[1]} observed latents need {self.latents.shape[1] - 1} past "
                f"blocks (the one leaving each but the last); got {self.past.shape[1]}."
            )

    def rows(self, index: np.ndarray) -> Contexts:
        """The rows in ``index``."""
        chosen = torch.from_numpy(np.asarray(index, np.int64))
        return Contexts(self.latents[chosen], self.past[index], self.goals[chosen])


class ModelCost:
    """Candidates [B, K, T, width] -> costs [B, K]: imagine, then score.

    Every model call holds whole episodes: ``episodes_per_call`` of them, the last call padded, K
    candidates each, K padded to 32. An episode planned alone and among others meets the same
    shapes, and gets the same bits.

    Args:
        path: "exact": the fastest float32 path the model has. "generic": ``predict`` step by step.
            "bfloat16": matrix products in bfloat16, for screening only.
    """

    def __init__(
        self,
        model: WorldModel,
        contexts: Contexts,
        objective: Objective,
        space: PlannerSpace,
        *,
        path: Path = "exact",
        episodes_per_call: int = 1,
    ) -> None:
        self.model = model
        self.contexts = contexts
        self.objective = objective
        self.space = space
        self.path = path
        self.episodes_per_call = episodes_per_call
        self._fast: LeWMRollout | None = None
        if isinstance(model, LeWM) and path != "generic":
            dtype = torch.bfloat16 if path == "bfloat16" else torch.float32
            self._fast = rollout_of(model.module, dtype)

    def rows(self, index: np.ndarray) -> ModelCost:
        """The cost of some of the episodes only."""
        new = object.__new__(ModelCost)
        new.__dict__.update(self.__dict__)
        new.contexts = self.contexts.rows(index)
        return new

    def __call__(self, candidates: Tensor) -> Tensor:
        """[B, K, T, width] -> [B, K]; gradients flow when they are enabled and asked for."""
        return torch.cat([costs for costs, _ in self._calls(candidates)])

    def imagine(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Costs [B, K] and the latents imagined after every block [B, K, T, *shape]."""
        costs, latents = zip(*self._calls(candidates), strict=True)
        return torch.cat(costs), torch.cat(latents)

    def _calls(self, candidates: Tensor) -> list[tuple[Tensor, Tensor]]:
        b, k = candidates.shape[:2]
        if b != len(self.contexts.latents):
            raise UsageError(
                f"{b} episodes of candidates came for {len(self.contexts.latents)} contexts."
            )
        e = self.episodes_per_call
        padded = max(k, -(-MIN_TILE // e))
        differentiable = torch.is_grad_enabled() and candidates.requires_grad
        out = []
        with frozen(self.model), torch.set_grad_enabled(differentiable):
            for first in range(0, b, e):
                rows = torch.arange(first, first + e)
                rows = torch.where(rows < b, rows, first)
                chunk = candidates[rows]
                if padded > k:
                    chunk = torch.cat([chunk, chunk[:, :1].expand(-1, padded - k, -1, -1)], dim=1)
                costs, latents = self._scored(chunk, rows, differentiable)
                keep = min(e, b - first)
                out.append((costs[:keep, :k], latents[:keep, :k]))
        return out

    def _scored(self, chunk: Tensor, rows: Tensor, differentiable: bool) -> tuple[Tensor, Tensor]:
        e, k = chunk.shape[:2]
        blocks = self.space.model_blocks(chunk.flatten(0, 1))
        past = torch.from_numpy(self.contexts.past)[rows].repeat_interleave(k, dim=0)
        context = self.contexts.latents[rows].repeat_interleave(k, dim=0)
        every = torch.cat([past, blocks], dim=1).to(self.model.device)
        actions = self.model.embed_actions(every)
        latents = self._rollout(context.to(self.model.device), actions, differentiable)
        latents = latents.unflatten(0, (e, k)).cpu()
        goals = self.contexts.goals[rows]
        return self.objective(latents, goals, blocks.unflatten(0, (e, k))), latents

    def _rollout(self, context: Tensor, actions: Tensor, differentiable: bool) -> Tensor:
        if self._fast is not None:
            return self._fast.rollout(context, actions)
        if self.path == "bfloat16":
            with torch.autocast(self.model.device.type, dtype=torch.bfloat16):
                return open_loop(self.model, context, actions, generic=True).float()
        # A model's own rollout may write in place, which gradients do not survive.
        generic = self.path == "generic" or differentiable
        return open_loop(self.model, context, actions, generic=generic)
