"""Running the searches of a study: ask, measure, commit, tell."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

from dreamcheck.discovery.methods import make_method
from dreamcheck.discovery.parameters import parameters_from
from dreamcheck.discovery.search import Failure, Method, Outcome, Score
from dreamcheck.evidence import Evaluation, SearchTrace, entry_of
from dreamcheck.progress import Stage
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import Aggregate
from dreamcheck.study.study import Study

ALGORITHM = "search-1"
"""Version of the search loop and the methods; part of every trace's key."""

TOP = 16
"""Shortlist length that a trace keeps; validation takes its top_k from it."""


def run_searches(study: Study) -> list[SearchTrace]:
    """Every method and restart of every search; finished ones are read, not repeated.

    The inputs of a restart depend on its own record only, so methods and restarts may meet the
    same input: it is measured once.
    """
    traces = []
    for search in study.config.searches:
        total = search.budget * len(search.methods) * len(search.restart_seeds)
        name = f"search {search.specification}"
        with study.progress.stage(name, total, unit="queries") as stage:
            for restart in search.restart_seeds:
                for method in search.methods:
                    traces.append(run_search(study, search, method, restart, stage=stage))
    return traces


def run_search(
    study: Study, search: Search, method: str, restart: int, *, stage: Stage | None = None
) -> SearchTrace:
    """One restart of one method, to the end of its budget or of the library."""
    library = study.library(search)
    parameters = parameters_from(
        search.parameters.get(method, {}),
        origin=f"searches.{search.specification}.parameters.{method}",
    )
    header: dict[str, Any] = {
        "method": method,
        "params": asdict(parameters),
        "spec": search.specification,
        "interface": study.interface,
        "restart_seed": restart,
        "budget": search.budget,
        "algorithm_version": ALGORITHM,
        "scored_by": _scored_by(study),
    }
    blank = SearchTrace.of(**header, scout=(), queries=(), acquisition=(), outcomes=(), top=())
    stored = study.store.get("trace", blank.key)
    if stored is not None:
        if stage is not None:
            stage.advance(search.budget)
        return entry_of(stored)
    engine = make_method(method, library, seed=restart, budget=search.budget, parameters=parameters)
    best = float("-inf")
    while ids := _propose(engine):
        outcome = evaluate(study, search, ids[0])
        engine.tell(ids, [outcome])
        if isinstance(outcome, Score):
            best = max(best, outcome.value)
        if stage is not None:
            stage.advance(note=f"{method} {restart}: worst so far {best:.2f}")
    told = engine.outcomes
    trace = SearchTrace.of(
        **header,
        scout=tuple(e.id for e in engine.trace if e.scout),
        queries=engine.queries,
        acquisition=tuple(e.acquisition for e in engine.trace),
        outcomes=tuple(
            o.value if isinstance(o := told[i], Score) else None for i in engine.queries
        ),
        failures={i: o.reason for i, o in told.items() if isinstance(o, Failure)},
        top=tuple(r.id for r in engine.top_k(TOP)),
        exhausted=engine.exhausted,
        details={
            "pools": [e.pool for e in engine.trace],
            "tied": [e.tied for e in engine.trace],
        },
    )
    study.store.commit([trace])
    if engine.exhausted and search.budget > len(library):
        study.progress.say(
            f"{search.specification}: the library holds {len(library)} inputs, fewer than the "
            f"budget of {search.budget}; {method} evaluated all of them."
        )
    return trace


def _propose(engine: Method) -> list[str]:
    """The next query, with one BLAS thread: these matrices are small, and several threads only
    wait for each other, most of all on a busy machine."""
    with _blas().limit(limits=1, user_api="blas"):
        return engine.ask()


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def evaluate(study: Study, search: Search, input_id: str) -> Outcome:
    """Measure one input on the search seeds, commit its evaluation, and say the outcome."""
    seeds = study.seeds("search")
    aggregate = study.measured(study.asked(search, [input_id]), seeds, partition="search")[input_id]
    study.store.commit([evaluation_of(study, search, input_id, aggregate)])
    if aggregate.risk is None:
        return Failure(aggregate.failure or "no loss")
    penalty = penalty_of(study, aggregate)
    return Score(aggregate.risk - penalty, active=penalty == 0)


def penalty_of(study: Study, a: Aggregate) -> float:
    """What an input's lack of task activity costs it; 0 where activity plays no part."""
    rule = study.activity_rule
    return 0.0 if rule is None or a.risk is None else rule.penalty(a.activity)


def evaluation_of(study: Study, search: Search, input_id: str, a: Aggregate) -> Evaluation:
    """The evaluation record of an aggregated input."""
    return Evaluation.of(
        input=input_id,
        spec=search.specification,
        interface=study.interface,
        seeds=a.seeds,
        losses=a.losses,
        measurements=a.measurements,
        statistic=study.statistic,
        risk=a.risk,
        frozen_risk=a.frozen,
        floor_risk=a.floor,
        activity=a.activity,
        score=None if a.risk is None else a.risk - penalty_of(study, a),
        stratum=a.stratum,
        failure=a.failure,
        details={"support": a.support},
    )


def _scored_by(study: Study) -> str:
    s = study.statistic
    tail = "" if s.alpha is None else f" alpha={s.alpha} {s.estimator}"
    activity = "" if study.activity_rule is None else f" {study.activity_rule.told}"
    return f"{s.name}{tail} over seeds {list(study.seeds('search'))}{activity}"
