"""Copying, uniting and exporting studies."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.evidence.batch import check_sealed, conflict, same
from dreamcheck.evidence.disk import telling_full
from dreamcheck.evidence.leftovers import DATABASE
from dreamcheck.evidence.protocol import FILE, differences
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.store import Store

_BATCH = 500


def snapshot(store: Store, directory: Path) -> Path:
    """Copy a study into a new directory through SQLite's backup; returns the directory.

    Artifacts that the copied records hold come along; reports do not, they can be made again.

    Raises:
        UsageError: the directory exists and is not empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty: a snapshot needs a directory of its own.")
    directory.mkdir(parents=True, exist_ok=True)
    with telling_full(directory, lambda: "The study itself is unharmed."):
        copy = sqlite3.connect(directory / DATABASE, isolation_level=None)
        try:
            store._db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
        shutil.copy2(store.directory / FILE, directory / FILE)
        with Store.read(directory) as copied:
            for ref in copied.artifact_refs():
                target = copied.artifacts.path(ref)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(store.artifacts.path(ref), target)
    return directory


def merge(store: Store, others: Sequence[Path]) -> int:
    """Take the records of other studies into an open one, in the order given.

    Everything is checked before the first write, so a refused merge leaves the study as it was.

    Returns:
        How many records were new.

    Raises:
        UsageError: another protocol, the differing entries named.
        GuardRefused: another numerics profile, unless the store was opened for mixed numerics.
        EvidenceError: one key with two contents.
    """
    sources = [Store.read(path) for path in others]
    try:
        seen: dict[tuple[str, str], Record] = {}
        for source in sources:
            _check_mergeable(store, source)
            for record in source.records():
                check_sealed(record, str(source.directory))
                name = (record.kind, record.key)
                known = seen.get(name) or store._stored(*name)
                if known is not None and not same(known, record):
                    raise EvidenceError(conflict(known, record, str(source.directory)))
                seen.setdefault(name, record)
        before = store.head[0]
        for source in sources:
            with telling_full(store.directory, store._kept):
                for ref in source.artifact_refs():
                    store.artifacts.put_bytes(source.artifacts.get(ref), ref.partition(".")[2])
            records = source.records()
            while batch := list(islice(records, _BATCH)):
                store.commit(batch)
        return store.head[0] - before
    finally:
        for source in sources:
            source.close()


def _check_mergeable(store: Store, source: Store) -> None:
    if source.protocol_digest != store.protocol_digest:
        names = differences(
            {**store.protocol, "seeds": store.seeds}, {**source.protocol, "seeds": source.seeds}
        )
        raise UsageError(
            f"{source.directory} has another protocol than {store.directory}: {', '.join(names)} "
            "differ(s). Only studies with the identical protocol can be united."
        )
    own, other = store.profiles, source.profiles
    if own and any(p not in own for p in other):
        names = differences(own[0], next(p for p in other if p not in own))
        raise GuardRefused(
            f"{source.directory} was measured under another numerics profile than "
            f"{store.directory} ({', '.join(names)} differ(s)). Measure both on one set-up, or "
            "open the receiving study with that profile and --mixed-numerics first."
        )


def export(store: Store, directory: Path) -> list[Path]:
    """Write ``<kind>.parquet`` for every kind, for pandas, DuckDB, Spark or Ray Data.

    Columns: seq, key, digest, chain, then the payload's fields. Scalars of one type and lists of
    numbers or strings keep their type; everything else is its JSON text.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as e:
        raise UsageError(
            "export writes Parquet with pyarrow, which is not installed: "
            "pip install 'dreamcheck[export]'."
        ) from e
    from dreamcheck.digest import canonical_json

    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in sorted(store.kinds()):
        rows = list(store.records(kind))
        columns: dict[str, Any] = {
            "seq": pa.array([r.seq for r in rows]),
            "key": pa.array([r.key for r in rows]),
            "digest": pa.array([r.digest for r in rows]),
            "chain": pa.array([r.chain for r in rows]),
        }
        for name in sorted({n for r in rows for n in r.payload}):
            values = [_number(r.payload.get(name)) for r in rows]
            typed = _arrow_type(values, pa)
            if typed is None:
                values = [None if v is None else canonical_json(v) for v in values]
                typed = pa.string()
            column = f"payload_{name}" if name in columns else name
            columns[column] = pa.array(values, type=typed)
        path = directory / f"{kind}.parquet"
        table = pa.table(columns).replace_schema_metadata(
            {"study_protocol_digest": store.protocol_digest, "head": store.head[1]}
        )
        pq.write_table(table, path)
        written.append(path)
    return written


def _number(value: Any) -> Any:
    """Non-finite floats back from their spelling in canonical JSON."""
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, list):
        return [_number(v) for v in value]
    return value


def _arrow_type(values: Sequence[Any], pa: Any) -> Any:
    """The Arrow type that holds every value as it is, or None."""
    present = [v for v in values if v is not None]
    if present and all(isinstance(v, list) for v in present):
        inner = _arrow_type([item for v in present for item in v], pa)
        return None if inner is None or pa.types.is_list(inner) else pa.list_(inner)
    types = {type(v) for v in present}
    for accepted, arrow in (
        ({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64()),
        ({str}, pa.string()),
    ):  # fmt: skip
        if types and types <= accepted:
            return arrow
    return pa.string() if not types else None
