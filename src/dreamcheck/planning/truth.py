"""The parts that ``explain`` swaps in: the true state's cost, and the simulator's dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import Abstention
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.atlas import LatentAtlas
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.objectives import Objective
from dreamcheck.planning.routes import SweptTwoRoom
from dreamcheck.planning.solvers.base import CandidateCost
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.tasks.tworoom import physics
from dreamcheck.tasks.tworoom.parameters import WALL_CENTRE

TrueCost = Literal["path", "straight"]

_NEAR, _FAR = WALL_CENTRE - 12.0, WALL_CENTRE + 12.0
_HEIGHTS = np.linspace(42.0, 56.0, 15)
"""Where a disc passes the declared door legally (spec/protocol.md section 1)."""


def true_cost(states: np.ndarray, goals: np.ndarray, *, kind: TrueCost) -> np.ndarray:
    """Squared distance to go, [..., 2], [..., 2] px -> [...] px².

    "straight": the distance that success measures. "path": the shortest way, through the door
    where the wall is in between (declared layout).
    """
    states, goals = np.asarray(states, np.float64), np.asarray(goals, np.float64)
    direct = np.hypot(*np.moveaxis(states - goals, -1, 0))
    if kind == "straight":
        return direct**2
    left = states[..., 0] < WALL_CENTRE
    other = left != (goals[..., 0] < WALL_CENTRE)
    if not np.any(other):
        return direct**2
    # Mirrored so that the state is on the left: across first, along second.
    x = np.where(left, states[..., 0], 2 * WALL_CENTRE - states[..., 0])
    gx = np.where(left, goals[..., 0], 2 * WALL_CENTRE - goals[..., 0])
    y, gy = states[..., 1], goals[..., 1]
    longest = np.full(direct.shape, np.inf)
    for height in _HEIGHTS:
        before = np.hypot(np.maximum(_NEAR - x, 0), y - height)
        through = _FAR - np.clip(x, _NEAR, _FAR)
        after = np.hypot(np.maximum(gx - _FAR, 0), gy - height)
        longest = np.minimum(longest, before + through + after)
    return np.where(other, longest, direct) ** 2


@dataclass(frozen=True)
class _DecodedTrueCost:
    """The true cost of the state that a readout sees in the last imagined latent.

    Here ``goal`` is the goal's state, not its latent.
    """

    readout: Readout
    kind: TrueCost
    order: tuple[int, ...]
    name: str = "true cost of the decoded state"
    unit: str = "px²"

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        b, k = latents.shape[:2]
        seen = self.readout.predict(latents[:, :, -1].flatten(0, 1))[:, list(self.order)]
        aim = np.repeat(goal.double().numpy(), k, axis=0)
        return torch.from_numpy(true_cost(seen, aim, kind=self.kind).reshape(b, k)).float()


@dataclass(frozen=True)
class TrueCostModelDynamics:
    """The model imagines, the true cost of the decoded state scores."""

    model: WorldModel
    readout: Readout
    space: PlannerSpace
    columns: tuple[str, ...]
    kind: TrueCost
    needs_latents: bool = True

    def __call__(self, contexts: Contexts | None, state: Any, goals: np.ndarray) -> CandidateCost:
        assert contexts is not None
        names = [c.name for c in self.readout.columns]
        missing = [c for c in self.columns if c not in names]
        if missing:
            raise Abstention(
                f"the readout has no column {missing[0]!r}: the true cost of imagined states "
                "cannot be taken. Fit a readout of the task's state columns."
            )
        objective = _DecodedTrueCost(
            self.readout, self.kind, tuple(names.index(c) for c in self.columns)
        )
        with_states = Contexts(
            contexts.latents, contexts.past, torch.from_numpy(np.asarray(goals, np.float64))
        )
        return ModelCost(self.model, with_states, objective, self.space)


@dataclass(frozen=True)
class SimulatorDynamics:
    """The simulator moves, and either the true cost or the model's objective scores.

    atlas and objective: for the model's cost: the latents of the reached places.
    """

    task: Any
    space: PlannerSpace
    kind: TrueCost | None = None
    atlas: LatentAtlas | None = None
    objective: Objective | None = None

    @property
    def needs_latents(self) -> bool:
        """The model's cost reads the goal's latent."""
        return self.objective is not None

    def __call__(self, contexts: Contexts | None, state: Any, goals: np.ndarray) -> CandidateCost:
        if self.objective is not None and not getattr(self.objective, "terminal", False):
            raise Abstention(
                f"objective {self.objective.name!r} reads more than the last latent; its value "
                "under simulator dynamics is not measured."
            )

        def cost(candidates: Tensor) -> Tensor:
            b, k = candidates.shape[:2]
            raw = self.space.raw(candidates.flatten(0, 1).numpy())
            reached = self._moved(state, raw, k).reshape(b, k, 2)
            if self.objective is None:
                assert self.kind is not None
                aim = np.broadcast_to(np.asarray(goals)[:, None, :2], reached.shape)
                return torch.from_numpy(true_cost(reached, aim, kind=self.kind)).float()
            assert self.atlas is not None and contexts is not None
            latents = self.atlas.latents(reached)[:, :, None]
            blocks = self.space.model_blocks(candidates.flatten(0, 1)).unflatten(0, (b, k))
            return self.objective(latents, contexts.goals, blocks)

        return cost

    def _moved(self, state: Any, raw: np.ndarray, k: int) -> np.ndarray:
        """Where each candidate's actions lead, [B * K, 2]."""
        if isinstance(self.task, SweptTwoRoom):
            now = self.task.branch(state, np.repeat(np.arange(len(state)), k))
            for t in range(raw.shape[1]):
                now = self.task.step(now, raw[:, t])
            return now.agent
        agent = np.repeat(state.agent, k, axis=0)
        walls = physics.walls_of(state.layout.take(np.zeros(1, np.int64)))
        actions = raw.astype(np.float32)
        for t in range(raw.shape[1]):
            agent = physics.advance(agent, actions[:, t], walls)
        return agent
