"""Is one method better than another? The inference over independent score tables.

Restarts over one table share its scores, so they say nothing about other tables. The unit here is
a table (checkpoint x task x seed set): restarts are averaged inside it, and the differences of k
tables are tested two-sided, Holm over the comparators.
Source: spec/evidence.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dreamcheck.discovery.compare import Comparison, MethodSummary
from dreamcheck.discovery.tables import NamedTable
from dreamcheck.errors import UsageError
from dreamcheck.stats import (
    SignFlipTest,
    SignTest,
    holm,
    needed_pairs,
    sign_flip_test,
    sign_test,
    spearman,
)
from dreamcheck.streams import stream

LEVEL = 0.05

ALIKE = 0.9
"""Rank correlation from which two tables of one library are said to be hardly two. A convention of
ours: it is told and refuses nothing, since how alike checkpoints really are is also a finding."""

ENDPOINTS: Mapping[str, str] = MappingProxyType(
    {
        "best": "mean best score, in standard deviations of its table's scores",
        "averaged-hits": "threshold-averaged hit rate",
        "top-hit": "share of restarts that evaluate a top input",
        "coverage": "reference-component coverage, mean over restarts",
    }
)
"""What may be the one endpoint that is tested. All are free of the tables' units: risks of
different interfaces are never averaged as they are (law 7)."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A method against a comparator over independent tables.

    differences: method's minus comparator's, one per table, in their order.
    mean: theirs.
    sign, flip: two-sided sign test and sign-flip test; None below ``needed`` tables.
    sign_adjusted, flip_adjusted: their p-values after Holm over the comparators.
    """

    comparator: str
    differences: tuple[float, ...]
    mean: float
    sign: SignTest | None
    sign_adjusted: float | None
    flip: SignFlipTest | None
    flip_adjusted: float | None


@dataclass(frozen=True, slots=True)
class Inference:
    """All contests of one method on one endpoint.

    needed: tables with which one comparison can reach the level; needed_after_holm: with which the
        smallest p-value of all comparisons can.
    reason: why there are no p-values, or why none can reach the level; empty otherwise.
    most_alike: largest Spearman correlation between two tables of one library; None without such a
        pair. dependence: a warning where it is at least ``ALIKE``; empty otherwise.
    """

    method: str
    endpoint: str
    budget: int
    tables: tuple[str, ...]
    contests: tuple[Contest, ...]
    needed: int
    needed_after_holm: int
    reason: str
    most_alike: float | None
    dependence: str


def infer(
    tables: Sequence[NamedTable],
    comparisons: Sequence[Comparison],
    *,
    method: str,
    endpoint: str = "best",
    root_seed: int = 0,
) -> Inference:
    """The two-sided tests over tables, or the number of tables that they need.

    Args:
        tables, comparisons: one of each per table, same methods and budget.
        method: the one that is compared with every other.
        endpoint: a name in ``ENDPOINTS``, declared beforehand.
        root_seed: of the sign-flip test's draws, which more than 20 tables need.

    Raises:
        UsageError: an unknown endpoint, methods or budgets that differ, or two tables that are one.
    """
    if endpoint not in ENDPOINTS:
        raise UsageError(f"endpoint {endpoint!r} is not one of {', '.join(ENDPOINTS)}.")
    _require_independent(tables)
    first = comparisons[0]
    names = [m.name for m in first.methods]
    for t, c in zip(tables, comparisons, strict=True):
        if [m.name for m in c.methods] != names or c.budget != first.budget:
            raise UsageError(
                f"table {t.label!r} was searched with other methods or another budget than "
                f"{tables[0].label!r}; they cannot be paired."
            )
    others = [n for n in names if n != method]
    read = _reader(endpoint, first.top_percents[0])
    differences = {
        n: tuple(
            (read(c.method(method)) - read(c.method(n))) / _unit(t, endpoint)
            for t, c in zip(tables, comparisons, strict=True)
        )
        for n in others
    }
    k = len(tables)
    needed = needed_pairs(level=LEVEL)
    after_holm = needed_pairs(level=LEVEL, comparisons=max(1, len(others)))
    if k < needed:
        reason = (
            f"{k} independent table{'s' * (k != 1)}: the smallest two-sided p is {_smallest(k)}; "
            f"{needed} are needed for one comparison"
        )
        if len(others) > 1:
            reason += f", {after_holm} for {len(others)} after Holm"
    elif k < after_holm:
        reason = (
            f"{k} independent tables: after Holm over {len(others)} comparisons the smallest "
            f"p is {len(others) * 2.0 ** (1 - k):.3g}; {after_holm} are needed to reach {LEVEL:g}"
        )
    else:
        reason = ""
    most_alike, dependence = _dependence(tables)
    signs: list[SignTest] = []
    flips: list[SignFlipTest] = []
    if k >= needed and others:
        signs = [sign_test(differences[n]) for n in others]
        flips = [
            sign_flip_test(differences[n], rng=stream(root_seed, "sign-flip-tables", n))
            for n in others
        ]
        adjusted = holm([s.p for s in signs]), holm([f.p for f in flips])
    return Inference(
        method=method,
        endpoint=endpoint,
        budget=first.budget,
        tables=tuple(t.label for t in tables),
        contests=tuple(
            Contest(
                comparator=n,
                differences=differences[n],
                mean=float(np.mean(differences[n])),
                sign=signs[i] if signs else None,
                sign_adjusted=float(adjusted[0][i]) if signs else None,
                flip=flips[i] if flips else None,
                flip_adjusted=float(adjusted[1][i]) if flips else None,
            )
            for i, n in enumerate(others)
        ),
        needed=needed,
        needed_after_holm=after_holm,
        reason=reason,
        most_alike=most_alike,
        dependence=dependence,
    )


def _smallest(k: int) -> str:
    return f"{min(1.0, 2.0 ** (1 - k)):.3g}"


def _reader(endpoint: str, percent: int) -> Callable[[MethodSummary], float]:
    readers: dict[str, Callable[[MethodSummary], float]] = {
        "best": lambda m: m.best.mean,
        "averaged-hits": lambda m: m.averaged_hits.mean,
        "top-hit": lambda m: m.top[percent].hit,
        "coverage": lambda m: m.top[percent].coverage.mean,
    }
    return readers[endpoint]


def _unit(table: NamedTable, endpoint: str) -> float:
    """Population std of a table's scores where the endpoint is a score; 1 elsewhere."""
    if endpoint != "best":
        return 1.0
    scores = table.table.scores[~table.table.failed]
    spread = float(scores.std())
    # On a constant table every method's best is that constant and every difference is 0.
    return spread if spread > 0 else 1.0


def _dependence(tables: Sequence[NamedTable]) -> tuple[float | None, str]:
    """The most alike pair of tables of one library, and a warning where it is too alike."""
    found: list[tuple[float, str, str]] = []
    for i, a in enumerate(tables):
        for b in tables[:i]:
            specs = [t.table.library.specification.identity for t in (a, b)]
            both = ~(a.table.failed | b.table.failed) if specs[0] == specs[1] else np.zeros(0, bool)
            if both.sum() >= 3:
                rho = spearman(a.table.scores[both], b.table.scores[both])
                if rho.defined:
                    found.append((rho.value, b.label, a.label))
    if not found:
        return None, ""
    rho_, first, second = max(found)
    if rho_ < ALIKE:
        return rho_, ""
    return rho_, (
        f"tables {first!r} and {second!r} rank their inputs alike (Spearman {rho_:.2f}), so they "
        "are hardly two units: tables of other checkpoints or tasks say more than other seeds"
    )


def _require_independent(tables: Sequence[NamedTable]) -> None:
    """Law 7's other half: one set of scores is one table, however often it is named."""
    seen: dict[str, str] = {}
    ways: dict[str, str] = {}
    for t in tables:
        if t.table.digest in seen:
            raise UsageError(
                f"tables {seen[t.table.digest]!r} and {t.label!r} hold the same scores: they are "
                "one table. Name tables of other checkpoints, tasks or seeds."
            )
        seen[t.table.digest] = t.label
        if not t.measured_on:
            continue
        way = repr((t.measured_on["interface"], t.measured_on["seeds"]))
        if way in ways:
            raise UsageError(
                f"tables {ways[way]!r} and {t.label!r} were measured by one interface on the same "
                "seeds: they are not independent. Name tables of other checkpoints, tasks or seeds."
            )
        ways[way] = t.label
