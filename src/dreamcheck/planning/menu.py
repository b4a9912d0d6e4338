"""``explain`` where a simulator step is dear: a fixed menu of plans replaces search.

Every plan of an episode's menu is run once in the simulator. Each cell of the factorial then only
chooses among the same plans, so that cost and dynamics are swapped at no further simulation.

Source: spec/evidence.md section 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.readouts import in_lengths
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.admission import audit, rule_of
from dreamcheck.planning.attribution import (
    ALL_CELLS,
    PROTOCOL,
    Cell,
    Explanation,
    cell_name,
    explanation_of,
)
from dreamcheck.planning.control import Progress, Setup
from dreamcheck.planning.evaluate import inputs_of, outcomes_of, realised_of, setup_of
from dreamcheck.planning.execution import Rows, Trajectories
from dreamcheck.planning.groups import Kept
from dreamcheck.planning.guarding import Guard, Guarded
from dreamcheck.planning.objectives import GoalLatent, Objective
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.recorded import Recorded, fresh_seeds, policy_named
from dreamcheck.planning.results import arm_result
from dreamcheck.streams import RowStreams, stream
from dreamcheck.tasks.criteria import SuccessRule, load_criteria
from dreamcheck.tasks.protocol import Column, Policy, Task


@dataclass(frozen=True)
class Menu:
    """One row's plans, run to their end. P plans of T steps.

    states: [P, T + 1, S] in the task's raw columns, the start included. actions: [P, T, A].
    model_cost, decoded_cost: [P] of the imagined end: the objective's, and the true cost of the
        state that the readout sees there (None without a readout).
    latent_cost, state_cost: [P] of the end that the simulator reached: the objective's on its
        encoding, and the true cost.
    """

    states: np.ndarray
    actions: np.ndarray
    model_cost: np.ndarray
    decoded_cost: np.ndarray | None
    latent_cost: np.ndarray
    state_cost: np.ndarray

    def cost(self, cell: Cell) -> np.ndarray:
        """What the cell's planner minimises, over the whole menu.

        Raises:
            Abstention: no readout was given and the cell needs one.
        """
        true, simulator, _ = cell
        if simulator:
            return self.state_cost if true else self.latent_cost
        if not true:
            return self.model_cost
        if self.decoded_cost is None:
            raise Abstention(
                "no readout was given: imagined latents have no state to take the true cost of"
            )
        return self.decoded_cost


def explain_menu(
    model: WorldModel,
    task: Task,
    protocol: Protocol,
    *,
    readout: Readout | None,
    objective: Callable[[WorldModel], Objective] | None = None,
    search_factor: int = 10,
    streams: int = 1,
    cells: Sequence[Cell] = ALL_CELLS,
    guard: Guard | None = None,
    progress: Progress | None = None,
    keep: str | Path | None = None,
) -> Explanation:
    """The factorial over a fixed menu, for tasks that branch by seed and prefix, such as PushT.

    An episode is a default reset followed by the fresh policy; its goal is the state that the
    same policy reached ``offset`` steps later. Its menu holds as many plans as the protocol's
    solver has samples, each proposed by the fresh policy from the start on a stream of its own and
    never replanned; the larger search sees ``search_factor`` times as many, the menu's own first.

    The true cost is the squared distance of the task's columns at the plan's end, sine and cosine
    of an angle as the end of the task's arm. The oracle is the plan of the larger menu that
    fulfils the success rule first, or ends nearest: "unreachable" means that no plan does. The
    random control is one plan of the menu.

    Args:
        protocol: fresh starts, and a budget of exactly one plan: nothing is replanned.
        keep: folder for the menus that are done, one file an episode: stopped at any point, the
            same call goes on with the first that is missing.

    Raises:
        Abstention: a task without policies or raw columns.
        UsageError: a protocol that a menu cannot follow, with the field's name.
    """
    columns = getattr(task, "raw_columns", None)
    if columns is None:
        raise Abstention(
            f"explain's menu judges success by a task's raw state columns; task {task.name} has "
            "none."
        )
    protocol = protocol.replace(streams=streams)
    _check(protocol, task)
    if PROTOCOL not in cells:
        raise UsageError("cells must contain the protocol's own (False, False, False).")
    policy = policy_named(task, protocol.fresh.policy)
    history = model.history_max
    held, kept = _episodes(task, policy, protocol, columns)
    criteria = load_criteria(task.name)
    report, selection = audit(protocol, held, criteria, history=history)
    guarded = Guarded() if guard is None else guard(model, task, held)
    rule = rule_of(protocol, criteria)
    rows = Rows.of(selection.cases, streams)
    setup = setup_of(model, task, protocol, rule, held, rows, readout=readout)
    score: Objective = GoalLatent(model) if objective is None else objective(model)
    small = int(protocol.solver.build().settings["num_samples"])
    size = small * (search_factor if any(c[2] for c in cells) else 1)
    done = None
    if keep is not None:
        inputs = inputs_of(setup, selection, score, "exact")
        # A menu does not depend on what counts as success: one simulation serves every rule.
        inputs |= {"rule": None, "protocol": protocol.replace(success="native").digest}
        more = {"explain": "menu", "plans": size, "simulator": task.package_version}
        done = Kept.at(keep, {**inputs, **more})
    menus = []
    for r, name in enumerate(rows.names):
        if progress is not None:
            progress(r, len(rows), "simulating the menus")
        menu = None if done is None else _read(done, name)
        if menu is None:
            menu = _menu(setup, policy, kept, r, size, score)
            if done is not None:
                _write(done, name, menu)
        menus.append(menu)
    if progress is not None:
        progress(len(rows), len(rows), "simulating the menus")

    def arm(name: str, chosen: Sequence[int]) -> tuple[Any, Trajectories]:
        ran = _run(menus, chosen, rows, rule, held.columns)
        return arm_result(name, outcomes_of(ran, rows, rule=rule, columns=held.columns)), ran

    results, missing, trajectories = {}, {}, {}
    for cell in cells:
        name = cell_name(cell)
        try:
            costs = [m.cost(cell)[: size if cell[2] else small] for m in menus]
        except Abstention as e:
            missing[name] = str(e)
            continue
        results[cell], trajectories[name] = arm(name, [int(np.argmin(c)) for c in costs])
    controls = {}
    picks = {
        "random": [
            int(stream(protocol.seed, "menu random", n).integers(small)) for n in rows.names
        ],
        "oracle": [_best(m, rows.goals[r], rule, held.columns) for r, m in enumerate(menus)],
    }
    for name, chosen in picks.items():
        controls[name], trajectories[name] = arm(name, chosen)
    realised = realised_of(
        setup,
        selection,
        held,
        score,
        protocol.solver.build(),
        criteria,
        rule,
        report,
        "exact",
        guarded=guarded,
    )
    return explanation_of(
        protocol,
        model=model.identity,
        num_cases=len(selection.cases),
        unit=rule.parts[0].unit,
        true_cost="straight",
        search_factor=search_factor,
        results=results,
        controls=controls,
        missing=missing,
        readout=readout,
        realised=replace(
            realised,
            solver="menu",
            notes=(
                *realised.notes,
                f"a fixed menu of {small} plans of the {policy.name} policy replaces search; "
                "nothing is replanned",
            ),
        ),
        stamps=guarded.stamps,
        trajectories=trajectories,
        menu=small,
    )


def _check(protocol: Protocol, task: Task) -> None:
    """Refuse what a menu cannot follow."""
    wanted = {
        "start_rule": "fresh_policy",
        "goal_rule": "fixed_offset",
        "context_init": "history",
        "planner_action_space": "dense_normalised",
        "stop": "success",
    }
    for name, value in wanted.items():
        if getattr(protocol, name) != value:
            raise UsageError(
                f"{name} = {getattr(protocol, name)!r}: a menu of plans on {task.name} needs "
                f"{value!r}. The preset pusht-menu is such a protocol."
            )
    plan = protocol.horizon * protocol.block
    if protocol.budget_steps != plan or protocol.receding != protocol.horizon:
        raise UsageError(
            f"budget_steps = {protocol.budget_steps} and receding = {protocol.receding}: a menu is "
            f"never replanned, so the budget is one whole plan: {plan} steps, receding "
            f"{protocol.horizon}."
        )
    if "num_samples" not in protocol.solver.build().settings:
        raise UsageError(
            f"solver {protocol.solver.name!r} has no num_samples, the menu's number of plans; use "
            "predictive_sampling."
        )


def _episodes(
    task: Task, policy: Policy, protocol: Protocol, columns: tuple[Column, ...]
) -> tuple[Recorded, list[Any]]:
    """Fresh episodes in raw columns, and the task's states at every frame, ready to branch."""
    settings = protocol.fresh
    seeds = fresh_seeds(settings, seed=protocol.seed)
    state = task.reset(None, seeds)
    rngs = RowStreams.of(protocol.seed, "fresh-policy", [str(s) for s in seeds])
    raw, actions, kept = [], [], []
    for t in range(settings.length):
        raw.append(np.asarray(task.observe(state, ("raw",))["raw"], np.float64))
        kept.append(state)
        if t == settings.length - 1:
            actions.append(np.full((len(seeds), task.action_box.width), np.nan))
            break
        chosen = policy.act(task.observe(state, ("state", "goal", "geometry")), rngs)
        actions.append(np.asarray(chosen, np.float64))
        state = task.step(state, chosen)
    n, length = len(seeds), settings.length
    flat = ArrayEpisodes(
        lengths=np.full(n, length),
        actions=np.stack(actions, axis=1).reshape(n * length, -1),
        state=np.stack(raw, axis=1).reshape(n * length, -1),
        columns=columns,
    )
    return Recorded(flat, "fresh", flat.digest), kept


def _menu(
    setup: Setup, policy: Policy, kept: Sequence[Any], row: int, size: int, score: Objective
) -> Menu:
    """Propose, run and cost the plans of one row."""
    task, protocol, runner = setup.task, setup.protocol, setup.runner
    case = setup.rows.cases[int(setup.rows.case[row])]
    name = setup.rows.names[row]
    now = task.branch(kept[case.start], np.full(size, case.episode, np.int64))
    rngs = RowStreams.of(protocol.seed, "menu", [f"{name}/{k}" for k in range(size)])
    states, actions = [], []
    for t in range(protocol.budget_steps + 1):
        states.append(np.asarray(task.observe(now, ("raw",))["raw"], np.float64))
        if t < protocol.budget_steps:
            chosen = policy.act(task.observe(now, ("state", "goal", "geometry")), rngs)
            actions.append(np.asarray(chosen, np.float64))
            now = task.step(now, chosen)
    plans = np.stack(actions, axis=1)  # [P, T, A]
    latents = runner.encode(_frames(setup, now))
    goal = task.branch(kept[case.start + int(case.gap or 0)], np.array([case.episode]))
    aim = runner.encode(_frames(setup, goal))
    imagined = _imagined(setup, kept, case, plans)
    blocks = torch.from_numpy(setup.space.conventions.blocks(plans))[None]

    def model_cost(ends: torch.Tensor) -> np.ndarray:
        return score(ends[None, :, None], aim, blocks)[0].double().numpy()

    reader = in_lengths(setup.readout, task)
    true = np.asarray(task.observe(goal, ("state",))["state"], np.float64)
    ends = np.asarray(task.observe(now, ("state",))["state"], np.float64)
    scale = np.array([getattr(task, "arm", 1.0) if c.unit == "1" else 1.0 for c in task.columns])
    return Menu(
        states=np.stack(states, axis=1),
        actions=plans,
        model_cost=model_cost(imagined),
        decoded_cost=(
            None if reader is None else ((reader.predict(imagined) - true * scale) ** 2).sum(axis=1)
        ),
        latent_cost=model_cost(latents),
        state_cost=(((ends - true) * scale) ** 2).sum(axis=1),
    )


def _read(done: Kept, name: str) -> Menu | None:
    """A row's menu as it was kept; None where it has to be made."""
    held = done.read_arrays("menu", name)
    needed = {f.name for f in fields(Menu)} - {"decoded_cost"}
    if held is None or not needed <= held.keys():
        return None
    return Menu(**{n: held[n] for n in needed}, decoded_cost=held.get("decoded_cost"))


def _write(done: Kept, name: str, menu: Menu) -> None:
    arrays = {f.name: getattr(menu, f.name) for f in fields(Menu)}
    done.write_arrays("menu", name, **{k: v for k, v in arrays.items() if v is not None})


def _imagined(setup: Setup, kept: Sequence[Any], case: Any, plans: np.ndarray) -> torch.Tensor:
    """Latents that the model imagines at the end of every plan, after the observed history."""
    task, skip, h = setup.task, setup.protocol.block, setup.model.history_max
    one = np.array([case.episode])
    seen = [
        _frames(setup, task.branch(kept[case.start - back * skip], one))
        for back in range(h - 1, -1, -1)
    ]
    held = setup.recorded
    assert held is not None
    past = held.actions(case.episode)[case.start - (h - 1) * skip : case.start]
    n = len(plans)
    latents = setup.runner.encode(np.concatenate(seen))
    whole = np.concatenate([np.repeat(past[None], n, axis=0), plans], axis=1)
    history = latents[None].expand(n, *latents.shape).contiguous()
    return setup.runner.rollout(history, setup.space.past_blocks(whole))[:, -1]


def _frames(setup: Setup, state: Any) -> np.ndarray:
    side = setup.model.conventions.image_size
    size = side if side in setup.task.sizes else None
    return np.asarray(setup.task.observe(state, ("pixels",), image_size=size)["pixels"])


def _best(menu: Menu, goal: np.ndarray, rule: SuccessRule, columns: Sequence[Column]) -> int:
    """The plan that fulfils the rule first; where none does, the one that ends nearest."""
    first = rule.first_success(rule.satisfied(menu.states[:, 1:], goal, columns))
    if (first > 0).any():
        return int(np.argmin(np.where(first > 0, first, np.iinfo(np.int64).max)))
    return int(np.argmin(rule.distance(menu.states[:, -1], goal, columns)))


def _run(
    menus: Sequence[Menu],
    chosen: Sequence[int],
    rows: Rows,
    rule: SuccessRule,
    columns: Sequence[Column],
) -> Trajectories:
    """The chosen plans as they ran; a row ends where the rule is fulfilled."""
    states = np.stack([m.states[k] for m, k in zip(menus, chosen, strict=True)])
    actions = np.stack([m.actions[k] for m, k in zip(menus, chosen, strict=True)])
    satisfied = rule.satisfied(states[:, 1:], rows.goals[:, None], columns)
    first = rule.first_success(satisfied)
    budget = actions.shape[1]
    steps = np.where(first > 0, first, budget)
    late = np.arange(budget)[None] >= steps[:, None]
    satisfied = satisfied & ~late
    states[:, 1:][late] = np.nan
    actions[late] = np.nan
    return Trajectories(
        states=states,
        actions=actions,
        satisfied=satisfied,
        steps=steps,
        first_success=first,
        discontinuity=np.zeros(len(rows)),
    )


__all__ = ["Menu", "explain_menu"]
