"""The integrity checks that come before any aggregation: each returns what it found.

Source: spec discovery.md section 7. One bad record costs one finding, not the rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from dreamcheck.errors import DreamcheckError, EvidenceError
from dreamcheck.evidence.aggregate import risk_of
from dreamcheck.evidence.keys import DEFAULT_RESET
from dreamcheck.evidence.library import library_table
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.records import Evaluation, Neighbourhood, SearchTrace, entry_of
from dreamcheck.evidence.store import Store

Regenerate = Callable[[str], Sequence[str]]
"""Anchor id -> ids of its radius-1 ball, made again from typed coordinates."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: which check, which record, what is wrong."""

    check: str
    kind: str
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.kind} {self.key}: {self.message}"


def check_all(store: Store, *, regenerate: Regenerate | None = None) -> list[Finding]:
    """Every check of this file; neighbourhoods are regenerated when a function is given."""
    found = [
        *budgets(store),
        *unique_queries(store),
        *ids_in_library(store),
        *common_scouts(store),
        *disjoint_seeds(store),
        *cached_values(store),
        *recomputed(store),
    ]
    if regenerate is not None:
        found += neighbourhoods(store, regenerate)
    return found


def budgets(store: Store) -> list[Finding]:
    """No restart queries more inputs than its budget."""
    return [
        Finding("budget", "trace", key, f"{len(t.queries)} queries exceed the budget {t.budget}")
        for key, t in _entries(store, "trace")
        if len(t.queries) > t.budget
    ]


def unique_queries(store: Store) -> list[Finding]:
    """Ids are unique inside a restart, queries begin with the scout, the top was queried."""
    found = []
    for key, t in _entries(store, "trace"):
        repeated = sorted(i for i, n in Counter(t.queries).items() if n > 1)
        if repeated:
            found.append(Finding("unique queries", "trace", key, f"queried twice: {repeated}"))
        if t.queries[: len(t.scout)] != t.scout:
            found.append(
                Finding("unique queries", "trace", key, "the queries do not begin with the scout")
            )
        strangers = sorted(set(t.top) - set(t.queries))
        if strangers:
            found.append(
                Finding("unique queries", "trace", key, f"in the top, never queried: {strangers}")
            )
    return found


def ids_in_library(store: Store) -> list[Finding]:
    """Every id of a trace, evaluation, validation or neighbourhood is in its valid library."""
    found: list[Finding] = []
    known: dict[str, set[str]] = {}
    for key, library in _entries(store, "library"):
        try:
            # Records name their library by its key or by its specification's name, which is
            # unique inside a study.
            known[key] = known[library.spec] = set(library_table(store.artifacts, library).ids)
        except DreamcheckError as e:
            found.append(Finding("ids in library", "library", key, str(e)))
    for kind in ("trace", "evaluation", "validation", "neighbourhood"):
        for key, entry in _entries(store, kind):
            if kind == "trace":
                ids: Iterable[str] = (*entry.queries, *entry.scout, *entry.top)
            elif kind == "neighbourhood":
                ids = (entry.anchor, *entry.ids)
            else:
                ids = (entry.input,)
            if kind in ("validation", "evaluation") and entry.input == DEFAULT_RESET:
                continue  # a control indexed by seed, not a tuple of the library
            if entry.spec not in known:
                message = f"no readable library record for specification {entry.spec}"
                found.append(Finding("ids in library", kind, key, message))
                continue
            strangers = sorted(set(ids) - known[entry.spec])
            if strangers:
                message = f"not in the valid library: {strangers[:5]}"
                found.append(Finding("ids in library", kind, key, message))
    return found


def common_scouts(store: Store) -> list[Finding]:
    """Methods of one comparison share scout ids, in order, and the scout's outcomes."""
    found = []
    first: dict[tuple[Any, ...], tuple[str, SearchTrace]] = {}
    for key, t in _entries(store, "trace"):
        pair = (t.spec, t.interface, t.restart_seed, t.scored_by)
        other_key, other = first.setdefault(pair, (key, t))
        if other.scout != t.scout:
            found.append(
                Finding(
                    "common scouts", "trace", key,
                    f"scout {t.scout} of {t.method} differs from {other.scout} of {other.method} "
                    f"({other_key}) on restart seed {t.restart_seed}",
                )
            )  # fmt: skip
            continue
        for i, (mine, theirs) in enumerate(zip(t.outcomes, other.outcomes, strict=False)):
            if i < len(t.scout) and not _equal(mine, theirs):
                found.append(
                    Finding(
                        "common scouts", "trace", key,
                        f"scout {t.scout[i]} scored {mine} here and {theirs} in {other.method} "
                        f"({other_key})",
                    )
                )  # fmt: skip
    return found


def disjoint_seeds(store: Store) -> list[Finding]:
    """Search, validation and neighbourhood seeds are pairwise disjoint, and as declared."""
    used: dict[str, set[int]] = {}
    found = []
    for kind, partition in (
        ("evaluation", "search"), ("validation", ""), ("neighbourhood", ""), ("measurement", ""),
    ):  # fmt: skip
        for key, payload in _payloads(store, kind):
            name = payload.get("partition", partition)
            seeds = [payload["seed"]] if "seed" in payload else payload.get("seeds", [])
            if kind != "measurement":
                used.setdefault(kind, set()).update(seeds)
            strangers = sorted(set(seeds) - set(store.seeds.get(name, ())))
            if strangers:
                found.append(
                    Finding(
                        "disjoint seeds", kind, key,
                        f"seeds {strangers[:5]} are not in partition {name!r}",
                    )
                )  # fmt: skip
    for a, b in combinations(sorted(used), 2):
        common = sorted(used[a] & used[b])
        # Validation and neighbourhoods may declare one further partition in common.
        if common and "evaluation" in (a, b):
            found.append(Finding("disjoint seeds", a, "*", f"shares seeds {common[:5]} with {b}s"))
    return found


def neighbourhoods(store: Store, regenerate: Regenerate) -> list[Finding]:
    """Neighbourhoods made again from typed coordinates equal the stored ids, without duplicates."""
    found = []
    for key, n in _entries(store, "neighbourhood"):
        again = set(regenerate(n.anchor))
        if len(set(n.ids)) != len(n.ids):
            found.append(Finding("neighbourhoods", "neighbourhood", key, "an id is stored twice"))
        if again != set(n.ids):
            extra, lost = sorted(set(n.ids) - again), sorted(again - set(n.ids))
            found.append(
                Finding(
                    "neighbourhoods", "neighbourhood", key,
                    f"anchor {n.anchor}: stored but not generated {extra}, "
                    f"generated but not stored {lost}",
                )
            )  # fmt: skip
    return found


def cached_values(store: Store) -> list[Finding]:
    """An input has one score, in every method's trace and in its evaluation record."""
    found = []
    scores: dict[tuple[Any, ...], tuple[float | None, str]] = {}
    evaluated: dict[tuple[Any, ...], set[float | None]] = {}
    for _, e in _entries(store, "evaluation"):
        evaluated.setdefault((e.spec, e.interface, e.input), set()).add(e.score)
    for key, t in _entries(store, "trace"):
        for input_id, outcome in zip(t.queries, t.outcomes, strict=True):
            name = (t.spec, t.interface, t.scored_by, input_id)
            known, place = scores.setdefault(name, (outcome, f"{t.method} ({key})"))
            if not _equal(known, outcome):
                message = f"input {input_id} scored {outcome} here and {known} in {place}"
                found.append(Finding("cached values", "trace", key, message))
            stored = evaluated.get((t.spec, t.interface, input_id))
            if stored is not None and not any(_equal(s, outcome) for s in stored):
                told = ", ".join(str(s) for s in stored)
                message = f"input {input_id} scored {outcome}; its evaluation record says {told}"
                found.append(Finding("cached values", "trace", key, message))
    return found


def recomputed(store: Store) -> list[Finding]:
    """Losses equal the measurements they cite, and every risk and score follows from them."""
    losses = {key: _place(payload) for key, payload in _payloads(store, "measurement")}
    found = []
    for kind in ("evaluation", "validation"):
        for key, e in _entries(store, kind):
            row = [
                (e.input, s, k, v)
                for s, k, v in zip(e.seeds, e.measurements, e.losses, strict=True)
            ]
            messages = [*_against_measurements(row, e.interface, losses)]
            messages += _against_losses("risk", e.risk, e.losses, e.statistic)
            if isinstance(e, Evaluation) and e.risk is not None:
                score = e.risk - e.activity_weight * e.activity_violation
                if not _equal(score, e.score):
                    messages.append(f"score {e.score} is stored, {score} follows from the risk")
            found += [Finding("recomputed", kind, key, m) for m in messages]
    for key, n in _entries(store, "neighbourhood"):
        found += [Finding("recomputed", "neighbourhood", key, m) for m in _ball(n, losses)]
    return found


def _ball(n: Neighbourhood, losses: Mapping[str, tuple[Any, ...]]) -> Iterator[str]:
    for input_id, row, keys, risk in zip(n.ids, n.losses, n.measurements, n.risks, strict=True):
        cells = [(input_id, s, k, v) for s, k, v in zip(n.seeds, keys, row, strict=True)]
        yield from _against_measurements(cells, n.interface, losses)
        yield from _against_losses(f"risk of {input_id}", risk, row, n.statistic)
    complete = None not in n.risks and n.risks
    mean = math.fsum(r for r in n.risks if r is not None) / len(n.risks) if complete else None
    if not _equal(mean, n.mean_risk):
        yield f"mean_risk {n.mean_risk} is stored, {mean} follows from the risks"


def _against_measurements(
    cells: Sequence[tuple[str, int, str, float | None]],
    interface: str,
    losses: Mapping[str, tuple[Any, ...]],
) -> Iterator[str]:
    for input_id, seed, key, loss in cells:
        place = losses.get(key)
        if place is None:
            yield f"cites measurement {key}, which is not stored"
        elif place[:3] != (interface, input_id, seed):
            yield f"measurement {key} is of another interface, input or seed than {input_id}, {seed}"
        elif place[3] != loss:
            yield f"loss {loss} on seed {seed}, but measurement {key} says {place[3]}"


def _against_losses(
    name: str, risk: float | None, losses: Sequence[float | None], statistic: Any
) -> Iterator[str]:
    complete = [v for v in losses if v is not None]
    if len(complete) < len(losses) or not losses:
        if risk is not None:
            yield f"{name} {risk} is stored although {len(losses) - len(complete)} losses are missing"
        return
    again = risk_of(complete, statistic.model_dump(exclude_none=True))
    if not _equal(again, risk):
        yield f"{name} {risk} is stored, {again} follows from the losses"


def _place(payload: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(payload.get(name) for name in ("interface", "input", "seed", "loss"))


def _entries(store: Store, kind: str) -> Iterator[tuple[str, Any]]:
    """(key, entry) of the records that can be read; ``verify`` names those that cannot."""
    for record in store.records(kind):
        entry = _readable(record)
        if entry is not None:
            yield record.key, entry


def _payloads(store: Store, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in store.records(kind):
        with suppress(ValueError):
            yield record.key, record.payload


def _readable(record: Record) -> Any:
    try:
        return entry_of(record)
    except (EvidenceError, ValueError):
        return None


def _equal(a: float | None, b: float | None) -> bool:
    # Summation order may differ between the code that measured and this one: the last bits.
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
