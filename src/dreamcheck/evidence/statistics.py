"""The statistics a displayed number may be: pure functions of records, found by name.

A statistic takes the records of its query, in order, and its parameters, and returns one scalar;
it raises Abstention, with the reason, where there is nothing to measure. Other rooms add theirs
with the decorator and are imported by ``verify`` through the module noted in report.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dreamcheck.digest import canonical_json
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.evidence.aggregate import tail_mean
from dreamcheck.evidence.record import Record, leaves

Scalar = float | int | str | bool
Function = Callable[[Sequence[Record], Mapping[str, Any]], Scalar]


@dataclass(frozen=True)
class Statistic:
    """A registered statistic. across_interfaces: it may see records of several interfaces."""

    name: str
    function: Function
    module: str
    across_interfaces: bool


_registry: dict[str, Statistic] = {}


def statistic(name: str, *, across_interfaces: bool = False) -> Callable[[Function], Function]:
    """Register a pure function of (records, params) under a name.

    across_interfaces: True for what is not a risk (counts, names); otherwise records of two
    prediction interfaces are refused (law 7).

    Raises:
        UsageError: another function has the name.
    """

    def register(function: Function) -> Function:
        known = _registry.get(name)
        same = known is not None and (
            known.module == function.__module__
            and known.function.__qualname__ == function.__qualname__
        )
        if known is not None and not same:
            raise UsageError(f"statistic {name!r} is already registered by {known.module}.")
        _registry[name] = Statistic(name, function, function.__module__, across_interfaces)
        return function

    return register


def find(name: str) -> Statistic:
    """The statistic of that name.

    Raises:
        UsageError: none is registered.
    """
    if name not in _registry:
        raise UsageError(
            f"statistic {name!r} is not registered; known: {', '.join(sorted(_registry))}. "
            "Import the module that defines it."
        )
    return _registry[name]


def column(records: Iterable[Record], path: str) -> list[float]:
    """The numbers at a path, lists flattened; records that hold a named failure are left out.

    The manifest counts the failures, so leaving them out is seen.

    Raises:
        Abstention: a record without failure has no number there, or no record is left.
    """
    found: list[float] = []
    for record in records:
        if record.payload.get("failure") is not None:
            continue
        for value in leaves(record.at(path)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                value = _spelled(value, record, path)
            found.append(value)
    if not found:
        raise Abstention(f"no record holds a number at {path!r}.")
    return found


def _spelled(value: Any, record: Record, path: str) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    raise Abstention(f"{record.kind} {record.key} holds {value!r} at {path!r}, not a number.")


def _finite(records: Iterable[Record], path: str) -> list[float]:
    values = column(records, path)
    if not all(math.isfinite(v) for v in values):
        raise Abstention(f"a value at {path!r} is not finite.")
    return values


@statistic("count", across_interfaces=True)
def count(records: Sequence[Record], params: Mapping[str, Any]) -> int:
    """How many records the query gives."""
    return len(records)


@statistic("count-distinct", across_interfaces=True)
def count_distinct(records: Sequence[Record], params: Mapping[str, Any]) -> int:
    """Distinct values at ``path``, lists flattened."""
    path = params["path"]
    return len({canonical_json(v) for r in records for v in leaves(r.at(path))})


@statistic("field", across_interfaces=True)
def field(records: Sequence[Record], params: Mapping[str, Any]) -> Scalar:
    """The value at ``path`` of the one record the query gives."""
    if len(records) != 1:
        raise Abstention(f"a single record was expected, the query gives {len(records)}.")
    value = records[0].at(params["path"])
    if value is None:
        raise Abstention(f"{records[0].kind} {records[0].key} holds nothing at {params['path']!r}.")
    if isinstance(value, (list, dict)):
        return canonical_json(value)
    return float(value) if value in ("nan", "inf", "-inf") else value


@statistic("length", across_interfaces=True)
def length(records: Sequence[Record], params: Mapping[str, Any]) -> int:
    """Entries in the lists at ``path``, summed over the records."""
    return sum(len(r.at(params["path"]) or ()) for r in records)


@statistic("seeds", across_interfaces=True)
def seeds(records: Sequence[Record], params: Mapping[str, Any]) -> str:
    """The integers at ``path`` (default "seeds") as ranges: "0-7, 16"."""
    path = params.get("path", "seeds")
    values = sorted({int(v) for r in records for v in leaves(r.at(path)) if v is not None})
    if not values:
        raise Abstention(f"no record holds integers at {path!r}.")
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@statistic("sum")
def total(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Sum of the numbers at ``path``."""
    return math.fsum(_finite(records, params["path"]))


@statistic("mean")
def mean(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Mean of the numbers at ``path``."""
    values = _finite(records, params["path"])
    return math.fsum(values) / len(values)


@statistic("std")
def std(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Standard deviation of the numbers at ``path`` with ``ddof`` (default 1)."""
    values = _finite(records, params["path"])
    free = len(values) - int(params.get("ddof", 1))
    if free < 1:
        raise Abstention(f"{len(values)} value(s) at {params['path']!r} have no spread.")
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / free)


@statistic("min")
def smallest(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Smallest number at ``path``."""
    return min(_finite(records, params["path"]))


@statistic("max")
def largest(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Largest number at ``path``."""
    return max(_finite(records, params["path"]))


@statistic("median")
def median(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Median of the numbers at ``path``."""
    return quantile(records, {**params, "q": 0.5})  # type: ignore[return-value]


@statistic("quantile")
def quantile(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Quantile ``q`` of the numbers at ``path``, linear between order statistics."""
    values = sorted(_finite(records, params["path"]))
    at = float(params["q"]) * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


@statistic("cvar")
def cvar(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Mean of the largest share ``alpha`` of the numbers at ``path`` by ``estimator``."""
    return tail_mean(
        _finite(records, params["path"]),
        alpha=params["alpha"],
        estimator=params.get("estimator", "fractional"),
    )


@statistic("share-above")
def share_above(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Share of the numbers at ``path`` strictly above ``threshold``."""
    values = _finite(records, params["path"])
    return sum(v > params["threshold"] for v in values) / len(values)


@statistic("share-equal", across_interfaces=True)
def share_equal(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Share of the records whose value at ``path`` is ``value``."""
    if not records:
        raise Abstention("no records: a share of nothing.")
    return sum(r.at(params["path"]) == params["value"] for r in records) / len(records)


@statistic("ratio")
def ratio(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Sum at ``path`` over sum at ``over``: risk relative to the frozen world, for one."""
    below = math.fsum(_finite(records, params["over"]))
    if below == 0.0:
        raise Abstention(f"the sum at {params['over']!r} is zero.")
    return math.fsum(_finite(records, params["path"])) / below


@statistic("difference")
def difference(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Mean at ``path`` minus mean at ``minus``: the excess over the floor, for one."""
    upper, lower = _finite(records, params["path"]), _finite(records, params["minus"])
    return math.fsum(upper) / len(upper) - math.fsum(lower) / len(lower)


@statistic("ranked")
def ranked(records: Sequence[Record], params: Mapping[str, Any]) -> Scalar:
    """The value at ``path`` of the record that is number ``rank`` (from 1) by the number at ``by``.

    Largest first unless ``ascending``; ties in the order of ``tie`` (default "input"). Records
    with a failure are left out.
    """
    complete = [r for r in records if r.payload.get("failure") is None]
    sign = 1.0 if params.get("ascending") else -1.0
    order = sorted(
        complete,
        key=lambda r: (sign * _finite([r], params["by"])[0], str(r.at(params.get("tie", "input")))),
    )
    rank = int(params["rank"])
    if not 1 <= rank <= len(order):
        raise Abstention(f"rank {rank} was asked of {len(order)} records.")
    return field([order[rank - 1]], {"path": params["path"]})
