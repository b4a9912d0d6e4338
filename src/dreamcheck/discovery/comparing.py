"""A search protocol replayed over score tables: every method's figures, per table and between them.

``compare_tables`` is what ``dreamcheck compare`` runs; ``record_comparison`` keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck import __version__
from dreamcheck.digest import plain
from dreamcheck.discovery.between import ENDPOINTS, Inference, infer
from dreamcheck.discovery.compare import (
    CONDITION,
    Comparison,
    MethodSummary,
    PairedComparison,
    compare,
)
from dreamcheck.discovery.coverage import top_set
from dreamcheck.discovery.protocol import SearchProtocol
from dreamcheck.discovery.replay import Replay, ScoreTable, replay
from dreamcheck.discovery.tables import NamedTable
from dreamcheck.errors import UsageError
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.evidence.record import Record
from dreamcheck.progress import Progress
from dreamcheck.stats import MeanSem
from dreamcheck.user_code import source_digest

TOP_THRESHOLDS = (5, 2, 1)
"""Top shares of a table at whose first score its thresholds lie, where a protocol has none."""

TOP_AVERAGED = tuple(range(1, 17))
"""The same for the threshold-averaged hit rate: sixteen, as many as the paper's."""


@dataclass(frozen=True, eq=False)
class TableResult:
    """One table's replay and what it shows at every budget.

    from_table: the thresholds are the table's own, since the protocol has none.
    """

    named: NamedTable
    replay: Replay
    comparisons: tuple[Comparison, ...]
    from_table: bool


@dataclass(frozen=True, eq=False)
class Compared:
    """Everything that `dreamcheck compare` says. inferences: one per budget, over the tables."""

    protocol: SearchProtocol
    endpoint: str
    tables: tuple[TableResult, ...]
    inferences: tuple[Inference, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready numbers, by name and list position only: no name holds a dot."""
        result: dict[str, Any] = plain(
            {
                "condition": CONDITION,
                "endpoint": ENDPOINTS[self.endpoint],
                "tables": [_table_dict(t) for t in self.tables],
                "across": [asdict(i) for i in self.inferences],
            }
        )
        return result


def score_format(value: float) -> str:
    """How a score is written: four significant digits, and no exponent below a million."""
    return "{:.4g}" if not 1e4 <= abs(value) < 1e6 else "{:.0f}"


def own_thresholds(table: ScoreTable, percents: Sequence[int]) -> tuple[int, ...]:
    """Where a table's own top shares begin: integers over 100, rounded down, increasing.

    Raises:
        UsageError: scores so small that hundredths cannot tell them apart.
    """
    cuts = []
    for q in percents:
        last = top_set(table.library, table.scores, percent=q, failed=table.failed)[-1]
        cuts.append(int(np.floor(round(100 * float(table.scores[last]), 9))))
    spread = float(np.nanmax(table.scores) - np.nanmin(table.scores))
    if 0 < spread < 0.05:
        raise UsageError(
            f"the scores of {table.library.specification.name!r} span only {spread:.2g}, and "
            "thresholds are hundredths: multiply the scores with --scale, e.g. "
            f"{10 ** int(np.ceil(-np.log10(spread)) + 1):.0e}."
        )
    return tuple(sorted(set(cuts)))


def compare_tables(
    tables: Sequence[NamedTable],
    protocol: SearchProtocol,
    *,
    endpoint: str = "best",
    root_seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Compared:
    """Replay the protocol over every table, and compare its primary method with the others.

    One replay to the largest budget serves all budgets: no method's proposals depend on it.

    Raises:
        UsageError: no table, a table of another library than the protocol's, tables that are not
            independent, or what ``replay`` refuses.
    """
    if not tables:
        raise UsageError("no score table was given.")
    progress = progress or Progress(quiet=True)
    results = []
    for named in tables:
        name = named.table.library.specification.name
        if protocol.specification not in (None, name):
            raise UsageError(
                f"the search protocol {protocol.name!r} is for the library "
                f"{protocol.specification!r}; the table {named.label!r} is of {name!r}."
            )
        total = len(protocol.methods) * len(protocol.seeds.restart)
        with progress.stage(f"replay {named.label}", total, unit="runs") as stage:
            before = 0

            def show(done: int, _: int) -> None:
                nonlocal before
                stage.advance(done - before)
                before = done

            found = replay(
                named.table,
                methods=protocol.methods,
                restarts=protocol.seeds.restart,
                budget=protocol.budgets[-1],
                parameters=protocol.search_parameters,
                exceptions=protocol.exceptional_parameters,
                workers=workers,
                progress=show,
            )
        thresholds = protocol.thresholds or own_thresholds(named.table, TOP_THRESHOLDS)
        averaged = protocol.averaged or own_thresholds(named.table, TOP_AVERAGED)
        results.append(
            TableResult(
                named=named,
                replay=found,
                comparisons=tuple(
                    compare(
                        found.first(budget),
                        thresholds=thresholds,
                        averaged=averaged,
                        top_percents=protocol.top_percents,
                        method=protocol.primary,
                    )
                    for budget in protocol.budgets
                ),
                from_table=not protocol.thresholds,
            )
        )
    inferences = tuple(
        infer(
            tables,
            [r.comparisons[b] for r in results],
            method=protocol.primary,
            endpoint=endpoint,
            root_seed=root_seed,
        )
        for b in range(len(protocol.budgets))
    )
    return Compared(protocol, endpoint, tuple(results), inferences)


def record_comparison(directory: str | Path, found: Compared, *, root_seed: int = 0) -> Record:
    """Keep a comparison as the diagnosis "compare", with every query of every run."""
    subject = [
        {
            "label": t.named.label,
            "specification": t.named.table.library.specification.name,
            "identity": t.named.table.library.specification.identity,
            "digest": t.named.table.digest,
            "measured_on": dict(t.named.measured_on),
        }
        for t in found.tables
    ]
    return record_diagnosis(
        directory,
        name="compare",
        subject={"tables": subject},
        inputs={
            "protocol": found.protocol.model_dump(mode="json"),
            "endpoint": found.endpoint,
            "root_seed": root_seed,
            "own_methods": {m: source_digest(m) for m in found.protocol.methods if ":" in m},
            "dreamcheck": __version__,
        },
        result=found.to_dict(),
        artifacts={f"runs-{i}": _arrays(t) for i, t in enumerate(found.tables)},
    )


def _arrays(t: TableResult) -> dict[str, np.ndarray]:
    table = t.replay.table
    return {
        "scores": table.scores,
        "active": table.active,
        "failed": table.failed,
        "restarts": np.array(t.replay.restarts, dtype=np.int64),
        **{
            f"queries-{name}": runs.queries.astype(np.int32) for name, runs in t.replay.runs.items()
        },
    }


def _table_dict(t: TableResult) -> dict[str, Any]:
    table, last = t.named.table, t.comparisons[-1]
    return {
        "label": t.named.label,
        "specification": table.library.specification.name,
        "num_inputs": len(table.library),
        "num_failed": int(table.failed.sum()),
        "num_active": int(table.active.sum()),
        "num_restarts": len(t.replay.restarts),
        "scout": t.replay.scout,
        "scale": t.named.scale,
        "from_table": t.from_table,
        "thresholds": last.thresholds,
        "averaged": last.averaged,
        "budgets": [_budget_dict(t, c) for c in t.comparisons],
        "curves": [_curve(name, t) for name in t.replay.runs],
    }


def _budget_dict(t: TableResult, c: Comparison) -> dict[str, Any]:
    runs = t.replay.first(c.budget).runs
    return {
        "budget": c.budget,
        "exhausted": c.budget > len(t.named.table.library),
        "never_crossed": c.never_crossed,
        # Each restart's best beside the summary, so that a report's numbers can be recomputed.
        "methods": [{**_method_dict(m), "bests": runs[m.name].best.tolist()} for m in c.methods],
        "pairs": [_pair_dict(p) for p in c.pairs],
    }


def _method_dict(m: MethodSummary) -> dict[str, Any]:
    return {
        "name": m.name,
        "best": _mean(m.best),
        "averaged_hits": _mean(m.averaged_hits),
        "thresholds": [
            {"threshold": t, "hit_rate": rate, "first_hit": _mean(m.first_hit[t])}
            for t, rate in m.hit_rates.items()
        ],
        "tops": [
            {"percent": q, "hit": f.hit, "count": _mean(f.count), "coverage": _mean(f.coverage)}
            for q, f in m.top.items()
        ],
    }


def _pair_dict(p: PairedComparison) -> dict[str, Any]:
    return {
        "method": p.method,
        "comparator": p.comparator,
        "difference": p.difference,
        "wins": p.win_loss_tie.wins,
        "losses": p.win_loss_tie.losses,
        "ties": p.win_loss_tie.ties,
        "p_best": p.best.p,
        "p_averaged_hits": p.averaged_hits.p,
        "thresholds": [
            {
                "threshold": t,
                "p_hit": value,
                "p_first_hit": p.first_hit[t].p,
                "first_hit_gain": p.first_hit_gain[t],
            }
            for t, value in p.hits.items()
        ],
        "tops": [
            {"percent": q, "p_hit": value, "p_coverage": p.coverage[q].p}
            for q, value in p.top_hits.items()
        ],
    }


def _mean(value: MeanSem) -> dict[str, Any]:
    return {"mean": value.mean, "sem": value.sem.value if value.sem.defined else None}


def _curve(name: str, t: TableResult) -> dict[str, Any]:
    """Mean best so far, its SEM, and cumulative hits after every query; None before any score."""
    runs = t.replay.runs[name]
    best = runs.best_so_far()
    known = np.isfinite(best)
    num = known.sum(axis=0)
    mean = np.where(known, best, 0.0).sum(axis=0) / np.maximum(num, 1)
    squares = np.where(known, (best - mean) ** 2, 0.0).sum(axis=0)
    sem = np.sqrt(squares / np.maximum(num - 1, 1) / np.maximum(num, 1))
    return {
        "method": name,
        "best": [float(m) if n else None for m, n in zip(mean, num, strict=True)],
        "sem": [float(s) if n > 1 else None for s, n in zip(sem, num, strict=True)],
        "hits": [
            {"threshold": h, "share": runs.cumulative_hits(h).tolist()}
            for h in t.comparisons[-1].thresholds
        ],
    }


def with_changes(protocol: SearchProtocol, changes: Mapping[str, Any]) -> SearchProtocol:
    """The protocol with fields replaced, checked again; its name says that it was changed.

    Args:
        changes: field -> value; "restart" replaces the restart seeds. None leaves a field alone.

    Raises:
        UsageError: the protocol with these changes is none, e.g. without its primary method.
    """
    from dreamcheck.discovery.protocol import protocol_from

    given = {k: v for k, v in changes.items() if v is not None}
    if not given:
        return protocol
    data = protocol.model_dump()
    if "restart" in given:
        data["seeds"]["restart"] = given.pop("restart")
        kept = set(protocol_from({**data, "exceptions": ()}).seeds.restart)
        data["exceptions"] = [
            {**e, "restart": left}
            for e in data["exceptions"]
            if (left := [s for s in e["restart"] if s in kept])
        ]
    data |= given
    if data["primary"] not in data["methods"]:
        raise UsageError(
            f"the method whose advantage is tested, {data['primary']!r}, is not among the methods "
            f"{', '.join(data['methods'])}: name one of them as primary (--primary)."
        )
    name = f"{protocol.name}, changed"
    return protocol_from({**data, "name": name}, origin=name)
