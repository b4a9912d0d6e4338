"""Ask/tell search over a library: what every method shares.

A method knows a library and outcomes, nothing else. Its proposals depend only on its seed, its
parameters, the ordered record (ids asked, outcomes told) and which ids are still pending; so a
search is resumed by replaying the record.
Source: spec/discovery.md section 3.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dreamcheck.discovery.geometry import GridGeometry
from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.parameters import SearchParameters
from dreamcheck.errors import UsageError
from dreamcheck.streams import stream

TIE = 1e-9
"""Acquisition values within TIE * max(1, |a|) of the best are one tie: their order would be
rounding noise, which another machine rounds otherwise."""

MIN_SPREAD = 1e-6
"""Least spread of observed scores that standardises an acquisition."""


@dataclass(frozen=True, slots=True)
class Score:
    """A finished measurement.

    value: the search score R_eval, finite.
    active: whether the input is task-active; protocols without activity leave it True.
    """

    value: float
    active: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """A measurement that ended without a score: a crash, NaN, a time-out. Never a score."""

    reason: str


Outcome = Score | Failure


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a method wants to ask next.

    index: library index.
    acquisition: its acquisition value; None where the method has none (scout, random).
    pool: where it came from ("scout", "random", "global", "local", "both", "all", "frontier").
    parent: the anchor whose replacement it is, as an index; None without one.
    tied: candidates that shared the best acquisition value, at least 1.
    """

    index: int
    acquisition: float | None = None
    pool: str = "random"
    parent: int | None = None
    tied: int = 1


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of the search trace.

    step: position in the order of asking, from 0.
    pending: ids that were asked and not yet told; above 0 the search was asynchronous.
    The other fields are ``Proposal``'s, with ids for indices.
    """

    step: int
    id: str
    acquisition: float | None
    pool: str
    parent: str | None
    tied: int
    scout: bool
    pending: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """One entry of the shortlist."""

    id: str
    score: float
    active: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """The scored part of the record, in the order of asking. At least one entry.

    indices: library indices [t]; scores: [t].
    mean, spread: of the scores; the spread is max(population std, 1e-6).
    unseen: bool [N], neither asked before nor pending.
    step: number of the query about to be made.
    """

    indices: np.ndarray
    scores: np.ndarray
    mean: float
    spread: float
    unseen: np.ndarray
    step: int


class LibraryView:
    """A library with its graph and geometry, made once and shared by methods and restarts."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.graph = Graph(library)
        self.geometry = GridGeometry(library)

    @classmethod
    def of(cls, library: Library) -> LibraryView:
        """The library's view; the same object every time."""
        view = getattr(library, "_search_view", None)
        if view is None:
            view = cls(library)
            library._search_view = view  # type: ignore[attr-defined]
        return view


class Method(ABC):
    """Base of the search methods; subclasses say what to ask after the scout."""

    name: ClassVar[str]

    def __init__(
        self,
        library: Library,
        *,
        seed: int,
        budget: int,
        parameters: SearchParameters | None = None,
        failures_spend_budget: bool = True,
    ) -> None:
        """One restart.

        Args:
            library: what may be asked.
            seed: restart seed: it fixes the scout order and every tie.
            budget: distinct inputs to ask, at least 1; more than the library holds is allowed,
                and the search then ends with ``exhausted``.
            parameters: of the protocol; the LeWM PushT column when None.
            failures_spend_budget: whether an input that failed counts.

        Raises:
            UsageError: a negative seed or a budget below 1.
        """
        if budget < 1:
            raise UsageError(f"budget = {budget}; a search needs at least one query.")
        if seed < 0:
            raise UsageError(f"seed = {seed}; restart seeds are 0 or greater.")
        self.library = library
        self.seed = seed
        self.budget = budget
        self.parameters = parameters or SearchParameters()
        self.failures_spend_budget = failures_spend_budget
        view = LibraryView.of(library)
        self.graph = view.graph
        self.geometry = view.geometry
        self._order: list[int] = []
        self._outcomes: dict[int, Outcome] = {}
        self._trace: list[TraceEntry] = []
        self._unseen = np.ones(len(library), dtype=bool)
        self._next_shuffled = 0

    # The record ----------------------------------------------------------------------------

    @property
    def trace(self) -> tuple[TraceEntry, ...]:
        """Every query so far, in the order of asking."""
        return tuple(self._trace)

    @property
    def queries(self) -> tuple[str, ...]:
        """Ids in the order of asking."""
        return tuple(e.id for e in self._trace)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Outcome of every id that was told, in the order of asking."""
        return {self.library.id(i): self._outcomes[i] for i in self._order if i in self._outcomes}

    @property
    def pending(self) -> tuple[str, ...]:
        """Ids asked and not yet told."""
        return tuple(self.library.id(i) for i in self._order if i not in self._outcomes)

    @property
    def spent(self) -> int:
        """Queries that count against the budget; a pending one does."""
        if self.failures_spend_budget:
            return len(self._order)
        return len(self._order) - sum(isinstance(o, Failure) for o in self._outcomes.values())

    @property
    def exhausted(self) -> bool:
        """Whether every input of the library has been asked."""
        return len(self._order) == len(self.library)

    @property
    def finished(self) -> bool:
        """Whether ``ask`` has nothing left to propose: budget spent or library exhausted."""
        return self.exhausted or self.spent >= self.budget

    def top_k(self, k: int) -> tuple[Ranked, ...]:
        """The k best evaluated inputs: score downwards, ties by id.

        Only task-active ones when there are any.
        """
        ranked = [
            Ranked(id=self.library.id(i), score=o.value, active=o.active)
            for i, o in self._outcomes.items()
            if isinstance(o, Score)
        ]
        active = [r for r in ranked if r.active]
        return tuple(sorted(active or ranked, key=lambda r: (-r.score, r.id))[:k])

    # Ask and tell --------------------------------------------------------------------------

    def ask(self, n: int = 1) -> list[str]:
        """Up to n ids to measure; fewer or none when the budget or the library ends.

        Asking for several at once, or again before telling, is the asynchronous mode: pending
        inputs are only masked, and the trace says how many there were.
        """
        ids = []
        for _ in range(n):
            if self.finished:
                break
            proposal = self._propose()
            entry = TraceEntry(
                step=len(self._order),
                id=self.library.id(proposal.index),
                acquisition=proposal.acquisition,
                pool=proposal.pool,
                parent=None if proposal.parent is None else self.library.id(proposal.parent),
                tied=proposal.tied,
                scout=proposal.pool == "scout",
                pending=len(self._order) - len(self._outcomes),
            )
            self._record(proposal.index, entry)
            ids.append(entry.id)
        return ids

    def tell(self, ids: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """Outcomes of asked ids, in any order of arrival.

        Raises:
            UsageError: an id that was not asked or was told before, a score that is not finite
                (a measurement that gave NaN is a ``Failure``), or lists of different lengths.
                Nothing is recorded then.
        """
        if len(ids) != len(outcomes):
            raise UsageError(f"{len(ids)} ids came with {len(outcomes)} outcomes.")
        asked = set(self._order)
        indices: list[int] = []
        for name, outcome in zip(ids, outcomes, strict=True):
            index = self.library.index(name)
            if index not in asked:
                raise UsageError(f"{name!r} was told but never asked by this search.")
            if index in self._outcomes or index in indices:
                raise UsageError(f"{name!r} was told twice; a measurement has one outcome.")
            if isinstance(outcome, Score) and not math.isfinite(outcome.value):
                raise UsageError(
                    f"{name!r} has the score {outcome.value}; pass Failure('not finite') for a "
                    "measurement without a finite score."
                )
            indices.append(index)
        self._outcomes.update(zip(indices, outcomes, strict=True))

    def restore(self, trace: Sequence[TraceEntry], outcomes: Sequence[Outcome | None]) -> None:
        """Take over a record without proposing it again; None marks an id still pending.

        Raises:
            UsageError: this search has begun, or the record names an id twice.
        """
        if self._order:
            raise UsageError("a search that has begun cannot take over another record.")
        if len(trace) != len(outcomes):
            raise UsageError(f"{len(trace)} trace entries came with {len(outcomes)} outcomes.")
        for entry in trace:
            index = self.library.index(entry.id)
            if not self._unseen[index]:
                raise UsageError(f"the record asks {entry.id!r} twice.")
            self._record(index, entry)
        told = [(e.id, o) for e, o in zip(trace, outcomes, strict=True) if o is not None]
        self.tell([i for i, _ in told], [o for _, o in told])

    # For subclasses ------------------------------------------------------------------------

    @abstractmethod
    def _next(self, observed: Observed) -> Proposal:
        """The query after the scout; ``observed`` holds at least one score."""

    def _rng(self, role: str, step: int) -> np.random.Generator:
        """Generator of one decision of this restart, keyed by what it is for and its step."""
        return stream(self.seed, f"discovery-{role}", step)

    def _shuffled_next(self, pool: str = "random") -> Proposal:
        """The next input of the restart's shuffled order that was not asked."""
        order = self.library.shuffled(self.seed)
        while not self._unseen[order[self._next_shuffled]]:
            self._next_shuffled += 1
        return Proposal(index=int(order[self._next_shuffled]), pool=pool)

    def _best(self, observed: Observed, count: int) -> np.ndarray:
        """Positions in ``observed`` of the best scores: score downwards, ties by id."""
        # A stable sort on the score first; only equal scores need their ids.
        scores = observed.scores
        if len(np.unique(scores)) == len(scores):
            return np.argsort(-scores)[:count]
        ids = [self.library.id(i) for i in observed.indices]
        ranked = sorted(range(len(ids)), key=lambda p: (-scores[p], ids[p]))
        return np.array(ranked[:count], dtype=np.int64)

    def _argmax(self, candidates: np.ndarray, values: np.ndarray, *, step: int) -> tuple[int, int]:
        """Position of the largest value, ties broken by the restart's generator, and their number.

        ``candidates`` must ascend, so that a tie's order is the library's and not the pool's.
        """
        best = float(values.max())
        tied = np.flatnonzero(values >= best - TIE * max(1.0, abs(best)))
        if len(tied) == 1:
            return int(tied[0]), 1
        return int(tied[self._rng("tie", step).integers(len(tied))]), len(tied)

    # Internals -----------------------------------------------------------------------------

    def _record(self, index: int, entry: TraceEntry) -> None:
        self._order.append(index)
        self._unseen[index] = False
        self._trace.append(entry)

    def _propose(self) -> Proposal:
        step = len(self._order)
        if step < self.parameters.scout:
            return self._shuffled_next("scout")
        scored = [i for i in self._order if isinstance(self._outcomes.get(i), Score)]
        if not scored:
            # Nothing to learn from yet: every scout failed or is still pending.
            return self._shuffled_next()
        scores = np.array([self._outcomes[i].value for i in scored])  # type: ignore[union-attr]
        return self._next(
            Observed(
                indices=np.array(scored, dtype=np.int64),
                scores=scores,
                mean=float(scores.mean()),
                spread=max(float(scores.std()), MIN_SPREAD),
                unseen=self._unseen,
                step=step,
            )
        )
