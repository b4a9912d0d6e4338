"""Statistics of compared searches, recomputed from the best score of every restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.errors import Abstention
from dreamcheck.evidence import Record, statistic
from dreamcheck.stats import hit_indicators, mean_sem, sign_test


def _bests(records: Sequence[Record], path: str) -> list[float]:
    if len(records) != 1:
        raise Abstention(f"a single record was expected, the query gives {len(records)}.")
    found = records[0].at(path)
    if not found:
        raise Abstention(f"{records[0].key} holds no restarts at {path!r}.")
    return list(found)


@statistic("search-best-mean")
def best_mean(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Mean over restarts of the best scores at ``path``."""
    return mean_sem(_bests(records, params["path"])).mean


@statistic("search-best-sem")
def best_sem(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Its standard error over restarts; none for a single one."""
    sem = mean_sem(_bests(records, params["path"])).sem
    if not sem.defined:
        raise Abstention(sem.reason)
    return sem.value


@statistic("search-hit-rate")
def hit_rate(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """Share of restarts whose best at ``path`` reaches ``threshold`` / 100."""
    return float(hit_indicators(_bests(records, params["path"]), params["threshold"]).mean())


@statistic("search-sign-test")
def best_sign_test(records: Sequence[Record], params: Mapping[str, Any]) -> float:
    """One-sided sign test of paired bests at ``path`` over ``other``.

    ``part`` is "p", "wins", "losses" or "ties".
    """
    a, b = (_bests(records, params[name]) for name in ("path", "other"))
    test = sign_test([x - y for x, y in zip(a, b, strict=True)], alternative="greater")
    value: float = getattr(test, params["part"])
    return value
