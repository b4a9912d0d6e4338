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
    NUM_ITERATIONS,
    NUM_SAMPLES,
    Found,
    KeptNoise,
    Noise,
    ProbeName,
    adamw_search,
    mini_cem,
)
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.runner import frozen, open_loop
from dreamcheck.models.protocol import plan_space

NUM_ANCHORS = 64
NUM_CHECKED = 4
"""Anchors whose search the checked fast mode repeats in float32."""
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
    near_tie_below: |gap| below which a sign is not to be relied on: the resolution, or in the
        checked fast mode the largest change of a checked gap where that is more.
    precision: of the search, and what its check found.
    anchors: probe rows.
    search, noise: which probe, and where its random numbers came from.
    """

    gaps: tuple[float, ...]
    p_hat: float
    resolution: float
    num_below_resolution: int
    near_tie_below: float
    precision: str
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
        screen: a cheaper forecaster for the mini-CEM's own evaluations (the checked fast mode).
            The two plans that decide a sign are always scored by ``forecaster``. The search of
            ``NUM_CHECKED`` anchors is run again by ``forecaster``, on the same noise: when a sign
            changes that is no near-tie, every anchor is searched again.

    Raises:
        Abstention: no anchor, or the model lacks what the search needs.

    Source: spec/viscore.md section 6.
    """
    history = forecaster.model.history_max
    anchors, first, goals, recorded = planning_problem(
        probe, bank, history=history, horizon=horizon
    )
    cost = PlanCost(forecaster, first, goals)
    precision, change = "float32", 0.0
    if screen is None:
        found = _search(search, forecaster, first, goals, recorded, noise)
        gaps = _gaps(cost, recorded, found)
    else:
        if search != "mini-cem":
            raise UsageError(f"the fast mode searches with the mini-CEM only, not with {search}.")
        drawn = KeptNoise(noise)
        found = mini_cem(PlanCost(screen, first, goals), recorded, drawn)
        gaps = _gaps(cost, recorded, found)
        rows = np.unique(np.linspace(0, len(anchors) - 1, NUM_CHECKED).round().astype(np.int64))
        index = torch.from_numpy(rows)
        some = PlanCost(forecaster, first[index], goals[index])
        again = mini_cem(some, recorded[index], drawn.rows(index))
        wanted = _gaps(some, recorded[index], again)
        change = float(np.abs(gaps[rows] - wanted).max())
        flipped = np.sign(gaps[rows]) != np.sign(wanted)
        if (flipped & (np.abs(wanted) >= _resolution(again))).any():
            found = mini_cem(cost, recorded, drawn.rows(torch.arange(len(anchors))))
            gaps, change = _gaps(cost, recorded, found), 0.0
            precision = f"float32, after bfloat16 failed on {len(rows)} checked anchors"
        else:
            gaps[rows] = wanted
            precision = f"bfloat16, {len(rows)} anchors checked, largest change {change:.3g}"
    finite = np.isfinite(gaps)
    resolution = _resolution(found)
    return Gaps(
        gaps=tuple(float(g) for g in gaps),
        p_hat=float((gaps[finite] > 0).mean()) if finite.any() else float("nan"),
        resolution=resolution,
        num_below_resolution=int((np.abs(gaps[finite]) < resolution).sum()),
        near_tie_below=max(resolution, change) if np.isfinite(resolution) else float("nan"),
        precision=precision,
        anchors=tuple(int(a) for a in anchors),
        search=search,
        noise=noise.name,
    )


def _gaps(cost: PlanCost, recorded: Tensor, found: Found) -> np.ndarray:
    """J(recorded) − J(found), float64 [anchors], both costs from one call."""
    both = cost(torch.stack([recorded, found.plans], dim=1))
    return (both[:, 0] - both[:, 1]).double().numpy()


def _resolution(found: Found) -> float:
    """Median over anchors of the elites' deviation over √16; NaN where there are no elites.

    Source: spec/viscore.md section 6.6.
    """
    if found.elite_costs is None:
        return float("nan")
    spread = found.elite_costs.std(dim=1, correction=1)
    return float(np.median(spread.numpy()) / np.sqrt(found.elite_costs.shape[1]))


def _search(
    search: ProbeName,
    exact: Forecaster,
    first: Tensor,
    goals: Tensor,
    recorded: Tensor,
    noise: Noise,
) -> Found:
    if search == "mini-cem":
        return mini_cem(PlanCost(exact, first, goals), recorded, noise)
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
