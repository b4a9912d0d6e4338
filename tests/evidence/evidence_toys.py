"""A small complete study, made the same way every time, for the tests of the evidence room."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from dreamcheck.evidence import (
    DEFAULT_RESET,
    Entry,
    Evaluation,
    Interface,
    Measurement,
    Neighbourhood,
    Record,
    SearchTrace,
    Store,
    Validation,
    library_entry,
    risk_of,
)

PROTOCOL = {"name": "toy", "search": {"budget": 4, "scout": 2}, "mode": None}
SEEDS = {
    "search": range(4),
    "validation": range(16, 20),
    "neighbourhood": range(32, 34),
    "confirmation": range(48, 50),
}
PROFILE = {"torch": "2.13.0", "device": "cpu", "dtype": "float32", "threads": 1, "isa": "avx2"}
INTERFACE = Interface(
    model="a" * 64,
    task="toy",
    task_version="1",
    package_version="dreamcheck 0.1.0",
    policy="b" * 64,
    rollout_steps=40,
    history=3,
    horizon=3,
    target="position-probe",
    probe="c" * 64,
    discrepancy="mae-px",
    algorithm_version="1",
)
NAMES = ("x", "y", "door")
IDS = tuple(f"in-{i}" for i in range(8))
VALUES = tuple((i % 4, 1.5 * (i // 4), "left") for i in range(8))
SPEC = "5" * 64
CVAR = {"name": "cvar", "alpha": 0.4, "estimator": "fractional"}


def ball(anchor: str) -> list[str]:
    """The radius-1 ball of a ring of eight inputs."""
    i = IDS.index(anchor)
    return [IDS[i], IDS[(i - 1) % 8], IDS[(i + 1) % 8]]


def loss_of(input_id: str, seed: int) -> float:
    """A made-up loss: any function of input and seed will do."""
    return ((int(input_id[3:] if input_id != DEFAULT_RESET else 9) * 37 + seed * 11) % 23) / 7


def measurement(input_id: str, seed: int, partition: str, **fields: object) -> Measurement:
    """The measurement of one toy input on one seed."""
    values = (
        None
        if input_id == DEFAULT_RESET
        else dict(zip(NAMES, VALUES[IDS.index(input_id)], strict=True))
    )
    given = {"loss": loss_of(input_id, seed), "frozen_loss": 4.0, "floor": 0.25, **fields}
    return Measurement.measured(
        INTERFACE,
        values=values,
        seed=seed,
        input=input_id,
        partition=partition,
        activity={"contacts": 1, "path": 3.5},
        **given,
    )


def entries(store: Store, *, frames: bool = True) -> Iterator[Entry | Record | Interface]:
    """Every record of the toy study in order; artifacts are written as they come up."""
    yield INTERFACE
    yield library_entry(
        store.artifacts,
        spec="toy-spec",
        spec_digest=SPEC,
        names=NAMES,
        ids=IDS,
        values=VALUES,
        scaled=np.linspace(0, 1, 24).reshape(8, 3),
        num_tuples=10,
        removed={"agent-on-wall": 2},
    )
    for name in IDS:
        done = []
        for seed in SEEDS["search"]:
            artifacts = {}
            if frames and seed == 0:
                frame = np.full((2, 3, 4, 4), IDS.index(name), dtype=np.uint8)
                artifacts = {"frames": store.artifacts.put_arrays({"frames": frame})}
            done.append(measurement(name, seed, "search", artifacts=artifacts))
            yield done[-1]
        yield evaluation(name, done)
    for method, top in (("random", "in-0"), ("basinlens", "in-2")):
        yield trace(method, top)
    for group, name in (
        ("shortlist", "in-2"), ("random-shortlist", "in-5"), ("default-reset", DEFAULT_RESET),
    ):  # fmt: skip
        done = [measurement(name, s, "validation") for s in SEEDS["validation"]]
        yield from done
        yield validation(name, group, done)
    for group, anchor in (("top", "in-2"), ("random", "in-6")):
        rows = [
            [measurement(i, s, "neighbourhood") for s in SEEDS["neighbourhood"]]
            for i in ball(anchor)
        ]
        for row in rows:
            yield from row
        yield neighbourhood(anchor, group, rows)
    yield Record.make("guard", "domain-gap", {"passed": True, "gap": 0.01})
    yield Record.make("finding", "in-2", {"verdict": "inconclusive", "input": "in-2"})


def evaluation(name: str, done: list[Measurement], **fields: object) -> Evaluation:
    """The evaluation that follows from some measurements."""
    losses = [m.loss for m in done]
    risk = risk_of(losses, CVAR)
    given = {
        "risk": risk,
        "score": risk - 2.0 * 0.5,
        "activity_weight": 2.0,
        "activity_violation": 0.5,
        "stratum": "in",
        **fields,
    }
    return Evaluation.of(
        input=name,
        spec=SPEC,
        interface=INTERFACE.digest,
        seeds=[m.seed for m in done],
        losses=losses,
        measurements=[m.key for m in done],
        statistic=CVAR,
        frozen_risk=4.0,
        **given,
    )


def score_of(name: str) -> float:
    """What the search is told of a toy input."""
    return risk_of([loss_of(name, s) for s in SEEDS["search"]], CVAR) - 1.0


def trace(method: str, top: str, **fields: object) -> SearchTrace:
    """One restart of one method: the scout in-0, in-1, then two more."""
    queries = ("in-0", "in-1", "in-2", "in-3")
    given = {
        "scout": queries[:2],
        "queries": queries,
        "acquisition": (None, None, 0.7, 0.4),
        "outcomes": [score_of(q) for q in queries],
        "budget": 4,
        **fields,
    }
    return SearchTrace.of(
        method=method,
        spec=SPEC,
        interface=INTERFACE.digest,
        restart_seed=7,
        top=(top,),
        algorithm_version="1",
        **given,
    )


def validation(name: str, group: str, done: list[Measurement], **fields: object) -> Validation:
    """The validation that follows from some measurements."""
    losses = [m.loss for m in done]
    given = {
        "seeds": [m.seed for m in done],
        "losses": losses,
        "measurements": [m.key for m in done],
        **fields,
    }
    return Validation.of(
        input=name,
        spec=SPEC,
        interface=INTERFACE.digest,
        group=group,
        risk=risk_of(losses, {"name": "mean"}),
        **given,
    )


def neighbourhood(
    anchor: str, group: str, rows: list[list[Measurement]], **fields: object
) -> Neighbourhood:
    """The neighbourhood that follows from some measurements."""
    losses = [[m.loss for m in row] for row in rows]
    risks = [risk_of(row, {"name": "mean"}) for row in losses]
    given = {"ids": ball(anchor), "mean_risk": sum(risks) / len(risks), **fields}
    return Neighbourhood.of(
        anchor=anchor,
        spec=SPEC,
        interface=INTERFACE.digest,
        group=group,
        seeds=list(SEEDS["neighbourhood"]),
        losses=losses,
        measurements=[[m.key for m in row] for row in rows],
        risks=risks,
        **given,
    )


def run(directory: Path, *, batch: int = 50, frames: bool = True) -> None:
    """Make the study, or take it up where a killed run left it."""
    with Store.ensure(directory, protocol=PROTOCOL, seeds=SEEDS, profile=PROFILE) as store:
        work = entries(store, frames=frames)
        while part := list(islice(work, batch)):
            store.commit(part)


def content(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything a study says: all tables, wall time, host and process aside."""
    db = sqlite3.connect(directory / "evidence.sqlite")
    try:
        tables = {
            "records": "SELECT seq, kind, key, payload, digest, fields, chain FROM records",
            "study": "SELECT * FROM study ORDER BY name",
            "seeds": "SELECT * FROM seeds ORDER BY seed",
            "holds": "SELECT * FROM holds ORDER BY seq, name",
            "cites": "SELECT * FROM cites ORDER BY seq, cited",
            "artifacts": "SELECT * FROM artifacts ORDER BY ref",
        }
        found = {name: db.execute(sql).fetchall() for name, sql in tables.items()}
    finally:
        db.close()
    files = (directory / "artifacts").glob("??/*")
    found["files"] = sorted((p.name, p.read_bytes()) for p in files)
    return found


def edit(directory: Path, sql: str, *values: object) -> int:
    """Alter the database behind the store's back; returns how many rows changed."""
    db = sqlite3.connect(directory / "evidence.sqlite", isolation_level=None)
    try:
        return db.execute(sql, values).rowcount
    finally:
        db.close()
