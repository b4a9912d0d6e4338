"""Driving the predictor for the score: batches of rows, only what is asked for is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import Abstention
from dreamcheck.imagination.runner import MIN_TILE, frozen, open_loop
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.protocol import WorldModel, plan_space
from dreamcheck.planning.lewm_rollout import LeWMRollout

Reduce = Callable[[Tensor, Tensor], Tensor]
"""Predictions of a batch [b, K, *shape] and its row numbers [b] -> what is kept of them."""


class Forecaster:
    """The predictor of a model over normalised blocks, in batches of ``batch_rows``.

    The batch is halved, from there on, when memory runs out.

    Args:
        generic: use ``predict`` alone, even where the model has a faster ``rollout``.
        bfloat16: run the predictor under bfloat16 autocast (a screening mode, never the default).
        projection: [P, Q] orthonormal columns; points are then measured through it.
        on_predictions: told how many latents were predicted, batch by batch.
    """

    def __init__(
        self,
        model: WorldModel,
        *,
        batch_rows: int = 1024,
        generic: bool = False,
        bfloat16: bool = False,
        projection: Tensor | None = None,
        on_predictions: Callable[[int], None] | None = None,
    ) -> None:
        self.model = model
        self.batch_rows = max(MIN_TILE, batch_rows)
        self.generic = generic
        self.bfloat16 = bfloat16
        self.projection = projection
        self.on_predictions = on_predictions
        # A LeWM's own network is driven without recomputing anything; other models by their
        # ``rollout`` or ``predict``, under autocast when bfloat16 is asked for.
        self._path: LeWMRollout | None = None
        if isinstance(model, LeWM) and not generic:
            dtype = torch.bfloat16 if bfloat16 else torch.float32
            self._path = LeWMRollout(model.module, dtype=dtype)
        self.num_predictions = 0

    def points(self, latents: Tensor) -> Tensor:
        """[N, *shape] -> [N, P] where distances are measured."""
        points = plan_space(self.model, latents)
        return points if self.projection is None else points @ self.projection.to(points.device)

    def count(self, predictions: int) -> None:
        """Add finished predictions, and tell whoever listens."""
        self.num_predictions += predictions
        if self.on_predictions is not None:
            self.on_predictions(predictions)

    def terminal(self, first: Tensor, blocks: Tensor) -> Tensor:
        """Terminal points of the planning rollout, float32 [B, P].

        Starts from one latent: at step s the context is the last min(HS, s + 1) of {the first
        latent, the predictions}, as in the deployed planner with one observed frame.

        Args:
            first: [B, *shape], one observed latent per row.
            blocks: float32 [B, H, A] normalised blocks.

        Raises:
            Abstention: the predictor cannot start from one latent.

        Source: spec/viscore.md section 5.3.
        """
        if self.model.history_min > 1:
            raise Abstention(
                f"the predictor needs at least {self.model.history_min} latents, but influence "
                "and sobriety roll out from the one frame a planner has observed."
            )
        return self.run(first.unsqueeze(1), blocks, lambda z, _: self.points(z[:, -1]))

    def run(self, context: Tensor, blocks: Tensor, reduce: Reduce) -> Tensor:
        """Open-loop forecasts from a context, reduced batch by batch.

        Args:
            context: [B, h, *shape] real latents, oldest first.
            blocks: [B, h - 1 + K, A]; blocks[:, i] leaves latent i.
        """
        out = []
        device = self.model.device
        steps = blocks.shape[1] - context.shape[1] + 1
        start = 0
        with frozen(self.model):
            while start < len(context):
                stop = min(start + self.batch_rows, len(context))
                z, a = context[start:stop].to(device), blocks[start:stop].to(device)
                short = MIN_TILE - len(z)
                if short > 0:
                    z = torch.cat([z, z[:1].expand(short, *z.shape[1:])])
                    a = torch.cat([a, a[:1].expand(short, *a.shape[1:])])
                try:
                    future = self._future(z, a)
                except torch.OutOfMemoryError:
                    if self.batch_rows // 2 < MIN_TILE:
                        raise
                    self.batch_rows //= 2
                    continue
                rows = torch.arange(start, stop)
                out.append(reduce(future[: stop - start].float(), rows).float().cpu())
                self.count((stop - start) * steps)
                start = stop
        return torch.cat(out)

    def _future(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """[b, h, *shape], [b, h - 1 + K, A] -> [b, K, *shape]."""
        if self._path is not None:
            return self._path.rollout(latents, self.model.embed_actions(blocks))
        kind = self.model.device.type
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=self.bfloat16):
            actions = self.model.embed_actions(blocks)
            return open_loop(self.model, latents, actions, generic=self.generic)


def windows(array: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """array[start : start + length] for every start, [N, length, ...]."""
    return array[starts[:, None] + np.arange(length)[None, :]]
