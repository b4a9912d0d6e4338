"""Cached replay: one evaluated library, many paired restarts of every method.

Every method reads the same stored score of an input, so a replay changes only the order in which
scores are revealed. What comes out speaks for this one table: restarts differ in the search's own
randomness (spec/evidence.md section 7).
Source: spec/discovery.md sections 4 and 5.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from dreamcheck.digest import digest_arrays
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.methods import make_method, method_named
from dreamcheck.discovery.parameters import SearchParameters
from dreamcheck.discovery.search import Failure, Outcome, Score
from dreamcheck.errors import EvidenceError, IncompleteError, UsageError

SEEDS_PER_JOB = 16


class ScoreTable:
    """The stored score of every input of a library.

    scores: float64 [N] in library order; finite, and NaN where the measurement failed.
    active: bool [N], task-active inputs; all of them where the protocol has no activity.
    failed: bool [N], inputs whose measurement ended without a score. A search that asks one is
        told so: it spends budget and teaches the method nothing.
    digest: SHA-256 over these, which names the table a replay is conditional on.
    """

    def __init__(
        self,
        library: Library,
        scores: np.ndarray,
        *,
        active: np.ndarray | None = None,
        failed: np.ndarray | None = None,
    ) -> None:
        """A table from arrays in library order.

        Raises:
            UsageError: not one row per input, a failed row with a score, or nothing but failures.
            IncompleteError: a row is missing (neither finite nor failed); the first is named.
        """
        scores = np.array(scores, dtype=np.float64)
        active = np.ones(len(library), bool) if active is None else np.asarray(active, dtype=bool)
        failed = np.zeros(len(library), bool) if failed is None else np.asarray(failed, dtype=bool)
        if scores.shape != (len(library),) or not active.shape == failed.shape == scores.shape:
            raise UsageError(
                f"scores of shape {scores.shape}, activity of shape {active.shape} and failures of "
                f"shape {failed.shape} do not fit a library of {len(library)} inputs."
            )
        both = np.flatnonzero(np.isfinite(scores) & failed)
        if len(both):
            first = int(both[0])
            raise UsageError(
                f"input {library.id(first)} {library.values(first)} has the score "
                f"{scores[first]:g} and is marked failed; a measurement is one or the other."
            )
        missing = np.flatnonzero(~np.isfinite(scores) & ~failed)
        if len(missing):
            first = int(missing[0])
            raise IncompleteError(
                f"the score table of {library.specification.name!r} lacks {len(missing)} of "
                f"{len(library)} inputs; the first is {library.id(first)} {library.values(first)}. "
                "Evaluate them (a measurement that failed is marked as failed), or search online "
                "instead of replaying."
            )
        if failed.all():
            raise UsageError(
                f"every measurement of {library.specification.name!r} failed; there is no score to "
                "search for."
            )
        scores[failed] = np.nan  # one spelling, whatever marked the failure
        self.library = library
        self.scores = scores
        self.active = active & ~failed
        self.failed = failed
        arrays = {"scores": scores, "active": self.active}
        self.digest = digest_arrays(arrays | ({"failed": failed} if failed.any() else {}))

    @classmethod
    def from_scores(cls, library: Library, scores: Mapping[str, Outcome]) -> ScoreTable:
        """A table from outcomes by id; ids of other libraries are refused.

        Raises:
            SpecificationError: an id that the library does not hold.
            IncompleteError: an input without an outcome; the first is named.
        """
        values = np.full(len(library), np.nan)
        active = np.ones(len(library), dtype=bool)
        failed = np.zeros(len(library), dtype=bool)
        for name, outcome in scores.items():
            index = library.index(name)
            if isinstance(outcome, Score):
                values[index], active[index] = outcome.value, outcome.active
            else:
                failed[index] = True
        return cls(library, values, active=active, failed=failed)

    def outcome(self, index: int) -> Outcome:
        """What a search that asks this input is told."""
        if self.failed[index]:
            return Failure("failed in the score table")
        return Score(float(self.scores[index]), bool(self.active[index]))


@dataclass(frozen=True, slots=True)
class Runs:
    """Every restart of one method.

    queries: library index of each query, [restarts, budget]; -1 after the library ran out.
    scores: theirs; NaN there, and for a measurement that failed.
    best: reported best of each restart [restarts]: over task-active queries where it has any.
    """

    queries: np.ndarray
    scores: np.ndarray
    best: np.ndarray

    def best_so_far(self) -> np.ndarray:
        """Largest score up to each query, [restarts, budget]."""
        return np.fmax.accumulate(self.scores, axis=1)

    def cumulative_hits(self, threshold: int) -> np.ndarray:
        """Share of restarts at or above threshold / 100 after each query, [budget]."""
        return (self.best_so_far() >= threshold / 100).mean(axis=0)


@dataclass(frozen=True, slots=True)
class Replay:
    """Paired restarts of several methods over one table; row r of every method is one pair.

    scout: queries that all methods share; the smallest where restarts differ in it.
    exhausted: the budget was larger than the library, so every run ended early.
    """

    table: ScoreTable
    budget: int
    restarts: tuple[int, ...]
    runs: Mapping[str, Runs]
    scout: int
    exhausted: bool

    def first(self, budget: int) -> Replay:
        """The same restarts stopped after ``budget`` queries.

        No method's proposals depend on its budget, so one replay serves all smaller ones.

        Raises:
            UsageError: a budget below 1 or above the replay's, or at which some run has no score.
        """
        if not 1 <= budget <= self.budget:
            raise UsageError(f"budget = {budget}; this replay holds 1 to {self.budget} queries.")
        runs = {
            name: _runs(self.table, whole.queries[:, :budget], self.restarts, name=name)
            for name, whole in self.runs.items()
        }
        return replace(
            self,
            budget=budget,
            runs=runs,
            scout=min(self.scout, budget),
            exhausted=budget > len(self.table.library),
        )


def replay(
    table: ScoreTable,
    *,
    methods: Sequence[str],
    restarts: Sequence[int],
    budget: int,
    parameters: SearchParameters | None = None,
    exceptions: Mapping[int, SearchParameters] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Run every method from every restart seed over the table.

    The result does not depend on ``workers``.

    Args:
        table: the evaluated library.
        methods: names in ``METHODS``, or classes as ``package.module:Class``.
        restarts: restart seeds, distinct.
        budget: queries per run.
        parameters: of the protocol.
        exceptions: restart seed -> parameters of that restart, where they differ.
        workers: processes.
        progress: called with (runs done, runs in all).

    Raises:
        UsageError: unknown or repeated names, repeated seeds, or a run whose every query failed.
        EvidenceError: two methods' scouts differ (never, unless a method breaks its contract).
    """
    for name in methods:
        method_named(name)
    if not methods or len(set(methods)) != len(methods):
        raise UsageError(f"methods must be distinct and at least one; got {list(methods)}.")
    if not restarts or len(set(restarts)) != len(restarts):
        raise UsageError("restart seeds must be distinct and at least one.")
    parameters = parameters or SearchParameters()
    jobs = [
        (name, tuple(restarts[start : start + SEEDS_PER_JOB]))
        for start in range(0, len(restarts), SEEDS_PER_JOB)
        for name in methods
    ]
    used = {seed: (exceptions or {}).get(seed, parameters) for seed in restarts}
    context = (table, budget, used)
    found: dict[str, list[np.ndarray]] = {name: [] for name in methods}
    done, total = 0, len(methods) * len(restarts)

    def collect(name: str, queries: np.ndarray) -> None:
        nonlocal done
        found[name].append(queries)
        done += len(queries)
        if progress is not None:
            progress(done, total)

    if workers <= 1:
        with threadpool_limits(1):
            for job in jobs:
                collect(job[0], _run_job(context, job))
    else:
        with ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("forkserver"),
            initializer=_start_worker,
            initargs=(context,),
        ) as pool:
            for job, queries in zip(jobs, pool.map(_run_in_worker, jobs), strict=True):
                collect(job[0], queries)
    runs = {
        name: _runs(table, np.concatenate(parts), restarts, name=name)
        for name, parts in found.items()
    }
    scouts = np.minimum([used[seed].scout for seed in restarts], min(budget, len(table.library)))
    _check_scouts(runs, scouts)
    return Replay(
        table=table,
        budget=budget,
        restarts=tuple(restarts),
        runs=runs,
        scout=int(scouts.min()),
        exhausted=budget > len(table.library),
    )


_Context = tuple[ScoreTable, int, dict[int, SearchParameters]]
_Job = tuple[str, tuple[int, ...]]
_worker_context: _Context | None = None


def _start_worker(context: _Context) -> None:
    global _worker_context
    _worker_context = context
    threadpool_limits(1)


def _run_in_worker(job: _Job) -> np.ndarray:
    assert _worker_context is not None
    return _run_job(_worker_context, job)


def _run_job(context: _Context, job: _Job) -> np.ndarray:
    table, budget, parameters = context
    name, seeds = job
    queries = np.full((len(seeds), budget), -1, dtype=np.int64)
    for r, seed in enumerate(seeds):
        method = make_method(
            name, table.library, seed=seed, budget=budget, parameters=parameters[seed]
        )
        step = 0
        while ids := method.ask():
            index = table.library.index(ids[0])
            method.tell(ids, [table.outcome(index)])
            queries[r, step] = index
            step += 1
    return queries


def _runs(table: ScoreTable, queries: np.ndarray, restarts: Sequence[int], *, name: str) -> Runs:
    asked = queries >= 0
    scores = np.where(asked, table.scores[queries], np.nan)
    active = np.where(asked & table.active[queries], scores, np.nan)
    some = np.isfinite(active).any(axis=1)
    best = np.where(some, np.fmax.reduce(active, axis=1), np.fmax.reduce(scores, axis=1))
    empty = np.flatnonzero(~np.isfinite(best))
    if len(empty):
        raise UsageError(
            f"restart {restarts[int(empty[0])]} of {name!r} has no score: all "
            f"{int(asked[empty[0]].sum())} queries failed in the table. Raise the budget, or leave "
            "that restart out."
        )
    return Runs(queries=queries, scores=scores, best=np.asarray(best))


def _check_scouts(runs: Mapping[str, Runs], scouts: np.ndarray) -> None:
    """Every method's first scouts[r] queries of restart r are the same."""
    names = list(runs)
    first = runs[names[0]].queries
    within = np.arange(first.shape[1]) < scouts[:, None]
    for name in names[1:]:
        if (within & (first != runs[name].queries)).any():
            raise EvidenceError(
                f"methods {names[0]!r} and {name!r} did not share their scout; their runs are not "
                "paired."
            )
