"""What a planner minimises: ``(latents, goal, actions) -> costs [B, K]``.

Shapes: B episodes, K candidates, T planned blocks. latents [B, K, T, *shape] imagined after each
block, goal [B, *shape] the goal's latent, actions [B, K, T, A] model-ready blocks. Row b of the
costs depends on row b of the arguments only. Solvers, scores, explanations and consistency all
take one of these; a user's own is any callable of this form.
An objective with ``terminal = True`` reads the last latent only, and can be asked about reality too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import Readout, WorldModel, plan_space


@runtime_checkable
class Objective(Protocol):
    """A cost of imagined futures. name and unit are written to the record."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """[B, K, T, *shape], [B, *shape], [B, K, T, A] -> [B, K]."""
        ...


@dataclass(frozen=True)
class GoalLatent:
    """Squared distance of the last imagined latent to the goal's, in the planner's space.

    parts: weights by part name of ``LatentSpec.parts``; parts left out weigh 0. Empty: the whole
        latent with weight 1.

    Source: spec/protocol.md section 2.6.
    """

    model: WorldModel
    parts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.parts) - set(self.model.latent.parts)
        if unknown:
            raise UsageError(
                f"objective parts {sorted(unknown)} are not parts of this latent, which has "
                f"{sorted(self.model.latent.parts) or 'no named parts'}."
            )

    @property
    def name(self) -> str:
        """What it is."""
        weights = ", ".join(f"{w:g} x {p}" for p, w in self.parts.items())
        return f"goal latent ({weights})" if weights else "goal latent"

    unit: ClassVar[str] = "latent units squared"
    terminal: ClassVar[bool] = True

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """The costs [B, K]."""
        b, k = latents.shape[:2]
        last = latents[:, :, -1]
        if self.parts:
            total = torch.zeros(b, k)
            for name, weight in self.parts.items():
                low, high = self.model.latent.parts[name]
                apart = last[..., low:high] - goal[:, None, ..., low:high]
                total = total + weight * apart.flatten(2).pow(2).sum(dim=2)
            return total
        reached = plan_space(self.model, last.flatten(0, 1)).unflatten(0, (b, k))
        aim = plan_space(self.model, goal)
        return (reached - aim[:, None]).pow(2).sum(dim=2)


@dataclass(frozen=True)
class DecodedState:
    """Squared distance of the states that a readout sees in the last latent and in the goal's.

    columns: which of the readout's columns count; all by default. Not differentiable: a readout
        answers in NumPy.

    Source: spec/protocol.md F2.
    """

    readout: Readout
    columns: tuple[int, ...] = ()
    terminal: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What it is."""
        return f"decoded state (readout {self.readout.identity[:12]})"

    @property
    def unit(self) -> str:
        """The readout's unit, squared."""
        return f"({self.readout.columns[0].unit})²"

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """The costs [B, K]."""
        b, k = latents.shape[:2]
        reached = torch.from_numpy(self.readout.predict(latents[:, :, -1].flatten(0, 1).detach()))
        aim = torch.from_numpy(self.readout.predict(goal.detach()))
        if self.columns:
            reached, aim = reached[:, list(self.columns)], aim[:, list(self.columns)]
        return (reached.unflatten(0, (b, k)) - aim[:, None]).pow(2).sum(dim=2).float()


class TemporalDistance(nn.Module):
    """A head that tells how many steps apart two latents are: an MLP, mean of both orders.

    Source: spec/protocol.md F3 (2D-256-128-1, ReLU, softplus; fitted by ``fit_temporal``).
    """

    name = "temporal distance"
    unit = "environment steps"
    terminal = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def between(self, first: Tensor, second: Tensor) -> Tensor:
        """[..., D], [..., D] -> steps [...], the same in both orders."""
        forth = self.net(torch.cat([first, second], dim=-1))
        back = self.net(torch.cat([second, first], dim=-1))
        return nn.functional.softplus(torch.cat([forth, back], dim=-1)).mean(dim=-1)

    def forward(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """The costs [B, K]."""
        last = latents[:, :, -1].flatten(2)
        return self.between(last, goal.flatten(1)[:, None].expand_as(last))


@dataclass(frozen=True)
class TemporalFit:
    """What fitting a temporal head gave; errors in environment steps on held-out episodes.

    heldout_mae: real against real. baseline_mae: of the constant that fits best.
    """

    heldout_mae: float
    baseline_mae: float
    num_pairs: int
    num_heldout_episodes: int


def fit_temporal(
    latents: list[Tensor], *, frameskip: int, seed: int, steps: int = 2000, heldout: float = 0.2
) -> tuple[TemporalDistance, TemporalFit]:
    """A temporal head fitted on pairs inside one episode, split by episode.

    No early stopping on the split that is reported (the release does that, F3).

    Args:
        latents: one [L, D] per episode, frames ``frameskip`` environment steps apart.
    """
    if len(latents) < 2 or min(len(z) for z in latents) < 2:
        raise UsageError("a temporal head needs two episodes of two frames or more.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(latents), generator=generator).tolist()
    held = order[: max(1, round(heldout * len(order)))]
    train = [e for e in order if e not in held]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = TemporalDistance(latents[0].shape[1])

    def pairs(chosen: list[int], n: int) -> tuple[Tensor, Tensor, Tensor]:
        which = torch.randint(len(chosen), (n,), generator=generator).tolist()
        spots = torch.rand(n, 2, generator=generator)
        a, b, gap = [], [], []
        for w, (u, v) in zip(which, spots.tolist(), strict=True):
            z = latents[chosen[w]]
            i, j = int(u * len(z)), int(v * len(z))
            a.append(z[i])
            b.append(z[j])
            gap.append(abs(i - j) * frameskip)
        return torch.stack(a), torch.stack(b), torch.tensor(gap, dtype=torch.float32)

    optimiser = torch.optim.Adam(head.parameters(), lr=1e-3)
    for _ in range(steps):
        a, b, gap = pairs(train, 256)
        loss = nn.functional.smooth_l1_loss(head.between(a, b), gap)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    head.requires_grad_(False).eval()
    a, b, gap = pairs(held, 2000)
    fit = TemporalFit(
        heldout_mae=float((head.between(a, b) - gap).abs().mean()),
        baseline_mae=float((gap - gap.median()).abs().mean()),
        num_pairs=steps * 256,
        num_heldout_episodes=len(held),
    )
    return head, fit


@dataclass(frozen=True)
class RewardValue:
    """Minus the discounted imagined rewards, minus the value of the last latent (TD-MPC style).

    reward: latents [N, *shape], blocks [N, A] of the step that led there -> [N].
    value: latents [N, *shape] -> [N].
    """

    reward: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    discount: float = 0.99
    name: str = "reward plus value"
    unit: str = "return, negated"

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """The costs [B, K]."""
        b, k, t = latents.shape[:3]
        flat = latents.reshape(b * k * t, *latents.shape[3:])
        rewards = self.reward(flat, actions.reshape(b * k * t, -1)).reshape(b, k, t)
        weights = self.discount ** torch.arange(t, dtype=rewards.dtype)
        last = self.value(latents[:, :, -1].flatten(0, 1)).reshape(b, k)
        return -(rewards * weights).sum(dim=2) - self.discount**t * last


@dataclass(frozen=True)
class Weighted:
    """A weighted sum of objectives."""

    terms: tuple[tuple[float, Objective], ...]

    @property
    def name(self) -> str:
        """What it is."""
        return " + ".join(f"{w:g} x {o.name}" for w, o in self.terms)

    unit: ClassVar[str] = "weighted sum"

    def __call__(self, latents: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
        """The costs [B, K]."""
        total = torch.zeros(latents.shape[:2])
        for weight, objective in self.terms:
            total = total + weight * objective(latents, goal, actions)
        return total


def imported_objective(name: str) -> Objective:
    """An objective of the user's own: ``package.module:name``, a callable or a factory of one.

    Raises:
        UsageError: not of that form, not importable, or not an objective.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UsageError(
            f"objective {name!r} is neither goal-latent, decoded-state nor package.module:name."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise UsageError(f"objective {name!r} cannot be imported: {e}.") from e
    if isinstance(found, type) or (callable(found) and not hasattr(found, "name")):
        found = found()
    if not callable(found) or not hasattr(found, "name") or not hasattr(found, "unit"):
        raise UsageError(
            f"objective {name!r} gives {type(found).__name__}: an objective has a name, a unit and "
            "__call__(latents, goal, actions) -> costs [B, K]."
        )
    return found


def objective_identity(objective: Objective, model: WorldModel) -> str:
    """Digest of what an objective's numbers depend on: its name, its weights, its encoder."""
    weights: object = None
    if isinstance(objective, nn.Module):
        weights = {k: v.tolist() for k, v in objective.state_dict().items()}
    return digest({"objective": objective.name, "encoder": model.identity, "weights": weights})
