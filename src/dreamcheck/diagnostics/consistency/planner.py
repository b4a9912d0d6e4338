"""What a perturbed history does to a planner's choice: certificates, paired CEM, regret.

Costs are squared distances to the goal summed over the coordinates of the planner's space, in
float64, so that choices and certificates read the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.consistency.bounds import (
    certified_outcome,
    cost_bound,
    elite_certificate,
    goal_cost,
    winner_certificate,
)
from dreamcheck.diagnostics.consistency.pairwise import acpc, final_displacement
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models.protocol import WorldModel, plan_space
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.noise import EpisodeNoise
from dreamcheck.planning.objectives import GoalLatent
from dreamcheck.planning.solvers import CEM
from dreamcheck.planning.solvers.base import Plan
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.stats import wilson_interval
from dreamcheck.tasks.protocol import ActionBox

PLAN_STEPS = 5
SEED = 1234
ATOL, RTOL = 1e-7, 1e-6
"""Alignment tolerances of two proposals, as released."""
REDUCED = CEM(num_samples=64, num_elites=8, iterations=8)
POOL_QUANTILE = 0.90
ROWS = 25
"""Histories planned together."""


@dataclass(frozen=True)
class Choice:
    """One history under one severity: the fixed first pool, and the two searches.

    winner, elites: outcome of the shared first pool, "certified, unchanged" and so on.
    pool_regret: clean cost of the perturbed winner minus that of the clean one (>= 0).
    pool_bound: Proposition 2's bound on it.
    aligned: per iteration, whether both proposals agreed when it began. certified: whether the
    elite certificate held there, None once nothing is claimed any more. overlap: share of elites
    in common. plan_unchanged: whether the final means agree. certified_run: whether Corollary 1
    says so.
    clean_cost, perturbed_cost: both final plans, costed from the clean history. median_cost: of
    the first pool, what a random candidate costs.
    acpc_1, acpc_plan, displacement: 90th percentile over the first pool. clean_gap: second-best
    minus best clean cost of it.
    """

    scene: str
    winner: str
    elites: str
    pool_regret: float
    pool_bound: float
    winner_slack: float
    aligned: tuple[bool, ...]
    certified: tuple[bool | None, ...]
    overlap: tuple[float, ...]
    plan_unchanged: bool
    certified_run: bool
    clean_cost: float
    perturbed_cost: float
    median_cost: float
    acpc_1: float
    acpc_plan: float
    displacement: float
    clean_gap: float

    @property
    def signed_regret(self) -> float:
        """C_h(perturbed plan) - C_h(clean plan); CEM is approximate, so it may be negative."""
        return self.perturbed_cost - self.clean_cost

    @property
    def regret(self) -> float:
        """Its positive part: a model cost, not a return."""
        return max(0.0, self.signed_regret)

    @property
    def lost_advantage(self) -> float | None:
        """Share of the clean plan's advantage over a median random candidate that is lost."""
        won = self.median_cost - self.clean_cost
        return self.signed_regret / won if won > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **asdict(self),
            "signed_regret": self.signed_regret,
            "regret": self.regret,
            "lost_advantage": self.lost_advantage,
        }


class _Costs:
    """A cost that keeps the endpoints behind it, iteration by iteration."""

    def __init__(self, model: WorldModel, contexts: Contexts, space: PlannerSpace) -> None:
        self.model = model
        self.cost = ModelCost(model, contexts, GoalLatent(model), space)
        with torch.no_grad():
            self.goals = plan_space(model, contexts.goals).double().cpu().numpy()
        self.ends: list[np.ndarray] = []
        self.first: np.ndarray | None = None

    def points(self, candidates: Tensor) -> np.ndarray:
        """[B, K, T, width] -> [B, K, T, P] in the planner's space."""
        _, latents = self.cost.imagine(candidates)
        lead = latents.shape[:3]
        with torch.no_grad():
            return plan_space(self.model, latents.flatten(0, 2)).unflatten(0, lead).double().numpy()

    def of(self, candidates: Tensor) -> np.ndarray:
        """Costs [B, K] without keeping anything."""
        return goal_cost(self.points(candidates)[:, :, -1], self.goals[:, None])

    def __call__(self, candidates: Tensor) -> Tensor:
        points = self.points(candidates)
        if self.first is None:
            self.first = points
        self.ends.append(points[:, :, -1])
        return torch.from_numpy(goal_cost(self.ends[-1], self.goals[:, None]))


def planner_space(model: WorldModel, box: ActionBox | None = None) -> PlannerSpace:
    """Candidates as the model's own standardised blocks; nothing is executed, so any box will do."""
    c = model.conventions
    if box is None:
        wide = tuple(1e3 * s for s in c.action_std)
        middle = c.action_mean
        box = ActionBox(
            low=tuple(m - w for m, w in zip(middle, wide, strict=True)),
            high=tuple(m + w for m, w in zip(middle, wide, strict=True)),
        )
    return PlannerSpace("dense_normalised", c, box)


def choices(
    rollouts: PairedRollouts,
    perturbations: Sequence[Perturbation],
    *,
    solver: CEM = REDUCED,
    steps: int = PLAN_STEPS,
    count: int | None = None,
    seed: int = SEED,
    done: Callable[[int], None] | None = None,
) -> dict[Perturbation, tuple[Choice, ...]]:
    """Clean and perturbed searches from the anchors' histories with common random numbers.

    The goal is the logged frame ``steps`` blocks after the history. The clean search runs once for
    all severities.

    Args:
        count: histories to plan from, the first of the anchors; all by default.
        done: told of every finished search.

    Raises:
        EvidenceError: a certified choice changed, or a bound does not hold: a bug in the code.
        UsageError: the anchors' future is shorter than the plan.

    Source: consistency.md section 3 (Proposition 2, Corollary 1).
    """
    anchors = rollouts.anchors
    if not 1 <= steps <= anchors.horizon:
        raise UsageError(
            f"a plan of {steps} blocks needs a goal frame that far ahead, but the windows hold "
            f"{anchors.horizon} later frames."
        )
    n = len(anchors) if count is None else min(count, len(anchors))
    out: dict[Perturbation, list[Choice]] = {p: [] for p in perturbations}
    space = planner_space(rollouts.model)
    past = rollouts.blocks[:, : anchors.history - 1]
    histories = {p: rollouts.perturbed(p)[:n] for p in perturbations}
    clean_goals = rollouts.goals(steps)[:n]
    goals = {p: rollouts.goals(steps, p)[:n] for p in perturbations}
    for first in range(0, n, ROWS):
        rows = slice(first, min(first + ROWS, n))

        def context(history: Tensor, goal: Tensor, rows: slice = rows) -> Contexts:
            return Contexts(history[rows], past[rows], goal[rows])

        scenes = anchors.scenes[rows]
        clean = _Costs(rollouts.model, context(rollouts.history[:n], clean_goals), space)
        plan = _solve(clean, solver, scenes, steps, space.width, seed)
        if done is not None:
            done(len(scenes))
        for p in perturbations:
            seen = _Costs(rollouts.model, context(histories[p], goals[p]), space)
            other = _solve(seen, solver, scenes, steps, space.width, seed)
            both = torch.from_numpy(np.stack([plan.actions, other.actions], axis=1))
            costed = clean.of(both)
            for b, scene in enumerate(scenes):
                out[p].append(_choice(b, scene, clean, seen, plan, other, costed, solver))
            if done is not None:
                done(len(scenes))
    return {p: tuple(found) for p, found in out.items()}


def _solve(
    cost: _Costs, solver: CEM, scenes: Sequence[str], steps: int, width: int, seed: int
) -> Plan:
    return solver.solve(
        cost, rows=len(scenes), horizon=steps, width=width,
        noise=EpisodeNoise(seed, scenes), trace=True,
    )  # fmt: skip


def _choice(
    b: int, scene: str, clean: _Costs, seen: _Costs, plan: Plan, other: Plan,
    costed: np.ndarray, solver: CEM,
) -> Choice:  # fmt: skip
    goal, goal_seen = clean.goals[b], seen.goals[b]
    same_goal = np.array_equal(goal, goal_seen)
    x, y = clean.ends[0][b], seen.ends[0][b]
    costs, costs_seen = goal_cost(x, goal), goal_cost(y, goal_seen)
    bounds = _bounds(x, y, goal, goal_seen)
    slip = np.abs(costs_seen - costs) - bounds
    # What float64 leaves of a difference, in the size of the costs that are subtracted.
    rounding = 1e-9 * np.maximum(1.0, np.maximum(costs, costs_seen))
    if (slip > rounding).any():
        raise EvidenceError(
            f"a candidate's cost moved by more than its bound (window {scene}): this is a bug, no "
            "number is given."
        )
    won, won_seen = int(costs.argmin()), int(costs_seen.argmin())
    winner = winner_certificate(costs, bounds)
    elite = elite_certificate(costs, bounds, num_elites=solver.num_elites)
    elites_seen = np.sort(np.argsort(costs_seen, kind="stable")[: solver.num_elites])
    pool_bound = float(bounds[won_seen] + bounds[won])
    pool_regret = float(costs[won_seen] - costs[won])
    if pool_regret > pool_bound + rounding[won_seen] + rounding[won]:
        raise EvidenceError(f"Proposition 2 fails at window {scene}: this is a bug.")
    aligned, certified, overlap = _iterations(b, clean, seen, plan, other, solver)
    unchanged = _agree(plan.trace[-1].mean[b], other.trace[-1].mean[b])
    run = all(c is True for c in certified)
    certified_outcome(certified=run, changed=not unchanged)
    first, first_seen = clean.first, seen.first
    assert first is not None and first_seen is not None
    u, v = first[b], first_seen[b]
    ordered = np.sort(costs)

    def q90(values: np.ndarray) -> float:
        return float(np.quantile(values, POOL_QUANTILE))

    return Choice(
        scene=scene,
        winner=certified_outcome(certified=winner.certified, changed=won != won_seen),
        elites=certified_outcome(
            certified=elite.certified, changed=elite.chosen != tuple(elites_seen.tolist())
        ),
        pool_regret=pool_regret,
        pool_bound=pool_bound,
        winner_slack=winner.slack,
        aligned=aligned,
        certified=certified,
        overlap=overlap,
        plan_unchanged=unchanged,
        certified_run=run and same_goal,
        clean_cost=float(costed[b, 0]),
        perturbed_cost=float(costed[b, 1]),
        median_cost=float(np.median(costs)),
        acpc_1=q90(np.linalg.norm(u[:, 0] - v[:, 0], axis=-1)),
        acpc_plan=q90(acpc(u, v)),
        displacement=q90(final_displacement(u, v)),
        clean_gap=float(ordered[1] - ordered[0]),
    )


def _bounds(x: np.ndarray, y: np.ndarray, goal: np.ndarray, goal_seen: np.ndarray) -> np.ndarray:
    """The paper's b for one goal; where a camera moves the goal too, of the difference to it.

    With two goals the cost is of x - g against y - g', so the bound is taken of these.
    """
    if np.array_equal(goal, goal_seen):
        return cost_bound(x, y, goal)
    return cost_bound(x - goal, y - goal_seen, np.zeros_like(goal))


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, atol=ATOL, rtol=RTOL))


def _iterations(
    b: int, clean: _Costs, seen: _Costs, plan: Plan, other: Plan, solver: CEM
) -> tuple[tuple[bool, ...], tuple[bool | None, ...], tuple[float, ...]]:
    """Corollary 1's record: alignment, certificate and elite overlap of every iteration."""
    aligned: list[bool] = []
    certified: list[bool | None] = []
    overlap: list[float] = []
    agree = claimed = True
    for i, (one, two) in enumerate(zip(plan.trace, other.trace, strict=True)):
        aligned.append(agree)
        mine, theirs = set(one.elites[b].tolist()), set(two.elites[b].tolist())
        overlap.append(len(mine & theirs) / solver.num_elites)
        if claimed and not agree:
            raise EvidenceError(
                "two proposals disagree although every certificate before held: this is a bug."
            )
        if claimed:
            costs = goal_cost(clean.ends[i][b], clean.goals[b])
            bounds = _bounds(clean.ends[i][b], seen.ends[i][b], clean.goals[b], seen.goals[b])
            found = elite_certificate(costs, bounds, num_elites=solver.num_elites)
            certified_outcome(certified=found.certified, changed=mine != theirs)
            certified.append(found.certified)
            claimed = found.certified
        else:
            # Their pools may differ: nothing further is claimed, whatever later certificates say.
            certified.append(None)
        agree = agree and _agree(one.mean[b], two.mean[b]) and _agree(one.std[b], two.std[b])
    return tuple(aligned), tuple(certified), tuple(overlap)


def summary(found: Sequence[Choice]) -> dict[str, Any]:
    """Counts and medians over histories, with the choices they come from.

    changed_low, changed_high: 95 % Wilson interval of the share of histories whose winner changed.
    """
    changed = wilson_interval(sum(c.winner == "uncertified, changed" for c in found), len(found))
    outcomes = ("certified, unchanged", "uncertified, unchanged", "uncertified, changed")
    lost = [c.lost_advantage for c in found if c.lost_advantage is not None]
    return {
        "num_histories": len(found),
        "changed_low": changed.low,
        "changed_high": changed.high,
        "winner": {o: sum(c.winner == o for c in found) for o in outcomes},
        "elites": {o: sum(c.elites == o for c in found) for o in outcomes},
        "plans_unchanged": sum(c.plan_unchanged for c in found),
        "certified_runs": sum(c.certified_run for c in found),
        "certified_iterations": sum(sum(x is True for x in c.certified) for c in found),
        "num_iterations": sum(len(c.certified) for c in found),
        "mean_overlap": float(np.mean([np.mean(c.overlap) for c in found])),
        "median_regret": float(np.median([c.regret for c in found])),
        "mean_regret": float(np.mean([c.regret for c in found])),
        "median_lost_advantage": float(np.median(lost)) if lost else None,
        "histories": [c.to_dict() for c in found],
    }
