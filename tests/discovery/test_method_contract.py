"""Every method passes the published contract, and the contract notices methods that break it."""

import numpy as np
import pytest

from dreamcheck.discovery import METHODS, Failure, Score, make_method
from dreamcheck.discovery.contract import (
    CHECKS,
    ContractError,
    check_method,
    drive,
    toy_library,
    toy_score,
)
from dreamcheck.discovery.methods import GPUCB, Random
from dreamcheck.discovery.search import Proposal, Ranked
from dreamcheck.errors import UsageError


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_keeps_the_contract(name, check):
    check(lambda library, *, seed, budget: make_method(name, library, seed=seed, budget=budget))


class Repeats(Random):
    def _next(self, observed):
        return Proposal(index=int(observed.indices[0]))


class FirstInLine(Random):
    """Breaks ties by position instead of by its seed."""

    def _next(self, observed):
        return Proposal(index=int(np.flatnonzero(observed.unseen)[0]))


class Remembers(Random):
    """Keeps state outside the record."""

    def _next(self, observed):
        self.calls = getattr(self, "calls", 0) + 1
        unseen = np.flatnonzero(observed.unseen)
        return Proposal(index=int(unseen[(7 * self.calls + self.seed) % len(unseen)]))


class Dice(Random):
    """Draws from a generator that is not the restart's."""

    def _next(self, observed):
        return Proposal(index=int(np.random.default_rng().choice(np.flatnonzero(observed.unseen))))


class Hurries(GPUCB):
    """Looks at what is left of its budget."""

    def _next(self, observed):
        if self.budget - observed.step <= 4:
            return Proposal(index=int(np.flatnonzero(observed.unseen)[self.seed % 3]))
        return super()._next(observed)


class NoScout(Random):
    """Begins with an order of its own, and marks no scout."""

    def _propose(self):
        unseen = np.flatnonzero(self._unseen)
        return Proposal(index=int(self._rng("own", len(self._trace)).choice(unseen)))


class CountsPositions(Random):
    """Chooses by the order in which labels were declared."""

    def __init__(self, library, **more):
        super().__init__(library, **more)
        labels = [c for c in library.coordinates if c.name == "weather"]
        self.favourite = labels[0].values[0] if labels else None

    def _next(self, observed):
        unseen = np.flatnonzero(observed.unseen)
        rows = [i for i in unseen if self.favourite in self.library.values(i).values()]
        return Proposal(index=int(self._rng("own", observed.step).choice(rows or unseen)))


class RanksFailures(Random):
    def top_k(self, k):
        failed = [i for i, o in self.outcomes.items() if isinstance(o, Failure)]
        return (*super().top_k(k), *(Ranked(id=i, score=0.0, active=True) for i in failed))[:k]


class AsksPending(Random):
    """Forgets what it asked until it is told."""

    def ask(self, n=1):
        if n > 1 and self.pending == () and self.spent < self.budget:
            return [self.library.id(self._propose().index) for _ in range(n)]
        return super().ask(n)


class NotANumber(GPUCB):
    def _next(self, observed):
        found = super()._next(observed)
        return Proposal(index=found.index, acquisition=float("inf"))


class OwnScout(Random):
    def _shuffled_next(self, pool="random"):
        return Proposal(index=int(np.flatnonzero(self._unseen)[-1]), pool=pool)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Repeats, "twice"),
        (FirstInLine, "broken by position"),
        (Remembers, "astray"),
        (Dice, "the same seed asked differently"),
        (Hurries, "does not begin as one of budget 9"),
        (NoScout, "marked as scout"),
        (CountsPositions, "reordering the labels"),
        (RanksFailures, "a failure was ranked"),
        (AsksPending, "different ones came"),
        (NotANumber, "not finite"),
        (OwnScout, "scout"),
    ],
)
def test_a_broken_method_is_caught_by_the_promise_it_breaks(broken, promise):
    def factory(library, *, seed, budget):
        return broken(library, seed=seed, budget=budget)

    with pytest.raises(ContractError, match=promise):
        check_method(factory)


def test_a_failure_can_be_declared_free():
    method = make_method("random", toy_library(), seed=0, budget=5, failures_spend_budget=False)
    asked = 0
    while ids := method.ask():
        asked += 1
        method.tell(ids, [Failure("time-out") if asked % 2 else Score(1.0)])
    assert asked == 10 and method.spent == 5


def test_telling_an_id_that_was_not_asked_or_twice_is_refused():
    library = toy_library()
    method = make_method("random", library, seed=0, budget=5)
    (asked,) = method.ask()
    other = next(i for i in library.ids() if i != asked)
    with pytest.raises(UsageError, match="never asked"):
        method.tell([other], [Score(1.0)])
    method.tell([asked], [Score(1.0)])
    with pytest.raises(UsageError, match="told twice"):
        method.tell([asked], [Score(1.0)])


def test_the_shortlist_prefers_task_active_inputs_when_there_are_any():
    method = make_method("random", toy_library(), seed=0, budget=3)
    ids = method.ask(3)
    method.tell(ids, [Score(5.0, active=False), Score(1.0), Score(2.0)])
    assert [r.id for r in method.top_k(3)] == [ids[2], ids[1]]
    none = make_method("random", toy_library(), seed=0, budget=3)
    ids = none.ask(3)
    none.tell(ids, [Score(5.0, active=False), Score(1.0, active=False), Failure("crash")])
    assert [r.id for r in none.top_k(3)] == [ids[0], ids[1]]


def test_every_method_of_a_seed_begins_with_the_same_scout():
    library = toy_library()
    begins = set()
    for name in METHODS:
        method = make_method(name, library, seed=21, budget=6)
        drive(method, toy_score)
        begins.add(method.queries[:3])
    assert begins == {tuple(library.scout(21, 3))}


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(UsageError, match="basinlens"):
        make_method("bassinlens", toy_library(), seed=0, budget=3)


def test_the_suite_is_published_for_methods_of_ones_own(monkeypatch, tmp_path):
    from dreamcheck.testing import METHOD_CHECKS
    from dreamcheck.testing import check_method as published

    assert METHOD_CHECKS == CHECKS and len({c.__name__ for c in CHECKS}) == len(CHECKS)
    (tmp_path / "my_search.py").write_text(
        "import numpy as np\n"
        "from dreamcheck.discovery import Method\n"
        "from dreamcheck.discovery.search import Proposal\n\n\n"
        "class Farthest(Method):\n"
        "    name = 'farthest'\n\n"
        "    def _next(self, observed):\n"
        "        unseen = np.flatnonzero(observed.unseen)\n"
        "        gaps = self.library.psi[unseen][:, None] - self.library.psi[observed.indices]\n"
        "        nearest = (gaps ** 2).sum(axis=2).min(axis=1)\n"
        "        at, tied = self._argmax(unseen, nearest, step=observed.step)\n"
        "        return Proposal(int(unseen[at]), float(nearest[at]), 'all', tied=tied)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = "my_search:Farthest"
    published(lambda library, *, seed, budget: make_method(name, library, seed=seed, budget=budget))
    with pytest.raises(UsageError, match="cannot be imported"):
        make_method("my_search:Nearest", toy_library(), seed=0, budget=1)
    with pytest.raises(UsageError, match="is no search method"):
        make_method("my_search:Proposal", toy_library(), seed=0, budget=1)
