"""``explain``: where did the success go? The cost, the dynamics and the search, swapped in turn.

On identical episodes, starts, goals and planner noise: {model cost, true-state cost} x {model
dynamics, simulator} x {protocol search, ten times the samples}, plus oracle, random and zero.

Source: spec/evidence.md section 8.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.planning.admission import rule_of
from dreamcheck.planning.atlas import LatentAtlas, build_atlas
from dreamcheck.planning.control import Arm, ModelCosts, Progress
from dreamcheck.planning.evaluate import (
    count_illegal,
    inputs_of,
    outcomes_of,
    prepare,
    realised_of,
    setup_of,
)
from dreamcheck.planning.execution import Rows, Trajectories, run_control
from dreamcheck.planning.film import Film
from dreamcheck.planning.groups import Kept, run_groups
from dreamcheck.planning.guarding import Guard, Guarded
from dreamcheck.planning.objectives import GoalLatent, Objective
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.results import ArmResult, Rate, Realised, arm_result, rate
from dreamcheck.planning.truth import SimulatorDynamics, TrueCost, TrueCostModelDynamics
from dreamcheck.stats import bootstrap_interval, mcnemar_exact
from dreamcheck.tasks.protocol import Task

FACTORS = ("cost", "dynamics", "search")
Cell = tuple[bool, bool, bool]
"""Which factors are swapped for better ones: (cost, dynamics, search)."""

PROTOCOL: Cell = (False, False, False)
ALL_CELLS: tuple[Cell, ...] = tuple(
    (a, b, c) for a, b, c in itertools.product((False, True), repeat=3)
)
WATERFALL_CELLS: tuple[Cell, ...] = (
    (False, False, False),
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (True, True, False),
    (True, True, True),
)
"""Without the two cells that cost most and that no bar or label needs."""


def cell_name(cell: Cell) -> str:
    """ "model cost, model dynamics, protocol search" and so on."""
    return ", ".join(
        (
            "true cost" if cell[0] else "model cost",
            "simulator" if cell[1] else "model dynamics",
            "larger search" if cell[2] else "protocol search",
        )
    )


@dataclass(frozen=True, slots=True)
class Flip:
    """Paired flips from one arm to another: +won episodes, -lost ones, on the headline cases."""

    swap: str
    won: int
    lost: int
    gain: float
    low: float
    high: float
    p: float

    @property
    def text(self) -> str:
        """ "+a/-b"."""
        return f"+{self.won}/−{self.lost}"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the waterfall: a rate with its case-bootstrap interval, and the flips into it."""

    name: str
    rate: Rate
    low: float
    high: float
    flip: Flip | None


@dataclass(frozen=True)
class Explanation:
    """Where success went, for one checkpoint under one protocol.

    cells: results by cell name; missing: cells that could not be measured, and why.
    swaps: each single swap from the protocol's cell. waterfall: cost, dynamics, search, oracle.
    shares: per factor, (smallest, largest) gain over the orders of swapping: they are not
    additive.
    labels: failed case -> "unreachable", "cost", "dynamics", "search" or "interaction".
    fixed_by: failed case -> the single swaps that alone repaired it.
    menu: plans of the fixed menu that replaced search; None where a solver searched.
    """

    label: str
    model: str
    protocol: Mapping[str, Any]
    protocol_digest: str
    num_cases: int
    num_trivial: int
    unit: str
    true_cost: str
    search_factor: int
    cells: Mapping[str, ArmResult]
    controls: Mapping[str, ArmResult]
    missing: Mapping[str, str]
    swaps: tuple[Flip, ...]
    waterfall: tuple[Bar, ...]
    shares: Mapping[str, tuple[float, float]]
    labels: Mapping[str, str]
    fixed_by: Mapping[str, tuple[str, ...]]
    atlas_spacing: float | None
    atlas_error: float | None
    readout: str | None
    readout_mae: tuple[float, ...] | None
    realised: Realised
    stamps: tuple[str, ...] = ()
    menu: int | None = None
    film: Film | None = field(default=None, repr=False)
    trajectories: Mapping[str, Trajectories] = field(default_factory=dict, repr=False)

    @property
    def label_counts(self) -> dict[str, int]:
        """Failed episodes by label."""
        counts = dict.fromkeys(("unreachable", *FACTORS, "interaction"), 0)
        for value in self.labels.values():
            counts[value] += 1
        return counts

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        base = self.waterfall[0]
        best = max(self.swaps, key=lambda s: s.gain, default=None)
        start = f"{base.rate.successes:g} of {base.rate.num_cases} goals reached ({self.label})"
        if best is None or best.gain <= 0:
            return f"{start}; no single better part wins anything back"
        part = {
            "cost": "the model's cost with the true one",
            "dynamics": "the model's dynamics with the simulator's",
            "search": f"the search with one of {self.search_factor} times the samples",
        }[best.swap]
        return f"{start}; replacing {part} alone wins back {best.won} and loses {best.lost}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values; trajectories left out."""
        return {
            "label": self.label,
            "model": self.model,
            "protocol": dict(self.protocol),
            "protocol_digest": self.protocol_digest,
            "num_cases": self.num_cases,
            "num_trivial": self.num_trivial,
            "unit": self.unit,
            "true_cost": self.true_cost,
            "search_factor": self.search_factor,
            "menu": self.menu,
            "headline": self.headline,
            "cells": {k: v.to_dict() for k, v in self.cells.items()},
            "controls": {k: v.to_dict() for k, v in self.controls.items()},
            "missing": dict(self.missing),
            "swaps": [asdict(s) for s in self.swaps],
            "waterfall": [asdict(b) for b in self.waterfall],
            "shares": {k: list(v) for k, v in self.shares.items()},
            "labels": dict(self.labels),
            "label_counts": self.label_counts,
            "fixed_by": {k: list(v) for k, v in self.fixed_by.items()},
            "atlas_spacing": self.atlas_spacing,
            "atlas_error": self.atlas_error,
            "readout": self.readout,
            "readout_mae": None if self.readout_mae is None else list(self.readout_mae),
            "realised": self.realised.to_dict(),
            "film": None if self.film is None else self.film.to_dict(),
            "stamps": list(self.stamps),
        }

    def lines(self) -> tuple[str, ...]:
        """The result for a console."""
        out = [self.headline]
        for name, arm in self.cells.items():
            if arm.success is not None:
                out.append(f"  {name}: {arm.success.successes:g}/{arm.success.num_cases}")
        for name, arm in self.controls.items():
            if arm.success is not None:
                out.append(f"  {name}: {arm.success.successes:g}/{arm.success.num_cases}")
        for name, why in self.missing.items():
            out.append(f"  {name}: not measured ({why})")
        for swap in self.swaps:
            out.append(
                f"  swap {swap.swap}: {swap.text}, {swap.gain:+.1%} [{swap.low:+.1%}, "
                f"{swap.high:+.1%}]"
            )
        for name, (low, high) in self.shares.items():
            out.append(f"  {name}: wins back {low:+.1%} to {high:+.1%} depending on the order")
        counts = ", ".join(f"{n} {k}" for k, n in self.label_counts.items() if n)
        out.append(f"  failed episodes: {counts or 'none'}")
        return tuple(out)


def explain(
    model: WorldModel,
    task: Task,
    protocol: Protocol,
    *,
    readout: Readout | None,
    data: Episodes | None = None,
    objective: Callable[[WorldModel], Objective] | None = None,
    true_cost: TrueCost = "path",
    search_factor: int = 10,
    streams: int = 1,
    cells: Sequence[Cell] = ALL_CELLS,
    guard: Guard | None = None,
    speed: str = "exact",
    progress: Progress | None = None,
    keep: str | Path | None = None,
) -> Explanation:
    """The factorial on TwoRoom.

    The larger search keeps the elites and iterations and multiplies the samples; its first
    iteration contains the protocol's candidates. Latents of simulated places come from an atlas
    whose error is measured.

    Args:
        readout: the task's state from latents; without it the true cost under model dynamics is
            not measured.
        true_cost: "path", the way through the door, or "straight".
        streams: planner streams per episode; with several, flips are of case means over 1/2.
        cells: which of the eight to run; ``WATERFALL_CELLS`` leaves the two dearest out.
        guard, speed: as in ``plan``; speed of the cells with model cost and model dynamics.
        keep: folder for finished groups of episodes, as in ``plan``.

    Raises:
        Abstention: another task than TwoRoom.
        UsageError: as ``plan``.
    """
    if task.name != "tworoom":
        raise Abstention(
            f"explain swaps in simulator dynamics and true costs, which task {task.name} does not "
            "offer in batches; it is written for tworoom. A task that branches by seed and prefix "
            "is explained over a fixed menu of plans: `explain_menu`."
        )
    if PROTOCOL not in cells:
        raise UsageError("cells must contain the protocol's own (False, False, False).")
    protocol = protocol.replace(streams=streams, rng_mode="per_episode")
    task, criteria, held, report, selection = prepare(
        protocol, task, data=data, history=model.history_max
    )
    guarded = Guarded() if guard is None else guard(model, task, held)
    rule = rule_of(protocol, criteria)
    rows = Rows.of(selection.cases, streams)
    setup = setup_of(model, task, protocol, rule, held, rows, readout=readout, progress=progress)
    score: Objective = GoalLatent(model) if objective is None else objective(model)
    missing: dict[str, str] = {}
    atlas: LatentAtlas | None = None
    if any(c[1] and not c[0] for c in cells):
        try:
            side = model.conventions.image_size
            atlas = build_atlas(
                setup.runner,
                task,
                image_size=side if side in task.sizes else None,
                seed=protocol.seed,
            )
        except Abstention as e:
            missing["latent atlas"] = str(e)
    kept = None
    if keep is not None:
        more = {"explain": true_cost, "factor": search_factor}
        kept = Kept.at(keep, {**inputs_of(setup, selection, score, speed), **more})
    solver = protocol.solver.build()
    larger = _larger(protocol, search_factor)
    arms: dict[Cell, Arm] = {}
    trajectories: dict[str, Trajectories] = {}
    for cell in cells:
        name = cell_name(cell)
        try:
            maker = _maker(
                cell, setup.space, model, score, readout, atlas, task, true_cost, speed,
                int(solver.settings.get("num_elites", 1)),
            )  # fmt: skip
            arms[cell] = run_groups(
                setup,
                maker,
                larger if cell[2] else solver,
                log=ModelCosts(model, score, setup.space) if cell == PROTOCOL else None,
                what=name,
                kept=kept,
            )
            trajectories[name] = arms[cell].trajectories
        except Abstention as e:
            missing[name] = str(e)
    controls: dict[str, ArmResult] = {}
    for name in ("random", "zero", "oracle"):
        on = rows if name == "random" else Rows.of(selection.cases, 1)
        ran = run_control(name, task, on, protocol=protocol, rule=rule, columns=held.columns)
        trajectories[name] = ran
        controls[name] = _result(name, ran, on, rule, held.columns, task, None)
    results = {
        cell: _result(
            cell_name(cell), a.trajectories, rows, rule, held.columns, task, a.num_replans
        )
        for cell, a in arms.items()
    }
    return explanation_of(
        protocol,
        model=model.identity,
        num_cases=len(selection.cases),
        unit=rule.parts[0].unit,
        true_cost=true_cost,
        search_factor=search_factor,
        results=results,
        controls=controls,
        missing=missing,
        readout=readout,
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
            replans=arms[PROTOCOL].replans,
            guarded=guarded,
        ),
        stamps=guarded.stamps,
        trajectories=trajectories,
        atlas=atlas,
        film=lambda fixed: _film(fixed, arms, rows, atlas, rule.parts[0].tolerance),
    )


def explanation_of(
    protocol: Protocol,
    *,
    model: str,
    num_cases: int,
    unit: str,
    true_cost: str,
    search_factor: int,
    results: Mapping[Cell, ArmResult],
    controls: Mapping[str, ArmResult],
    missing: Mapping[str, str],
    readout: Readout | None,
    realised: Realised,
    stamps: Sequence[str],
    trajectories: Mapping[str, Trajectories],
    menu: int | None = None,
    atlas: LatentAtlas | None = None,
    film: Callable[[Mapping[str, tuple[str, ...]]], Film | None] | None = None,
) -> Explanation:
    """Waterfall, swaps, shares and labels from the cells' results; fields as ``Explanation``'s.

    Args:
        film: makes the film of one of the episodes that a single swap repaired.
    """
    bars, swaps = _waterfall(results, controls, protocol)
    labels, fixed = _labels(results, controls["oracle"])
    return Explanation(
        label=protocol.label,
        model=model,
        protocol=protocol.model_dump(),
        protocol_digest=protocol.digest,
        num_cases=num_cases,
        num_trivial=results[PROTOCOL].num_trivial,
        unit=unit,
        true_cost=true_cost,
        search_factor=search_factor,
        cells={cell_name(c): r for c, r in results.items()},
        controls=controls,
        missing=missing,
        swaps=swaps,
        waterfall=bars,
        shares=_shares(results),
        labels=labels,
        fixed_by=fixed,
        atlas_spacing=None if atlas is None else atlas.spacing,
        atlas_error=None if atlas is None else atlas.error,
        readout=None if readout is None else readout.identity,
        readout_mae=None if readout is None else tuple(np.asarray(readout.heldout_mae).tolist()),
        realised=realised,
        stamps=tuple(stamps),
        menu=menu,
        film=None if film is None else film(fixed),
        trajectories=trajectories,
    )


def _maker(
    cell: Cell,
    space: Any,
    model: WorldModel,
    score: Objective,
    readout: Readout | None,
    atlas: LatentAtlas | None,
    task: Task,
    kind: TrueCost,
    speed: str,
    num_elites: int,
) -> Any:
    true, simulator, _ = cell
    if simulator:
        if true:
            return SimulatorDynamics(task, space, kind=kind)
        if atlas is None:
            raise Abstention("the latent atlas could not be built")
        return SimulatorDynamics(task, space, atlas=atlas, objective=score)
    if not true:
        return ModelCosts(model, score, space, path=speed, num_elites=num_elites)
    if readout is None:
        raise Abstention(
            "no readout was given: imagined latents have no state to take the true cost of"
        )
    return TrueCostModelDynamics(model, readout, space, ("agent_x", "agent_y"), kind)


def _larger(protocol: Protocol, factor: int) -> Any:
    solver = protocol.solver.build()
    if "num_samples" not in solver.settings:
        raise UsageError(
            f"explain multiplies num_samples; solver {solver.name!r} has none. Use cem, icem, "
            "mppi or predictive_sampling."
        )
    return replace(solver, num_samples=factor * solver.settings["num_samples"])  # type: ignore[type-var]


def _result(
    name: str,
    trajectories: Trajectories,
    rows: Rows,
    rule: Any,
    columns: Any,
    task: Any,
    replans: np.ndarray | None,
) -> ArmResult:
    return arm_result(
        name,
        outcomes_of(
            trajectories,
            rows,
            rule=rule,
            columns=columns,
            num_replans=replans,
            illegal=count_illegal(task, trajectories),
        ),
    )


def _case_means(arm: ArmResult) -> np.ndarray:
    """Success per headline case, [cases]; zero and oracle run once per case."""
    trivial = arm.table("trivial")[1][:, 0] == 1
    return arm.table()[1][~trivial].mean(axis=1)


def flip(before: ArmResult, after: ArmResult, swap: str, *, identity: str) -> Flip:
    """Paired flips from one arm to another."""
    x, y = _case_means(before), _case_means(after)
    won, lost = int(((y > 0.5) & (x <= 0.5)).sum()), int(((y <= 0.5) & (x > 0.5)).sum())
    gaps = y - x
    low = high = float(gaps.mean()) if len(gaps) else 0.0
    if len(gaps) > 1 and np.ptp(gaps) > 0:
        boot = bootstrap_interval(gaps, root_seed=0, identity=f"explain/{identity}")
        low, high = boot.low, boot.high
    elif len(gaps) and not gaps.any():
        # No episode flipped: a bootstrap would say "certainly nothing"; Wilson at 0/n says how
        # many could have.
        none = rate(gaps, streams=1)
        assert none is not None
        low, high = -none.high, none.high
    return Flip(
        swap, won, lost, float(gaps.mean()) if len(gaps) else 0.0, low, high,
        mcnemar_exact(won, lost),
    )  # fmt: skip


def _bar(name: str, arm: ArmResult, into: Flip | None, identity: str) -> Bar:
    assert arm.success is not None
    means = _case_means(arm)
    if len(means) > 1 and np.ptp(means) > 0:
        boot = bootstrap_interval(means, root_seed=0, identity=f"explain-bar/{identity}")
        low, high = max(0.0, boot.low), min(1.0, boot.high)
    else:
        # All alike: a bootstrap would say "no uncertainty"; Wilson keeps a width at 0/n and n/n.
        low, high = arm.success.low, arm.success.high
    return Bar(name, arm.success, low, high, into)


def _waterfall(
    results: Mapping[Cell, ArmResult], controls: Mapping[str, ArmResult], protocol: Protocol
) -> tuple[tuple[Bar, ...], tuple[Flip, ...]]:
    base = results[PROTOCOL]
    if base.success is None:
        raise UsageError("every start is already solved: there is nothing to explain.")
    bars = [_bar("protocol", base, None, "protocol")]
    before = base
    for i, name in enumerate(("true cost", "+ simulator dynamics", "+ larger search")):
        cell: Cell = (i >= 0, i >= 1, i >= 2)
        if cell in results:
            into = flip(before, results[cell], FACTORS[i], identity=f"waterfall/{name}")
            bars.append(_bar(name, results[cell], into, name))
            before = results[cell]
    into = flip(before, controls["oracle"], "oracle", identity="waterfall/oracle")
    bars.append(_bar("oracle", controls["oracle"], into, "oracle"))
    swaps = []
    for i, factor in enumerate(FACTORS):
        one: Cell = tuple(j == i for j in range(3))  # type: ignore[assignment]
        if one in results:
            swaps.append(flip(base, results[one], factor, identity=f"swap/{factor}"))
    return tuple(bars), tuple(swaps)


def _shares(results: Mapping[Cell, ArmResult]) -> dict[str, tuple[float, float]]:
    """Each factor's gain over the orders of swapping, smallest and largest."""
    means = {c: float(_case_means(r).mean()) for c, r in results.items()}
    gains: dict[str, list[float]] = {f: [] for f in FACTORS}
    for order in itertools.permutations(range(3)):
        now = [False, False, False]
        for i in order:
            then = list(now)
            then[i] = True
            a, b = tuple(now), tuple(then)
            if a in means and b in means:
                gains[FACTORS[i]].append(means[b] - means[a])
            now = then
    return {f: (min(g), max(g)) for f, g in gains.items() if g}


def _labels(
    results: Mapping[Cell, ArmResult], oracle: ArmResult
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """One label per failed headline episode.

    "unreachable": the oracle fails within the budget too. A factor: its swap alone, and no other
    alone, repairs the episode. "interaction": none alone does, or several each would.
    """
    ids, _ = results[PROTOCOL].table()
    solved = {c: dict(zip(ids, r.table()[1].mean(axis=1), strict=True)) for c, r in results.items()}
    reach = dict(zip(ids, oracle.table()[1].mean(axis=1), strict=True))
    trivial = dict(zip(ids, results[PROTOCOL].table("trivial")[1][:, 0], strict=True))
    labels: dict[str, str] = {}
    fixed: dict[str, tuple[str, ...]] = {}
    for case in ids:
        if trivial[case] or solved[PROTOCOL][case] > 0.5:
            continue
        alone = []
        for i, factor in enumerate(FACTORS):
            one: Cell = tuple(j == i for j in range(3))  # type: ignore[assignment]
            if one in solved and solved[one][case] > 0.5:
                alone.append(factor)
        fixed[case] = tuple(alone)
        if reach[case] <= 0.5:
            labels[case] = "unreachable"
        elif len(alone) == 1:
            labels[case] = alone[0]
        else:
            labels[case] = "interaction"
    return labels, fixed


def _film(
    fixed: Mapping[str, tuple[str, ...]],
    arms: Mapping[Cell, Arm],
    rows: Rows,
    atlas: LatentAtlas | None,
    radius: float,
) -> Film | None:
    """The repaired episode that began farthest from its goal, cost swaps first."""
    if atlas is None:
        return None
    candidates = [(FACTORS.index(swaps[0]), case) for case, swaps in fixed.items() if swaps]
    if not candidates:
        return None
    first = min(i for i, _ in candidates)
    by_id = {c.id: c for c in rows.cases}

    def far(case: str) -> float:
        return float(np.hypot(*(np.subtract(by_id[case].start_state, by_id[case].goal_state))[:2]))

    case = max((c for i, c in candidates if i == first), key=far)
    one: Cell = tuple(j == first for j in range(3))  # type: ignore[assignment]
    row = next(r for r in range(len(rows)) if rows.cases[int(rows.case[r])].id == case)
    goal = atlas.latents(np.asarray(by_id[case].goal_state)[None, :2])

    def path(arm: Arm) -> np.ndarray:
        return arm.trajectories.states[row, : int(arm.trajectories.steps[row]) + 1, :2]

    def cost(places: np.ndarray) -> np.ndarray:
        return (atlas.latents(places) - goal).pow(2).sum(dim=1).numpy()

    imagined, imagined_cost = [], []
    for step, live, latents in arms[PROTOCOL].imagined:
        where = np.flatnonzero(live == row)
        if len(where):
            z = latents[int(where[0])].flatten(1)
            imagined.append((step, atlas.nearest(z)))
            imagined_cost.append((step, (z - goal).pow(2).sum(dim=1).numpy()))
    executed, swapped = path(arms[PROTOCOL]), path(arms[one])
    return Film(
        case=by_id[case],
        swap=FACTORS[first],
        executed=executed,
        swapped=swapped,
        imagined=tuple(imagined),
        executed_cost=cost(executed),
        swapped_cost=cost(swapped),
        imagined_cost=tuple(imagined_cost),
        success_radius=radius,
    )
