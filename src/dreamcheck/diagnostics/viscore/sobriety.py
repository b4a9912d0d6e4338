"""Sobriety: how seldom a small search beats the recorded actions in the model's own eyes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.viscore.bank import LatentBank
from dreamcheck.diagnostics.viscore.influence import anchor_rows
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.rollouts import Forecaster, windows
from dreamcheck.diagnostics.viscore.search import (
    NUM_ELITES,
    NUM_ITERATIONS,
    NUM_SAMPLES,
    Found,
    Noise,
    ProbeName,
    adamw_search,
    mini_cem,
)
from dreamcheck.errors import Abstention
from dreamcheck.imagination.runner import frozen, open_loop
from dreamcheck.models.protocol import plan_space

NUM_ANCHORS = 64
GRADIENT_BUDGET: dict[ProbeName, tuple[int, int]] = {"mini-adamw": (16, 10), "single-adamw": (1, 6)}
"""Starts and steps of the gradient probes (ours: spec/viscore.md section 6.1)."""


def num_search_plans(search: ProbeName) -> int:
    """Plans a search evaluates at one anchor, the two that decide the sign included."""
    if search == "mini-cem":
        return NUM_ITERATIONS * NUM_SAMPLES + 2
    starts, steps = GRADIENT_BUDGET[search]
    return starts * (steps + 1) + 2


@dataclass(frozen=True)
class Gaps:
    """How much lower the model thinks the searched plan ends.

    gaps: J(recorded) − J(found), one per anchor; squared latent units. Only signs are scored.
    p_hat: share of finite gaps above 0; NaN when none is finite.
    resolution: gaps below it are noise of the search; NaN for gradient probes.
    num_below_resolution: anchors whose |gap| is below it.
    anchors: probe rows.
    search, noise: which probe, and where its random numbers came from.
    """

    gaps: tuple[float, ...]
    p_hat: float
    resolution: float
    num_below_resolution: int
    anchors: tuple[int, ...]
    search: str
    noise: str

    @property
    def sobriety(self) -> float:
        """1 − p̂."""
        return 1.0 - self.p_hat


def planning_problem(
    probe: Probe, bank: LatentBank, *, history: int, horizon: int
) -> tuple[np.ndarray, Tensor, Tensor, Tensor]:
    """Anchor rows, their latents, goal points, and recorded plans [anchors, H, A].

    Source: spec/viscore.md section 6.1-6.2.
    """
    rng = np.random.default_rng(0)
    anchors = anchor_rows(probe, history=history, horizon=horizon, limit=NUM_ANCHORS, rng=rng)
    first = bank.latents[torch.from_numpy(anchors)]
    goals = torch.from_numpy(bank.points[anchors + horizon])
    recorded = torch.from_numpy(windows(probe.normalized_blocks, anchors, horizon))
    return anchors, first, goals, recorded


class PlanCost:
    """Squared distance between the planning rollout's end and the anchor's goal.

    Args:
        first: [anchors, *shape] latents. goals: [anchors, P].
    """

    def __init__(self, forecaster: Forecaster, first: Tensor, goals: Tensor) -> None:
        self._forecaster, self._first, self._goals = forecaster, first, goals

    def __call__(self, plans: Tensor) -> Tensor:
        """[anchors, n, H, A] -> [anchors, n]; all anchors in full batches."""
        anchors, n = plans.shape[:2]
        index = torch.arange(anchors).repeat_interleave(n)
        return self.rows(plans.reshape(anchors * n, *plans.shape[2:]), index).reshape(anchors, n)

    def rows(self, plans: Tensor, anchors: Tensor) -> Tensor:
        """[m, H, A] plans of the anchors [m] -> [m]."""
        ends = self._forecaster.terminal(self._first[anchors], plans)
        return ((ends - self._goals[anchors]) ** 2).sum(dim=1)


class ScreenedCost:
    """Costs in a lower precision, exact where the elite set could hang on it.

    In every call at least 32 plans, evenly over the anchors, are scored both ways; the margin is
    the 99.9th percentile of the difference. Plans within twice the margin of their anchor's elite
    boundary are scored exactly; when those are more than half, all are.

    rescored: share of plans scored exactly, per call.
    """

    def __init__(self, cheap: PlanCost, exact: PlanCost) -> None:
        self._cheap, self._exact = cheap, exact
        self.rescored: list[float] = []

    def __call__(self, plans: Tensor) -> Tensor:
        """[anchors, n, H, A] -> [anchors, n]."""
        anchors, n = plans.shape[:2]
        costs = self._cheap(plans)
        both = min(n, max(1, -(-32 // anchors)))
        checked = self._exact(plans[:, :both])
        margin = torch.quantile((checked - costs[:, :both]).abs().flatten(), 0.999)
        costs[:, :both] = checked
        ordered = costs.sort(dim=1).values
        edge = ordered[:, NUM_ELITES - 1 : NUM_ELITES + 1].mean(dim=1, keepdim=True)
        # Twice: the boundary is as uncertain as the plan that is compared with it.
        doubtful = (costs - edge).abs() <= 2 * margin
        doubtful[:, :both] = False
        share = float(doubtful.float().mean())
        if not share <= 0.5 or not bool(torch.isfinite(margin)):
            self.rescored.append(1.0)
            return self._exact(plans)
        where = doubtful.nonzero()
        if len(where):
            rows, columns = where[:, 0], where[:, 1]
            costs[rows, columns] = self._exact.rows(plans[rows, columns], rows)
        self.rescored.append(share + both / n)
        return costs


def make_grad_cost(
    forecaster: Forecaster, first: Tensor, goals: Tensor
) -> Callable[[Tensor], Tensor]:
    """Like ``PlanCost`` but differentiable, through ``predict`` alone, in batches.

    The batches' graphs are held together until backward; memory grows with anchors × starts.

    Raises (on the first call):
        Abstention: the model returns predictions without a gradient.
    """
    model = forecaster.model
    device = model.device

    def cost(plans: Tensor) -> Tensor:
        anchors, n = plans.shape[:2]
        start = first.repeat_interleave(n, dim=0).unsqueeze(1)
        flat = plans.reshape(anchors * n, *plans.shape[2:])
        wanted = flat.requires_grad
        ends = []
        for z, a in zip(
            start.split(forecaster.batch_rows), flat.split(forecaster.batch_rows), strict=True
        ):
            future = open_loop(model, z.to(device), model.embed_actions(a.to(device)), generic=True)
            ends.append(plan_space(model, future[:, -1]).float().cpu())
            forecaster.count(len(z) * future.shape[1])
        end = torch.cat(ends)
        if wanted and torch.is_grad_enabled() and not end.requires_grad:
            raise Abstention(
                f"{type(model).__name__}.predict has no gradient with respect to actions, which "
                "a gradient search needs; use the mini-CEM probe"
            )
        return ((end.reshape(anchors, n, -1) - goals.unsqueeze(1)) ** 2).sum(dim=2)

    return cost


def planning_gaps(
    probe: Probe,
    bank: LatentBank,
    forecaster: Forecaster,
    *,
    horizon: int,
    noise: Noise,
    search: ProbeName = "mini-cem",
    screen: Forecaster | None = None,
) -> Gaps:
    """Gaps between the recorded plan and the plan that a small search finds.

    Args:
        horizon: H in blocks.
        noise: where the search's normal numbers come from.
        search: the probe matched to the planner (see PROBE_OF_PLANNER).
        screen: a cheaper forecaster for the search's own evaluations; the two plans that decide
            the sign are always scored by ``forecaster``.

    Raises:
        Abstention: no anchor, or the model lacks what the search needs.

    Source: spec/viscore.md section 6.
    """
    history = forecaster.model.history_max
    anchors, first, goals, recorded = planning_problem(
        probe, bank, history=history, horizon=horizon
    )
    cost = PlanCost(forecaster, first, goals)
    found = _search(search, screen or forecaster, forecaster, first, goals, recorded, noise)
    both = cost(torch.stack([recorded, found.plans], dim=1))
    gaps = (both[:, 0] - both[:, 1]).double().numpy()
    finite = np.isfinite(gaps)
    resolution = float("nan")
    if found.elite_costs is not None:
        spread = found.elite_costs.std(dim=1, correction=1)
        resolution = float(np.median(spread.numpy()) / np.sqrt(found.elite_costs.shape[1]))
    return Gaps(
        gaps=tuple(float(g) for g in gaps),
        p_hat=float((gaps[finite] > 0).mean()) if finite.any() else float("nan"),
        resolution=resolution,
        num_below_resolution=int((np.abs(gaps[finite]) < resolution).sum()),
        anchors=tuple(int(a) for a in anchors),
        search=search,
        noise=noise.name,
    )


def _search(
    search: ProbeName,
    sampler: Forecaster,
    exact: Forecaster,
    first: Tensor,
    goals: Tensor,
    recorded: Tensor,
    noise: Noise,
) -> Found:
    if search == "mini-cem":
        cost = PlanCost(sampler, first, goals)
        if sampler is exact:
            return mini_cem(cost, recorded, noise)
        return mini_cem(ScreenedCost(cost, PlanCost(exact, first, goals)), recorded, noise)
    if exact.model.history_min > 1:
        raise Abstention(
            f"the predictor needs at least {exact.model.history_min} latents, but a planner "
            "starts from one observed frame"
        )
    starts, steps = GRADIENT_BUDGET[search]
    # Gradients flow to the plans, so only evaluation mode is taken from ``frozen``.
    with frozen(exact.model), _parameters_still(exact):
        return adamw_search(
            make_grad_cost(exact, first, goals),
            recorded,
            noise,
            num_starts=starts,
            num_steps=steps,
        )


class _parameters_still:
    """No gradient is computed for the model's parameters while plans are optimised."""

    def __init__(self, forecaster: Forecaster) -> None:
        module = getattr(forecaster.model, "module", None)
        self._parameters = list(module.parameters()) if module is not None else []

    def __enter__(self) -> None:
        self._required = [p.requires_grad for p in self._parameters]
        for p in self._parameters:
            p.requires_grad_(False)

    def __exit__(self, *_: object) -> None:
        for p, r in zip(self._parameters, self._required, strict=True):
            p.requires_grad_(r)
