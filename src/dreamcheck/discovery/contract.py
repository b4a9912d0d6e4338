"""What every search method must do: a suite that runs on ours and on yours.

    check_method(lambda library, *, seed, budget: MyMethod(library, seed=seed, budget=budget))

Each check is a function of the factory, so that a test can run them one by one. A broken promise is
a ``ContractError`` that names the promise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.search import Failure, Method, Outcome, Score
from dreamcheck.discovery.specification import specification_from
from dreamcheck.errors import DreamcheckError, UsageError

Scorer = Callable[[Mapping[str, Value]], float]


class ContractError(DreamcheckError, AssertionError):
    """A method broke a promise of the suite."""


class Factory(Protocol):
    """Makes one restart of the method under test."""

    def __call__(self, library: Library, *, seed: int, budget: int) -> Method: ...


def toy_library(*, labels: tuple[str, ...] = ("calm", "gusty", "storm")) -> Library:
    """360 valid inputs: a grid, an integer and a labelled coordinate, and one rule."""
    specification = specification_from(
        {
            "name": "toy",
            "task": "toy",
            "title": "toy",
            "source": "the contract suite",
            "coordinates": [
                {"name": "x", "kind": "grid", "values": [0.0, 0.5, 1.0, 2.0, 4.0], "unit": "m"},
                {"name": "y", "kind": "grid", "values": [0.0, 1.0, 2.0, 3.0], "unit": "m"},
                {"name": "weather", "kind": "categorical", "values": list(labels)},
                {"name": "delay", "kind": "integer", "values": [0, 1, 2, 4, 8, 16, 32]},
            ],
            "rules": [{"rule": "min_distance", "a": ["x"], "b": ["y"], "min": 0.25}],
        }
    )
    return Library.build(specification)


def toy_score(values: Mapping[str, Value]) -> float:
    """A smooth landscape with a label effect and one interaction; no two inputs are equal."""
    x, y, delay = float(values["x"]), float(values["y"]), float(values["delay"])
    label = {"calm": 0.0, "gusty": 0.4, "storm": -0.3}.get(str(values["weather"]), 0.0)
    return math.sin(1.3 * x) + 0.2 * x * y + label * (1.0 + 0.1 * y) + 0.01 * math.sqrt(delay + x)


def drive(method: Method, scorer: Scorer, *, queries: int | None = None) -> list[str]:
    """Ask and tell one at a time until the method ends or ``queries`` were made; the ids."""
    asked: list[str] = []
    while queries is None or len(asked) < queries:
        ids = method.ask()
        if not ids:
            break
        _require(ids[0] not in asked, f"the id {ids[0]!r} was asked twice")
        values = method.library.values(method.library.index(ids[0]))
        method.tell(ids, [Score(scorer(values))])
        asked += ids
    return asked


def check_method(factory: Factory) -> None:
    """Run every check.

    Raises:
        ContractError: the first broken promise, named.
    """
    for check in CHECKS:
        check(factory)


def asks_its_budget_and_nothing_twice(factory: Factory) -> None:
    """Exactly the budget, distinct, from the library; then nothing."""
    library = toy_library()
    method = factory(library, seed=1, budget=20)
    asked = drive(method, toy_score)
    _require(len(asked) == 20, f"budget 20, but {len(asked)} queries were made")
    _require(len(set(asked)) == 20, "an id was asked twice")
    _require(set(asked) <= set(library.ids()), "an id is not in the library")
    _require(method.ask(3) == [], "ask() went on after the budget was spent")
    _require(tuple(asked) == method.queries, "the trace is not what was asked")


def ends_when_the_library_does(factory: Factory) -> None:
    """A budget beyond the library asks everything once and says exhausted."""
    library = _line(7)
    method = factory(library, seed=2, budget=50)
    asked = drive(method, lambda v: float(v["x"]))
    _require(sorted(asked) == sorted(library.ids()), "an exhausted library was not asked whole")
    _require(method.exhausted and method.finished, "the search does not say it is exhausted")
    _require(method.ask() == [], "ask() went on after the library was exhausted")


def shares_the_scout(factory: Factory) -> None:
    """The scout is the beginning of the restart's shuffled order, scores notwithstanding."""
    library = toy_library()
    method = factory(library, seed=3, budget=16)
    drive(method, toy_score)
    scout = [e.id for e in method.trace if e.scout]
    size = method.parameters.scout
    _require(
        scout == library.scout(3, size) and scout == list(method.queries[:size]),
        f"the scout is not the first {size} inputs of the restart's shared order, marked as scout",
    )


def ranks_ties_by_id(factory: Factory) -> None:
    """Equal scores are ranked by id."""
    method = factory(toy_library(), seed=4, budget=12)
    asked = drive(method, lambda values: 0.25)
    ranked = [r.id for r in method.top_k(5)]
    _require(ranked == sorted(asked)[:5], "equal scores are not ranked by id")


def breaks_ties_by_its_seed(factory: Factory) -> None:
    """Where all unseen inputs are alike, one seed chooses the same twice and many seeds differ.

    Forty labels of one category with equal scores: by symmetry nothing tells two unseen inputs
    apart, so always taking the first or the last of them is an order that is not the seed's.
    """
    runs = [drive(factory(toy_library(), seed=5, budget=12), lambda v: 0.25) for _ in range(2)]
    _require(runs[0] == runs[1], "the same seed asked differently on a flat landscape")
    library = _labels(40)
    ends = []
    for seed in range(12):
        method = factory(library, seed=seed, budget=_scout_size(factory) + 1)
        indices = [library.index(i) for i in drive(method, lambda v: 0.25)]
        unseen = sorted(set(range(len(library))) - set(indices[:-1]))
        ends.append((indices[-1] == unseen[0], indices[-1] == unseen[-1]))
    first, last = zip(*ends, strict=True)
    _require(
        not all(first) and not all(last),
        "a tie between inputs that nothing tells apart is broken by position, not by the seed",
    )


def replays_from_its_record(factory: Factory) -> None:
    """Asked again and told what was recorded, a new instance leaves the same trace."""
    whole = factory(toy_library(), seed=7, budget=18)
    drive(whole, toy_score)
    again = factory(toy_library(), seed=7, budget=18)
    told = whole.outcomes
    while ids := again.ask():
        _require(ids[0] in told, f"the replayed search asked {ids[0]!r}, the record did not")
        again.tell(ids, [told[ids[0]]])
    _require(again.trace == whole.trace, "a replayed record left another trace")


def asks_the_same_whatever_its_budget(factory: Factory) -> None:
    """A smaller budget is the beginning of a larger one; compared budgets share their replay."""
    small, large = (factory(toy_library(), seed=13, budget=b) for b in (9, 18))
    asked = [drive(m, toy_score) for m in (small, large)]
    _require(asked[0] == asked[1][:9], "a search of budget 18 does not begin as one of budget 9")


def continues_from_its_record(factory: Factory) -> None:
    """Restored, a record is continued as if it had never stopped."""
    whole = factory(toy_library(), seed=7, budget=18)
    drive(whole, toy_score)
    outcomes = list(whole.outcomes.values())
    for stop in (1, 4, 11):
        restored = factory(toy_library(), seed=7, budget=18)
        restored.restore(whole.trace[:stop], outcomes[:stop])
        drive(restored, toy_score)
        _require(
            restored.trace == whole.trace, f"restored after {stop} queries, the search went astray"
        )


def stays_finite_on_constant_scores(factory: Factory) -> None:
    """A constant landscape gives finite acquisitions and no warning, whatever the constant."""
    for constant in (0.0, 0.1, -3e5):
        _quietly(factory, toy_library(), lambda v, c=constant: c, queries=15)  # type: ignore[misc]


def survives_three_equal_scouts(factory: Factory) -> None:
    """The first three scores are equal, the rest are not."""
    library = toy_library()
    first = set(library.scout(0, 3))

    def scorer(values: Mapping[str, Value]) -> float:
        return 0.1 if library.id(library.find(values)) in first else toy_score(values)

    _quietly(factory, library, scorer, queries=15)


def survives_near_duplicate_rows(factory: Factory) -> None:
    """Inputs that differ by less than any length scale, with different scores."""
    library = _line(40, values=[i * 1e-9 if i < 30 else float(i) for i in range(40)])
    _quietly(factory, library, lambda v: math.cos(float(v["x"]) * 1e9), queries=20)


def works_with_three_hundred_points(factory: Factory) -> None:
    """Three hundred observations: still finite, still quiet."""
    library = toy_library()
    method = factory(library, seed=8, budget=305)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = method.ask(300)
        _require(
            len(set(ids)) == 300,
            f"300 ids were asked for at once, {len(set(ids))} different ones came",
        )
        method.tell(ids, [Score(toy_score(library.values(library.index(i)))) for i in ids])
        drive(method, toy_score)
    _finite(method)
    _require(len(method.queries) == 305, "the search stopped early at 300 points")


def ignores_the_order_of_labels(factory: Factory) -> None:
    """Declaring a categorical coordinate's labels in another order changes no query."""
    runs = [
        drive(factory(toy_library(labels=labels), seed=9, budget=25), toy_score)
        for labels in (("calm", "gusty", "storm"), ("storm", "calm", "gusty"))
    ]
    _require(runs[0] == runs[1], "reordering the labels of a category changed the search")


def keeps_failures_apart(factory: Factory) -> None:
    """A failed measurement spends budget, is never ranked and never stops the search."""
    library = toy_library()
    method = factory(library, seed=10, budget=24)
    step = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while ids := method.ask():
            # The scout fails whole, and every third query after it.
            failed = step < 8 or step % 3 == 0
            values = library.values(library.index(ids[0]))
            outcome: Outcome = Failure("crash") if failed else Score(toy_score(values))
            method.tell(ids, [outcome])
            step += 1
    _require(step == 24, f"with failures {step} of 24 queries were made")
    _finite(method)
    scored = {i for i, o in method.outcomes.items() if isinstance(o, Score)}
    _require({r.id for r in method.top_k(24)} == scored, "a failure was ranked, or a score was not")


def masks_pending_ids(factory: Factory) -> None:
    """Ids asked ahead are distinct, and the order in which they are told does not matter."""
    runs = []
    for reverse in (False, True):
        library = toy_library()
        method = factory(library, seed=11, budget=20)
        drive(method, toy_score, queries=6)
        ids = method.ask(5)
        _require(len(set(ids) | set(method.queries[:6])) == 11, "a pending id was asked again")
        _require(set(method.pending) == set(ids), "pending ids are not those asked and not told")
        for name in reversed(ids) if reverse else ids:
            method.tell([name], [Score(toy_score(library.values(library.index(name))))])
        drive(method, toy_score)
        runs.append(method.queries)
    _require(runs[0] == runs[1], "the order of arrival changed later proposals")


def refuses_a_score_that_is_not_finite(factory: Factory) -> None:
    """NaN is a failure, not a score; the refusal records nothing."""
    method = factory(toy_library(), seed=12, budget=5)
    ids = method.ask()
    for value in (math.nan, math.inf):
        try:
            method.tell(ids, [Score(value)])
        except UsageError:
            continue
        raise ContractError(f"a score of {value} was accepted")
    method.tell(ids, [Failure("NaN")])


CHECKS: tuple[Callable[[Factory], None], ...] = (
    asks_its_budget_and_nothing_twice,
    ends_when_the_library_does,
    shares_the_scout,
    ranks_ties_by_id,
    breaks_ties_by_its_seed,
    replays_from_its_record,
    continues_from_its_record,
    asks_the_same_whatever_its_budget,
    stays_finite_on_constant_scores,
    survives_three_equal_scouts,
    survives_near_duplicate_rows,
    works_with_three_hundred_points,
    ignores_the_order_of_labels,
    keeps_failures_apart,
    masks_pending_ids,
    refuses_a_score_that_is_not_finite,
)
"""Every check, in order."""


def _line(size: int, *, values: list[float] | None = None) -> Library:
    return Library.build(
        specification_from(
            {
                "name": "line",
                "task": "toy",
                "title": "line",
                "source": "the contract suite",
                "coordinates": [
                    {
                        "name": "x",
                        "kind": "grid",
                        "values": values or [float(i) for i in range(size)],
                    }
                ],
            }
        )
    )


def _scout_size(factory: Factory) -> int:
    return factory(toy_library(), seed=0, budget=1).parameters.scout


def _labels(size: int) -> Library:
    return Library.build(
        specification_from(
            {
                "name": "labels",
                "task": "toy",
                "title": "labels",
                "source": "the contract suite",
                "coordinates": [
                    {
                        "name": "label",
                        "kind": "categorical",
                        "values": [f"l{i:02d}" for i in range(size)],
                    }
                ],
            }
        )
    )


def _quietly(factory: Factory, library: Library, scorer: Scorer, *, queries: int) -> None:
    method = factory(library, seed=0, budget=queries)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = drive(method, scorer)
    _require(len(asked) == queries, f"the search stopped after {len(asked)} of {queries} queries")
    _finite(method)


def _finite(method: Method) -> None:
    values = [e.acquisition for e in method.trace if e.acquisition is not None]
    _require(bool(np.isfinite(values).all()), "an acquisition value is not finite")


def _require(kept: bool, broken: str) -> None:
    if not kept:
        raise ContractError(broken)
