"""Receding-horizon control: see, plan, execute some blocks, see again (P12, P13).

The loop is the same for every planner; what a candidate costs is made anew at each replan by a
``CostMaker``, so that ``explain`` can swap the cost or the dynamics and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.lewm_model import resize_frames
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.costs import Contexts, ModelCost, Path
from dreamcheck.planning.execution import Execution, Rows, Trajectories, realised, some
from dreamcheck.planning.noise import EpisodeNoise, Noise, SharedNoise
from dreamcheck.planning.objectives import Objective
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.recorded import Recorded
from dreamcheck.planning.screening import ScreenedCost, ScreeningReport
from dreamcheck.planning.solvers import Solver
from dreamcheck.planning.solvers.base import CandidateCost
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.streams import stream
from dreamcheck.tasks.criteria import SuccessRule
from dreamcheck.tasks.protocol import CannotBranch, Column, Task

Progress = Callable[[int, int, str], None]
"""(done, total, what): called once per replan and arm."""


class CostMaker(Interface):
    """What a candidate costs from here on, for the live rows of one replan."""

    @property
    def needs_latents(self) -> bool: ...

    def __call__(self, contexts: Contexts | None, state: Any, goals: np.ndarray) -> CandidateCost:
        """contexts (None when needs_latents is False), simulator rows, goals [R, S]."""
        ...


@dataclass(frozen=True)
class Replan:
    """What one replan of one row imagined, and what its plan and a random one came to.

    iterations, candidates: counted while the solver ran: how often it asked for costs, and of how
        many candidates in all; None in records of earlier versions.
    imagined_cost, realised_cost: (chosen, random), in the objective's unit.
    imagined_distance, realised_distance: (chosen, random) to the goal after the whole plan, in
    task units; None without a readout, or where the task cannot be branched.
    """

    row: int
    step: int
    elite_cost: float
    min_margin: float
    near_ties: int
    out_of_range: float
    plan_out_of_range: float
    iterations: int | None = None
    candidates: int | None = None
    imagined_cost: tuple[float, float] | None = None
    realised_cost: tuple[float, float] | None = None
    imagined_distance: tuple[float, float] | None = None
    realised_distance: tuple[float, float] | None = None
    imagined_state: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    realised_state: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def optimism(self) -> float | None:
        """(realised - imagined) of the chosen plan minus that of the random one, task units."""
        return _optimism(self.imagined_distance, self.realised_distance)

    @property
    def optimism_cost(self) -> float | None:
        """The same in the objective's unit."""
        return _optimism(self.imagined_cost, self.realised_cost)


def _optimism(
    imagined: tuple[float, float] | None, realised: tuple[float, float] | None
) -> float | None:
    if imagined is None or realised is None:
        return None
    return (realised[0] - imagined[0]) - (realised[1] - imagined[1])


@dataclass(frozen=True)
class Arm:
    """One planner on R rows.

    plans: per replan, (step, rows [n], plans [n, T, width]) as the solver returned them.
    imagined: per replan, (step, rows [n], latents [n, T, *shape]) imagined for the chosen plans,
        where outcomes were logged.
    """

    trajectories: Trajectories
    replans: tuple[Replan, ...]
    num_replans: np.ndarray
    plans: tuple[tuple[int, np.ndarray, np.ndarray], ...] = field(repr=False, default=())
    imagined: tuple[tuple[int, np.ndarray, Tensor], ...] = field(repr=False, default=())
    screening: ScreeningReport | None = None


@dataclass(frozen=True)
class Setup:
    """What every arm on the same rows shares."""

    task: Task
    protocol: Protocol
    rule: SuccessRule
    columns: tuple[Column, ...]
    rows: Rows
    space: PlannerSpace
    model: WorldModel
    runner: Runner
    recorded: Recorded | None = None
    readout: Readout | None = None
    generator: np.random.Generator | None = None
    progress: Progress | None = None

    @property
    def perturbation(self) -> Perturbation | None:
        """What happens to the observed images; None where they are clean."""
        seen = self.protocol.perturbation
        return None if seen is None else seen.build()

    def noise(self, live: np.ndarray, replan: int) -> Noise:
        """Random numbers of the live rows' solves at one replan."""
        if self.generator is not None:
            return SharedNoise(self.generator)
        names = self.rows.names
        return EpisodeNoise(
            self.protocol.seed, [f"{names[i]}/replan {replan}" for i in live.tolist()]
        )


@dataclass(frozen=True)
class ModelCosts:
    """The model imagines, the objective scores: the planner under test."""

    model: WorldModel
    objective: Objective
    space: PlannerSpace
    path: Path | str = "exact"
    num_elites: int = 30
    report: ScreeningReport = field(default_factory=ScreeningReport)
    needs_latents: bool = True

    def __call__(self, contexts: Contexts | None, state: Any, goals: np.ndarray) -> CandidateCost:
        assert contexts is not None
        if self.path == "screened":
            return ScreenedCost(
                ModelCost(self.model, contexts, self.objective, self.space, path="bfloat16"),
                ModelCost(self.model, contexts, self.objective, self.space),
                num_elites=self.num_elites,
                report=self.report,
            )
        return ModelCost(self.model, contexts, self.objective, self.space, path=self.path)  # type: ignore[arg-type]


class _Context:
    """The latents each row has seen and the blocks between them."""

    def __init__(self, setup: Setup, execution: Execution) -> None:
        self.setup = setup
        self.execution = execution
        self.mode = setup.protocol.context_init
        self.limit = 1 if self.mode == "single" else setup.model.history_max
        current = self.look(np.arange(len(setup.rows)), moment="step 0")
        self.goals = self._goal_latents()
        c = setup.space.conventions
        if self.mode == "history" and self.limit > 1:
            self.latents, self.past = self._recorded(current)
        elif self.mode == "repeat":
            copies = self.limit - 1
            self.latents = current[:, None].repeat(1, self.limit, *([1] * (current.ndim - 1)))
            still = np.zeros((len(current), copies * c.frameskip, c.action_dim))
            self.past = setup.space.past_blocks(still)
        else:
            self.latents = current[:, None]
            self.past = np.zeros((len(current), 0, c.action_width), np.float32)
        if self.latents.shape[1] < setup.model.history_min:
            raise UsageError(
                f"context_init = {self.mode!r} starts with {self.latents.shape[1]} frame(s), this "
                f"model needs {setup.model.history_min}. Use 'repeat' or 'history'."
            )

    def _size(self) -> int | None:
        side = self.setup.model.conventions.image_size
        return side if side in self.setup.task.sizes else None

    def look(self, rows: np.ndarray, state: Any = None, *, moment: str = "") -> Tensor:
        """Latents of what the rows see now.

        Args:
            moment: names the moment of the rows' episodes, for the protocol's perturbation; ""
                looks through clean images (what really happened, not what the planner saw).
        """
        task = self.setup.task
        if state is None:
            state = some(task, self.execution.state, rows)
        keys = [k for k in self.setup.model.conventions.observation_keys if k != "pixels"]
        seen = task.observe(state, ("pixels", *keys), image_size=self._size())
        return self._encoded(seen, keys, rows, moment)

    def _goal_latents(self) -> Tensor:
        seen = self.setup.task.goal_observation(self.execution.state, image_size=self._size())
        keys = [k for k in self.setup.model.conventions.observation_keys if k != "pixels"]
        seen_through = self.setup.perturbation
        camera = seen_through is not None and seen_through.on == "camera"
        every = np.arange(len(self.setup.rows))
        return self._encoded(seen, keys, every, "goal" if camera else "")

    def _encoded(
        self, seen: dict[str, np.ndarray], keys: list[str], rows: np.ndarray, moment: str
    ) -> Tensor:
        others = {k: seen[k] for k in keys}
        perturbation = self.setup.perturbation
        if perturbation is None or perturbation.is_identity or not moment:
            return self.setup.runner.encode(seen["pixels"], finite=True, **others)
        c = self.setup.model.conventions
        frames = resize_frames(
            torch.from_numpy(np.ascontiguousarray(seen["pixels"])),
            size=c.image_size,
            rule=c.resize,
        )
        names = self.setup.rows.names
        levels = perturbation.apply(
            frames,
            scenes=[names[r] for r in rows.tolist()],
            moments=[moment] * len(rows),
        )
        return self.setup.runner.encode_levels(levels, **others)

    def _recorded(self, current: Tensor) -> tuple[Tensor, np.ndarray]:
        setup = self.setup
        if setup.recorded is None:
            raise UsageError("context_init = 'history' needs the recorded episodes.")
        f, h = setup.protocol.block, self.limit
        cases = [setup.rows.cases[c] for c in setup.rows.case]
        frames = []
        for back in range(h - 1, 0, -1):
            states = np.array([setup.recorded.state(c.episode)[c.start - back * f] for c in cases])
            placed = setup.task.with_state(self.execution.state, states)  # type: ignore[attr-defined]
            frames.append(self.look(np.arange(len(cases)), placed, moment=f"step {-back * f}"))
        actions = np.stack(
            [setup.recorded.actions(c.episode)[c.start - (h - 1) * f : c.start] for c in cases]
        )
        return torch.stack([*frames, current], dim=1), setup.space.past_blocks(actions)

    def append(self, rows: np.ndarray, blocks: np.ndarray) -> None:
        """The rows have executed a block [n, f, A] and see a new frame."""
        seen = self.look(rows, moment=f"step {self.execution.time}")
        if self.mode == "single":
            self.latents[rows, 0] = seen
            return
        new = self.latents[:, -1].clone()
        new[rows] = seen
        made = np.zeros((len(self.past), 1, self.past.shape[2]), np.float32)
        made[rows] = self.setup.space.past_blocks(blocks)
        self.latents = torch.cat([self.latents, new[:, None]], dim=1)[:, -self.limit :]
        self.past = np.concatenate([self.past, made], axis=1)
        self.past = self.past[:, len(self.past[0]) - (self.latents.shape[1] - 1) :]

    def of(self, rows: np.ndarray) -> Contexts:
        """The contexts of some rows."""
        index = torch.from_numpy(rows)
        return Contexts(self.latents[index], self.past[rows], self.goals[index])


def run_planner(
    setup: Setup,
    maker: CostMaker,
    solver: Solver,
    *,
    log: ModelCosts | None = None,
    keep_plans: bool = False,
    what: str = "planning",
) -> Arm:
    """The arm of one planner.

    Args:
        log: the model's own cost, to log imagined against realised outcomes per replan.
        keep_plans: keep what the solver returned.
    """
    p = setup.protocol
    run = Execution(setup.task, setup.rows, protocol=p, rule=setup.rule, columns=setup.columns)
    needs = maker.needs_latents or log is not None
    context = _Context(setup, run) if needs else None
    num_replans = np.zeros(len(setup.rows), np.int64)
    replans: list[Replan] = []
    kept: list[tuple[int, np.ndarray, np.ndarray]] = []
    imagined: list[tuple[int, np.ndarray, Tensor]] = []
    replan = 0
    total = -(-p.budget_steps // (p.receding * p.block))
    while not run.done:
        live = np.flatnonzero(run.live)
        if setup.progress is not None:
            setup.progress(replan, total, what)
        contexts = None if context is None else context.of(live)
        simulator = some(setup.task, run.state, live)
        goals = run.goals[live]
        plans, logged = _solve(setup, maker, solver, contexts, simulator, goals, live, replan)
        if log is not None:
            assert contexts is not None and context is not None
            logged, latents = _look_ahead(
                setup, context, log, contexts, simulator, goals, plans, logged
            )
            imagined.append((run.time, live, latents))
        replans += logged
        num_replans[live] += 1
        if keep_plans:
            kept.append((run.time, live, plans))
        raw = np.zeros((len(setup.rows), p.horizon * p.block, setup.task.action_box.width))
        raw[live] = setup.space.raw(plans)
        for block in range(p.receding):
            for t in range(block * p.block, (block + 1) * p.block):
                if run.done:
                    break
                run.step(raw[:, t])
            if run.done:
                break
            still = np.flatnonzero(run.live)
            if context is not None and (context.mode != "single" or block == p.receding - 1):
                context.append(still, raw[still, block * p.block : (block + 1) * p.block])
        replan += 1
    return Arm(
        trajectories=run.trajectories(),
        replans=tuple(replans),
        num_replans=num_replans,
        plans=tuple(kept),
        imagined=tuple(imagined),
        screening=getattr(maker, "report", None),
    )


class _Counted:
    """A cost that counts what the solver really asked of it (P2); otherwise the cost itself."""

    def __init__(self, cost: CandidateCost) -> None:
        self.cost = cost
        self.iterations = self.candidates = 0

    def __call__(self, candidates: Tensor) -> Tensor:
        self.iterations += 1
        self.candidates += candidates.shape[1]
        return self.cost(candidates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cost, name)


def _solve(
    setup: Setup,
    maker: CostMaker,
    solver: Solver,
    contexts: Contexts | None,
    simulator: Any,
    goals: np.ndarray,
    live: np.ndarray,
    replan: int,
) -> tuple[np.ndarray, list[Replan]]:
    # A gradient solve keeps every candidate's graph: one episode at a time.
    alone = bool(getattr(solver, "differentiable", False)) or setup.generator is not None
    groups = [np.array([i]) for i in range(len(live))] if alone else [np.arange(len(live))]
    plans, logged = [], []
    bounds = setup.space.bounds
    for group in groups:
        cost = _Counted(
            maker(
                None if contexts is None else contexts.rows(group),
                some(setup.task, simulator, group),
                goals[group],
            )
        )
        plan = solver.solve(
            cost,
            rows=len(group),
            horizon=setup.protocol.horizon,
            width=setup.space.width,
            noise=setup.noise(live[group], replan),
            bounds=bounds,
        )
        plans.append(plan.actions)
        outside = ((plan.actions < bounds[0] - 1e-6) | (plan.actions > bounds[1] + 1e-6)).mean(
            axis=(1, 2)
        )
        for i, g in enumerate(group):
            logged.append(
                Replan(
                    row=int(live[g]),
                    step=replan * setup.protocol.receding * setup.protocol.block,
                    elite_cost=float(plan.elite_cost[i]),
                    min_margin=float(plan.margins[i].min()) if plan.margins.size else float("inf"),
                    near_ties=int(plan.near_ties[i]),
                    out_of_range=float(plan.out_of_range[i]),
                    plan_out_of_range=float(outside[i]),
                    iterations=cost.iterations,
                    candidates=cost.candidates,
                )
            )
    return np.concatenate(plans), logged


def _look_ahead(
    setup: Setup,
    context: _Context,
    log: ModelCosts,
    contexts: Contexts,
    simulator: Any,
    goals: np.ndarray,
    plans: np.ndarray,
    logged: list[Replan],
) -> tuple[list[Replan], Tensor]:
    """The chosen plan and one random candidate: imagined, and run to the end in a branch."""
    n, t, width = plans.shape
    names = setup.rows.names
    low, high = setup.space.bounds
    random = np.stack(
        [
            stream(
                setup.protocol.seed, "random-candidate", f"{names[r.row]}/{r.step}"
            ).standard_normal((t, width), dtype=np.float32)
            for r in logged
        ]
    )
    if setup.space.kind == "held":
        random = random.clip(low, high)
    pair = torch.from_numpy(np.stack([plans, random], axis=1).astype(np.float32))
    cost = ModelCost(log.model, contexts, log.objective, log.space)
    costs, latents = cost.imagine(pair)
    last = latents[:, :, -1]
    imagined_distance = imagined_state = realised_distance = realised_state = None
    realised_cost = None
    try:
        doubled = some(setup.task, simulator, np.repeat(np.arange(n), 2))
        raw = setup.space.raw(pair.flatten(0, 1).numpy())
        reached, states = realised(setup.task, doubled, raw)
        both = np.repeat(goals, 2, axis=0)
        realised_state = states.reshape(n, 2, -1)
        realised_distance = setup.rule.distance(states, both, setup.columns).reshape(n, 2)
        if getattr(log.objective, "terminal", False):
            seen = context.look(np.arange(2 * n), reached).unflatten(0, (n, 2))
            blocks = setup.space.model_blocks(pair.flatten(0, 1)).unflatten(0, (n, 2))
            with torch.no_grad():
                realised_cost = log.objective(seen[:, :, None], contexts.goals, blocks).numpy()
    except CannotBranch:
        pass
    if setup.readout is not None:
        decoded = setup.readout.predict(last.flatten(0, 1))
        names_in = tuple(c.name for c in setup.readout.columns)
        if set(names_in) == {c.name for c in setup.columns}:
            order = [names_in.index(c.name) for c in setup.columns]
            decoded = decoded[:, order]
            imagined_state = decoded.reshape(n, 2, -1)
            imagined_distance = setup.rule.distance(
                decoded, np.repeat(goals, 2, axis=0), setup.columns
            ).reshape(n, 2)

    def two(values: Any, i: int) -> Any:
        return None if values is None else (float(values[i, 0]), float(values[i, 1]))

    def states_of(values: Any, i: int) -> Any:
        if values is None:
            return None
        return tuple(values[i, 0].tolist()), tuple(values[i, 1].tolist())

    made = [
        replace(
            r,
            imagined_cost=two(costs, i),
            realised_cost=two(realised_cost, i),
            imagined_distance=two(imagined_distance, i),
            realised_distance=two(realised_distance, i),
            imagined_state=states_of(imagined_state, i),
            realised_state=states_of(realised_state, i),
        )
        for i, r in enumerate(logged)
    ]
    return made, latents[:, 0]
