"""``plan``: one checkpoint under one protocol, beside its controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from dreamcheck import __version__
from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.admission import Feasibility, audit, rule_of
from dreamcheck.planning.cases import Selection
from dreamcheck.planning.control import (
    Arm,
    ModelCosts,
    Progress,
    Replan,
    Setup,
    run_planner,
)
from dreamcheck.planning.execution import Rows, Trajectories, run_control
from dreamcheck.planning.groups import Kept, run_groups
from dreamcheck.planning.guarding import Guard, Guarded
from dreamcheck.planning.objectives import GoalLatent, Objective, objective_identity
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.recorded import Recorded, fresh_episodes, recorded
from dreamcheck.planning.results import (
    ArmResult,
    Evaluation,
    Outcome,
    Realised,
    arm_result,
    check_committed,
    optimism_of,
)
from dreamcheck.planning.routes import illegal_steps, with_collision
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.tasks.criteria import SuccessRule, TaskCriteria, load_criteria
from dreamcheck.tasks.protocol import Column, Task

CONTROLS = ("random", "zero", "oracle")


class Prepared(NamedTuple):
    """What is settled before a model is loaded (P7).

    task: under the protocol's collision rule. held: the episodes of starts and goals.
    """

    task: Task
    criteria: TaskCriteria
    held: Recorded
    report: Feasibility
    selection: Selection


def episodes_of(protocol: Protocol, task: Task, *, data: Episodes | None = None) -> Recorded:
    """The episodes that starts and goals come from: recorded ones, or generated now.

    Raises:
        UsageError: the start rule needs recorded episodes, and none or unusable ones were given.
    """
    if protocol.start_rule == "fresh_policy":
        task = with_collision(task, protocol.collision)
        return fresh_episodes(task, protocol.fresh, seed=protocol.seed)
    if data is None:
        raise UsageError(
            f"start_rule = {protocol.start_rule!r} takes starts and goals from recorded episodes: "
            "give data, or use start_rule = 'fresh_policy' (episodes generated now)."
        )
    return recorded(data)


def prepare(
    protocol: Protocol,
    task: Task,
    *,
    data: Episodes | None = None,
    criteria: TaskCriteria | None = None,
    history: int = 1,
) -> Prepared:
    """Everything that is settled before a model is loaded: data, audit, cases (P7).

    Args:
        history: latents the model reads, for ``context_init = "history"``; 1 where it is not yet
            known: what fails then fails for any model.

    Raises:
        UsageError: the protocol's task, data, list or goals cannot be used; the field is named.
    """
    if protocol.task != task.name:
        raise UsageError(
            f"protocol {protocol.name} is for task {protocol.task!r}, not {task.name!r}."
        )
    task = with_collision(task, protocol.collision)
    criteria = criteria or load_criteria(task.name)
    held = episodes_of(protocol, task, data=data)
    if protocol.rest_start and any("velocity" in c.name for c in held.columns):
        raise UsageError(
            "rest_start: this task's state has velocities; placing starts at rest is not "
            "implemented for it. Leave rest_start out: velocities are then restored."
        )
    report, selection = audit(protocol, held, criteria, history=history)
    return Prepared(task, criteria, held, report, selection)


def plan(
    model: WorldModel | Callable[[], WorldModel],
    task: Task,
    protocol: Protocol,
    *,
    data: Episodes | None = None,
    objective: Callable[[WorldModel], Objective] | Objective | None = None,
    readout: Readout | None = None,
    criteria: TaskCriteria | None = None,
    controls: Sequence[str] = CONTROLS,
    streams: int | None = None,
    speed: str = "exact",
    log: bool = True,
    guard: Guard | None = None,
    prepared: Prepared | None = None,
    progress: Progress | None = None,
    keep: str | Path | None = None,
) -> Evaluation:
    """Planning success of one checkpoint under one protocol, with its controls.

    Args:
        model: the checkpoint, or a function that loads it: called only after the audit passed.
            With context_init = "history" the audit is then repeated for the model's history.
        data: recorded episodes; not needed for start_rule = "fresh_policy".
        objective: the planner's cost, or a function of the model that makes it; the squared
            distance to the goal's latent by default.
        readout: state from latents, for optimism in task units.
        controls: arms to run beside the planner, on the same cases; one that the task does not
            offer is left out with the reason. Without "random" the result says that it has no
            floor (P14).
        streams: planner streams averaged inside an episode; the protocol's (3) by default.
        speed: "exact", "generic" (step by step), or "screened" (checked bfloat16).
        log: per replan, compare imagined with realised outcomes (optimism).
        guard: asked once the model is loaded; its stamps and readings go into the result (law 2).
        prepared: what ``prepare`` gave for this protocol, task and data, to spare a second run.
        keep: folder for finished groups of episodes: stopped at any point, the same call goes on
            from there.

    Raises:
        UsageError: protocol, data, goals or actions that cannot be used, with the field's name.
        Abstention: the model or task lacks what the protocol needs.
    """
    if speed not in ("exact", "generic", "screened"):
        raise UsageError(f"speed = {speed!r} is not one of exact, generic, screened.")
    if streams is not None:
        protocol = protocol.replace(streams=streams)
    given = model if isinstance(model, WorldModel) else None
    if prepared is None:
        history = 1 if given is None else given.history_max
        prepared = prepare(protocol, task, data=data, criteria=criteria, history=history)
    task, criteria, held, report, selection = prepared
    loaded = given if given is not None else model()  # type: ignore[operator]
    if protocol.context_init == "history":
        report, selection = audit(protocol, held, criteria, history=loaded.history_max)
    guarded = Guarded() if guard is None else guard(loaded, task, held)
    rule = rule_of(protocol, criteria)
    score = _objective(objective, loaded)
    rows = Rows.of(selection.cases, protocol.streams)
    setup = setup_of(loaded, task, protocol, rule, held, rows, readout=readout, progress=progress)
    solver = protocol.solver.build()
    costs = ModelCosts(
        loaded,
        score,
        setup.space,
        path=speed,
        num_elites=int(solver.settings.get("num_elites", 1)),
    )
    logged = replace(costs, path="exact") if log else None
    if protocol.rng_mode == "shared":
        arm = _one_by_one(setup, costs, solver, logged)
    else:
        kept = None
        if keep is not None:
            kept = Kept.at(keep, {**inputs_of(setup, selection, score, speed), "log": log})
        arm = run_groups(setup, costs, solver, log=logged, what="planner", kept=kept)
    trajectories = {"planner": arm.trajectories}
    missing: dict[str, str] = {}
    for name in controls:
        try:
            # A control without randomness is the same on every stream.
            on = rows if name == "random" else Rows.of(selection.cases, 1)
            trajectories[name] = run_control(
                name, task, on, protocol=protocol, rule=rule, columns=held.columns
            )
        except Abstention as e:
            missing[name] = str(e)
    if "random" not in controls:
        missing["random"] = (
            "the caller did not ask for it: this rate stands without its floor (P14)"
        )
    results = _results(trajectories, selection, protocol, rule, held.columns, task, arm)
    pooled = [r.out_of_range for r in arm.replans]
    made = Evaluation(
        realised=realised_of(
            setup,
            selection,
            held,
            score,
            solver,
            criteria,
            rule,
            report,
            speed,
            replans=arm.replans,
            guarded=guarded,
        ),
        feasibility=report,
        planner=results.pop("planner"),
        controls=results,
        controls_missing=missing,
        optimism=optimism_of(arm.replans if log else (), rows.case, unit=rule.parts[0].unit),
        near_tie_replans=sum(r.near_ties > 0 for r in arm.replans),
        out_of_range_share=float(np.mean(pooled)),
        plan_out_of_range_share=float(np.mean([r.plan_out_of_range for r in arm.replans])),
        screening=(
            arm.screening.to_dict() if speed == "screened" and arm.screening is not None else None
        ),
        unit=rule.parts[0].unit,
        stamps=guarded.stamps,
        selection=selection,
        replans=arm.replans,
        trajectories=trajectories,
    )
    check_committed(made)
    return made


def inputs_of(setup: Setup, selection: Selection, score: Objective, speed: str) -> dict[str, Any]:
    """Everything an arm's outcomes depend on, for the name of the folder they are kept in."""
    return {
        "dreamcheck": __version__,
        "protocol": setup.protocol.digest,
        "cases": selection.list_digest,
        "model": setup.model.identity,
        "conventions": setup.model.conventions.digest,
        "objective": objective_identity(score, setup.model),
        "readout": None if setup.readout is None else setup.readout.identity,
        "rule": setup.rule.digest,
        "task": setup.task.version,
        "numerics": setup.runner.profile,
        "speed": speed,
    }


def setup_of(
    model: WorldModel,
    task: Task,
    protocol: Protocol,
    rule: SuccessRule,
    held: Recorded,
    rows: Rows,
    *,
    readout: Readout | None = None,
    progress: Progress | None = None,
) -> Setup:
    """What every arm on these rows shares.

    Raises:
        UsageError: the model's actions exceed the task's action box, or its blocks have another
            length than the protocol's.
    """
    c = model.conventions
    if c.frameskip != protocol.block:
        raise UsageError(
            f"block = {protocol.block} environment steps, but this model was trained with "
            f"frameskip {c.frameskip}: its predictions jump that far."
        )
    space = PlannerSpace(protocol.planner_action_space, c, task.action_box, protocol.driving)
    return Setup(
        task=task,
        protocol=protocol,
        rule=rule,
        columns=tuple(held.columns),
        rows=rows,
        space=space,
        model=model,
        runner=Runner(model),
        recorded=held,
        readout=readout,
        progress=progress,
    )


def outcomes_of(
    trajectories: Trajectories,
    rows: Rows,
    *,
    rule: SuccessRule,
    columns: Sequence[Column],
    num_replans: np.ndarray | None = None,
    illegal: np.ndarray | None = None,
) -> list[Outcome]:
    """Per-episode outcomes of one arm (P16)."""
    names = columns
    goals = rows.goals
    start = rule.distance(rows.starts, goals, names)
    trivial = rule.satisfied(rows.starts, goals, names)
    out = []
    for r in range(len(rows)):
        case = rows.cases[int(rows.case[r])]
        steps = int(trajectories.steps[r])
        states = trajectories.states[r, : steps + 1]
        distances = rule.distance(states, goals[r], names)
        out.append(
            Outcome(
                case=case.id,
                episode=case.episode,
                start=case.start,
                gap=case.gap,
                stream=int(rows.stream[r]),
                success=bool(trajectories.first_success[r] >= 0),
                at_end=bool(steps and trajectories.satisfied[r, steps - 1]),
                steps=(
                    int(trajectories.first_success[r])
                    if trajectories.first_success[r] >= 0
                    else steps
                ),
                start_distance=float(start[r]),
                final_distance=float(distances[-1]),
                min_distance=float(distances.min()),
                trivial=bool(trivial[r]),
                replans=0 if num_replans is None else int(num_replans[r]),
                illegal_steps=None if illegal is None else int(illegal[r]),
                discontinuity=float(trajectories.discontinuity[r]),
                geometry=case.geometry,
                pair_id=case.pair_id,
            )
        )
    return out


def count_illegal(task: Any, trajectories: Trajectories) -> np.ndarray | None:
    """Illegal steps per row, where the task's routes can be checked (TwoRoom, default layout)."""
    if task.name != "tworoom":
        return None
    n = len(trajectories.steps)
    layout = task.reset(None, [0] * n).layout
    return illegal_steps(trajectories.states[:, :, :2], layout).sum(axis=1)


def _results(
    trajectories: dict[str, Trajectories],
    selection: Selection,
    protocol: Protocol,
    rule: SuccessRule,
    columns: Sequence[Column],
    task: Task,
    arm: Arm,
) -> dict[str, ArmResult]:
    made: dict[str, list[Outcome]] = {}
    for name, t in trajectories.items():
        rows = Rows.of(selection.cases, len(t.steps) // len(selection.cases))
        made[name] = outcomes_of(
            t,
            rows,
            rule=rule,
            columns=columns,
            num_replans=arm.num_replans if name == "planner" else None,
            illegal=count_illegal(task, t),
        )
    random = made.get("random")
    floor = None if random is None else float(np.mean([o.final_distance for o in random]))
    return {
        name: arm_result(name, o, random_mean_final=floor if name == "planner" else None)
        for name, o in made.items()
    }


def _one_by_one(setup: Setup, costs: ModelCosts, solver: Any, log: ModelCosts | None) -> Arm:
    """The release's mode: one generator draws the episodes, then feeds all planning in order."""
    assert setup.recorded is not None
    generator = np.random.default_rng(setup.protocol.seed)
    from dreamcheck.planning.cases import eligible

    p = setup.protocol
    flags = setup.recorded.need_terminated(p.episode_filter) if p.episode_filter != "none" else None
    if p.episode_list is None:
        usable = eligible(p, setup.recorded.lengths, terminated=flags)
        generator.choice(usable, min(p.num_eval, len(usable)), replace=False)
    arms = []
    for i in range(len(setup.rows)):
        one = Rows((setup.rows.cases[i],), np.zeros(1, np.int64), np.zeros(1, np.int64))
        arms.append(
            run_planner(replace(setup, rows=one, generator=generator), costs, solver, log=log)
        )
    t = [a.trajectories for a in arms]
    joined = Trajectories(
        *(np.concatenate([getattr(x, f) for x in t]) for f in Trajectories.__dataclass_fields__)
    )
    replans = tuple(replace(r, row=i) for i, a in enumerate(arms) for r in a.replans)
    return Arm(joined, replans, np.concatenate([a.num_replans for a in arms]))


def realised_of(
    setup: Setup,
    selection: Selection,
    held: Recorded,
    score: Objective,
    solver: Any,
    criteria: TaskCriteria,
    rule: SuccessRule,
    report: Feasibility,
    speed: str,
    *,
    replans: Sequence[Replan] = (),
    guarded: Guarded | None = None,
) -> Realised:
    """The protocol as it came about.

    Args:
        replans: of the planner under test, whose solver's iterations and candidates were counted.
    """
    p = setup.protocol
    guarded = guarded or Guarded()
    gaps = [c.gap for c in selection.cases if c.gap is not None]
    notes = [f"{flag}: {why}" for flag, why in zip(report.flags, report.reasons, strict=True)]
    if p.rest_start:
        notes.append("rest_start has no effect: the task's state has no velocity")
    if p.perturbation is not None and not setup.runner.takes_levels:
        notes.append("perturbed frames were rounded and clipped to 8 bits: this model takes bytes")
    if p.rng_mode == "shared":
        notes.append("rng_mode = shared: outcomes depend on the episodes planned before")
    return Realised(
        protocol=p.model_dump(),
        protocol_digest=p.digest,
        label=p.label,
        model=setup.model.identity,
        conventions=setup.model.conventions.digest,
        objective=score.name,
        solver=solver.name,
        solver_settings=solver.settings,
        driving_digest=p.driving.digest,
        success_digest=rule.digest,
        task=setup.task.name,
        task_version=setup.task.version,
        data_source=held.source,
        data_digest=held.digest,
        list_digest=selection.list_digest,
        num_cases=len(selection.cases),
        num_eligible=selection.num_eligible,
        num_episodes=selection.num_episodes,
        moved_starts=selection.moved_starts,
        span_min=selection.span_min,
        span_mean=selection.span_mean,
        span_max=selection.span_max,
        gap_min=min(gaps) if gaps else None,
        gap_mean=float(np.mean(gaps)) if gaps else None,
        gap_max=max(gaps) if gaps else None,
        streams=p.streams,
        history=setup.model.history_max,
        numerics={**setup.runner.profile, "speed": speed},
        notes=tuple(notes),
        iterations=_range(r.iterations for r in replans),
        candidates=_range(r.candidates for r in replans),
        domain_guard=guarded.domain_guard,
        norm_audit=guarded.norm_audit,
        committed_digest=selection.committed_digest,
        committed=selection.committed,
    )


def _range(counts: Iterable[int | None]) -> tuple[int, int] | None:
    """Least and most; None where nothing was counted."""
    known = [c for c in counts if c is not None]
    return (min(known), max(known)) if known else None


def _objective(
    given: Callable[[WorldModel], Objective] | Objective | None, model: WorldModel
) -> Objective:
    if given is None:
        return GoalLatent(model)
    if hasattr(given, "name") and hasattr(given, "unit"):
        return cast(Objective, given)
    return given(model)
