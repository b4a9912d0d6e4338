"""What an allowed time buys: everything, a random sample and a search, or a search beside one.

The unit cost is measured first. Where the whole library fits into the time, search is not needed
and ranks are exact; else a uniform random sample, from which a prevalence follows, shares the time
with a search. A random arm is always there.

Source: spec/evidence.md section 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.discovery.library import Library
from dreamcheck.errors import UsageError
from dreamcheck.evidence.protocol import differences
from dreamcheck.imagination.risk import RiskProbe
from dreamcheck.imagination.runner import Runner
from dreamcheck.progress import Progress
from dreamcheck.stats import clopper_pearson
from dreamcheck.study import basins, editing
from dreamcheck.study.config import Search, SearchPlan, StudyConfig, TimePlan
from dreamcheck.study.measuring import CHUNK, Aggregate, rows_of
from dreamcheck.study.searching import evaluation_of
from dreamcheck.study.study import Bench, Study, library_of, probe_of

LEAST_SAMPLE = 72
"""Fewest random inputs from which a prevalence is stated: with no failure among 72 the two-sided
95 % Clopper-Pearson interval ends just below 5 %."""

LEAST_BUDGET = 16
"""Fewest queries that are called a search. Ours."""

MOST_QUERIES = 256
"""Longest search that a plan makes; time beyond it makes the random sample larger. Ours."""

TIMED_BATCHES, TIMED_ALONE = 2, 3
"""Full batches, and inputs measured alone, that the unit cost is measured on."""

DECIDED = ("methods", "primary", "budget", "restart_seeds")
"""Fields of a search that the plan decides."""


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Wall seconds to evaluate one input on the search seeds.

    batched: in full batches, as samples are. single: alone, as a search must. num_inputs: timed.
    """

    batched: float
    single: float
    num_inputs: int


def unit_cost(
    probe: RiskProbe,
    library: Library,
    config: StudyConfig,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> UnitCost:
    """Measured on random inputs of the library, after a first batch that warms everything up."""
    seeds = config.seeds["search"]
    per_batch = max(1, CHUNK // len(seeds))
    wanted = per_batch * TIMED_BATCHES + TIMED_ALONE
    order = library.shuffled(config.searches[0].restart_seeds[0])
    inputs = [library.values(int(order[k % len(order)])) for k in range(wanted)]

    def seconds(chosen: list[dict[str, Any]]) -> float:
        begun = clock()
        rows_of(probe, [(values, seed) for values in chosen for seed in seeds])
        return clock() - begun

    seconds(inputs[:per_batch])
    batched = [
        seconds(inputs[n * per_batch : (n + 1) * per_batch]) / per_batch
        for n in range(TIMED_BATCHES)
    ]
    alone = [seconds([values]) for values in inputs[-TIMED_ALONE:]]
    mean_batched = max(sum(batched) / len(batched), 1e-9)
    return UnitCost(
        batched=mean_batched,
        single=max(sum(alone) / len(alone), mean_batched),
        num_inputs=wanted,
    )


def share_out(sizes: Mapping[str, int], *, seconds: float, cost: UnitCost) -> dict[str, SearchPlan]:
    """What ``seconds`` buy for every search, by specification.

    The smallest library is served first, each with its share of what is left, so what an
    exhausted library does not need goes to the others.

    Args:
        sizes: specification -> inputs in its library.

    Raises:
        UsageError: not even the shortest search fits; the time that would do is named.
    """
    plans: dict[str, SearchPlan] = {}
    left = seconds
    for place, name in enumerate(sorted(sizes, key=lambda n: (sizes[n], n))):
        share = max(0.0, left) / (len(sizes) - place)
        plans[name] = _plan_one(name, sizes[name], share=share, cost=cost)
        left -= plans[name].expected_s
    return {name: plans[name] for name in sizes}


def _plan_one(name: str, size: int, *, share: float, cost: UnitCost) -> SearchPlan:
    everything = size * cost.batched
    unit = f"{cost.batched:.3g} s per input in batches, {cost.single:.3g} s alone"
    if everything <= share:
        return SearchPlan(
            specification=name, inputs=size, choice="exhaustive", sample=size, budget=size,
            expected_s=everything,
            reason=f"all {size} inputs take about {duration(everything)} ({unit}) and "
            f"{duration(share)} are there: nothing needs to be searched for, ranks are exact",
        )  # fmt: skip
    budget = min(MOST_QUERIES, int(share / 2 / cost.single))
    sample = max(budget, int((share - budget * cost.single) / cost.batched))
    too_many = f"all {size} inputs would take {duration(everything)} of {duration(share)} ({unit})"
    if sample >= LEAST_SAMPLE and budget >= LEAST_BUDGET:
        return SearchPlan(
            specification=name, inputs=size, choice="sample-and-search", sample=sample,
            budget=budget, expected_s=sample * cost.batched + budget * cost.single,
            reason=f"{too_many}: {sample} random inputs tell how common failures are, a search of "
            f"{budget} queries looks for the worst",
        )  # fmt: skip
    budget = int(share / (cost.batched + cost.single))
    if budget < LEAST_BUDGET:
        raise TooShort(name, share, LEAST_BUDGET * (cost.batched + cost.single))
    return SearchPlan(
        specification=name, inputs=size, choice="search-with-random-arm", sample=budget,
        budget=budget, expected_s=budget * (cost.batched + cost.single),
        reason=f"{too_many}, too little for the {LEAST_SAMPLE} random inputs that a prevalence "
        f"needs: a search of {budget} queries beside as many random ones",
    )  # fmt: skip


class TooShort(UsageError):
    """An allowed time that buys no search."""

    def __init__(self, specification: str, share: float, needed: float) -> None:
        self.needed = needed
        super().__init__(
            f"{duration(share)} are left for {specification!r}, and the shortest search with its "
            f"random arm ({LEAST_BUDGET} inputs each) takes about {duration(needed)}."
        )


def rows_of_checks(config: StudyConfig, search: Search, library: Library) -> int:
    """Rows (inputs x seeds) that everything after a search measures, at most.

    Films, failure cards and edits that need no look are left out: they add a few rows.
    """
    checks = config.checks
    search_seeds, held_out, fresh, third = (
        len(config.seeds["search"]), checks.validation_steps[-1],
        len(config.seeds["neighbourhood"]), len(config.seeds.get("reselection") or ()),
    )  # fmt: skip
    validated = 1 + checks.references + 2 * checks.top_k
    rows = validated * held_out * (1 + len(config.siblings or ())) + checks.top_k * search_seeds
    if search.neighbourhoods and checks.anchors:
        ordered = sum(c.kind != "categorical" for c in library.specification.coordinates)
        rows += 4 * checks.anchors * (1 + 2 * ordered) * fresh
    shell = basins.SHELL_SIZE if checks.shell_size is None else checks.shell_size
    radius = checks.shell_radius or basins.RADIUS
    rows += min(basins.MOST, checks.top_k) * (1 + radius * shell) * fresh if shell else 0
    if third:
        rows += (1 + checks.references + checks.top_k) * third
        edits = editing.BUDGET if checks.edit_budget is None else checks.edit_budget
        if edits and library.nominal is not None:
            looks = editing.MOST_EDITS * (editing.CANDIDATES + 1)
            rows += edits * search_seeds + looks * third
    return rows


def within(
    config: StudyConfig,
    bench: Bench,
    *,
    seconds: float,
    tile: int = 64,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> StudyConfig:
    """The protocol with budgets and methods that fit into the allowed time, and the plan in it.

    Raises:
        UsageError: the time is too short; the time that would do is named.
    """
    progress = progress or Progress(quiet=True)
    probe = probe_of(config, bench, Runner(bench.model, tile=tile))
    libraries = {s.specification: library_of(s, bench.task) for s in config.searches}
    progress.say("measuring what one input costs")
    cost = unit_cost(probe, libraries[config.searches[0].specification], config, clock=clock)
    per_row = cost.batched / len(config.seeds["search"])
    checks = per_row * sum(
        rows_of_checks(config, s, libraries[s.specification]) for s in config.searches
    )
    try:
        plans = share_out(
            {name: len(library) for name, library in libraries.items()},
            seconds=seconds - checks,
            cost=cost,
        )
    except TooShort as e:
        enough = checks + e.needed * len(libraries)
        raise UsageError(
            f"--time {duration(seconds)} is too short: the checks after the search take up to "
            f"{duration(checks)}; {e} Allow {duration(1.1 * enough)} or more, or search fewer "
            "specifications (--specification NAME)."
        ) from None
    for name, plan in plans.items():
        progress.say(f"{name}: {plan.choice.replace('-', ' ')}, because {plan.reason}")
    return config.model_copy(
        update={
            "searches": tuple(_planned(s, plans[s.specification]) for s in config.searches),
            "time": TimePlan(
                allowed_s=seconds,
                checks_s=checks,
                batched_s=cost.batched,
                single_s=cost.single,
                timed_inputs=cost.num_inputs,
                searches=tuple(plans.values()),
            ),
        }
    )


def _planned(search: Search, plan: SearchPlan) -> Search:
    """One restart: time goes into depth, a repeated search would say nothing about the model."""
    alone = plan.choice == "exhaustive" or search.primary == "random"
    return search.model_copy(
        update={
            "methods": ("random",) if alone else ("random", search.primary),
            "primary": "random" if alone else search.primary,
            "budget": plan.budget,
            "restart_seeds": search.restart_seeds[:1],
        }
    )


def resumed(frozen: StudyConfig, config: StudyConfig, *, seconds: float) -> StudyConfig:
    """The frozen protocol of a study that was planned for the same time from the same protocol.

    Raises:
        UsageError: it was not; what differs is named.
    """
    if frozen.time is None:
        raise UsageError(
            "the study there was made without --time; leave --time out to go on with it, or choose "
            "another folder."
        )
    if frozen.time.allowed_s != seconds:
        raise UsageError(
            f"the study there was planned for --time {duration(frozen.time.allowed_s)}, which its "
            "protocol froze: give the same time to go on with it, or choose another folder."
        )
    different = differences(_undecided(frozen), _undecided(config))
    if different:
        raise UsageError(
            f"the study there has another protocol ({', '.join(different)} differ). Choose another "
            "folder."
        )
    return frozen


def _undecided(config: StudyConfig) -> dict[str, Any]:
    """What a plan does not decide, for comparison."""
    entries = config.model_dump(mode="json", exclude={"time"}, exclude_none=True)
    for search in entries["searches"]:
        for name in DECIDED:
            search.pop(name)
    return entries


def plan_of(study: Study, search: Search) -> SearchPlan | None:
    """The plan of a search; None where its budget was given as a number."""
    plans = study.config.time.searches if study.config.time else ()
    return next((p for p in plans if p.specification == search.specification), None)


def sample_ahead(study: Study) -> None:
    """Evaluate every planned random sample in batches, and keep the plans and prevalences."""
    for search in study.config.searches:
        plan = plan_of(study, search)
        if plan is None:
            continue
        time_plan = study.config.time
        assert time_plan is not None
        study.keep(
            "time-plan",
            search.specification,
            {
                "spec": search.specification,
                "interface": study.interface,
                **plan.model_dump(mode="json", exclude={"specification"}),
                **time_plan.model_dump(mode="json", exclude={"searches"}),
            },
        )
        _sample(study, search, plan)


def _sample(study: Study, search: Search, plan: SearchPlan) -> None:
    """The random arm's first inputs: a uniform sample of the library without replacement."""
    library, seeds = study.library(search), study.seeds("search")
    ids = library.ids([int(i) for i in library.shuffled(search.restart_seeds[0])[: plan.sample]])
    with study.progress.stage(f"random inputs {search.specification}", len(ids)) as stage:
        measured = study.measured(study.asked(search, ids), seeds, partition="search", stage=stage)
    study.store.commit([evaluation_of(study, search, i, a) for i, a in measured.items()])
    if plan.choice != "search-with-random-arm":
        study.keep("prevalence", search.specification, _prevalence(study, search, plan, measured))


def _prevalence(
    study: Study, search: Search, plan: SearchPlan, measured: Mapping[str, Aggregate]
) -> dict[str, Any]:
    """How common failures are among the library's inputs, each as likely as any other."""
    level, rule = failure_level(study)
    whole = [a for a in measured.values() if a.risk is not None]
    failing = sum(fails(a, level) for a in whole)
    exact = plan.choice == "exhaustive" and len(whole) == len(measured)
    payload: dict[str, Any] = {
        "spec": search.specification,
        "interface": study.interface,
        "distribution": "uniform over the valid inputs of the library",
        "rule": rule,
        "level": level,
        "num_inputs": len(whole),
        "num_failing": failing,
        "num_unmeasured": len(measured) - len(whole),
        "exact": exact,
        "confidence": 0.95,
        "share": None,
        "low": None,
        "high": None,
    }
    if whole:
        payload["share"] = failing / len(whole)
        if not exact:
            low, high = clopper_pearson(failing, len(whole))
            payload |= {"low": low, "high": high}
    return payload


def failure_level(study: Study) -> tuple[float | None, str]:
    """(level, rule): the risk above which an input fails; None: its own frozen-world risk.

    The task's tolerance where risks are in its unit: an error of the position that would decide
    whether the task succeeded. Else a forecast in which nothing moves must be beaten.
    """
    tolerance = getattr(study.bench.task, "tolerance", None)
    physical = study.probe.target.name == "state_probe" and study.probe.discrepancy == "mae"
    if tolerance is not None and physical:
        unit = study.probe.target.unit
        return float(tolerance), f"risk above the task's tolerance of {tolerance:g} {unit}"
    return None, "risk above that of a forecast in which nothing moves"


def fails(a: Aggregate, level: float | None) -> bool:
    """Whether a measured input fails at a level of ``failure_level``."""
    limit = a.frozen if level is None else level
    return a.risk is not None and limit is not None and a.risk > limit


def duration(seconds: float) -> str:
    """Seconds as people say them: "45 s", "20 min", "1 h 30 min"."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h" + (f" {rest} min" if rest else "")
