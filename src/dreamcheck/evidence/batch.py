"""Committing: what a record must satisfy, and how a batch goes in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence.artifacts import check_ref
from dreamcheck.evidence.keys import Interface, measurement_key
from dreamcheck.evidence.protocol import differences
from dreamcheck.evidence.record import Record, chain_of, digest_of
from dreamcheck.evidence.records import TYPES, Entry, entry_of

if TYPE_CHECKING:
    from dreamcheck.evidence.store import Store


def insert(store: Store, batch: Sequence[Record], defaults: Mapping[str, Any]) -> tuple[int, str]:
    """Write the rows of a batch inside the caller's transaction; returns the new head."""
    seq, chain = store._head
    rows, holds, cites, files = [], [], [], {}
    placed: dict[tuple[str, str], tuple[int, Record]] = {}
    for record in batch:
        name = (record.kind, record.key)
        known = placed[name][1] if name in placed else store._stored(*name)
        if known is not None:
            if not same(known, record):
                raise EvidenceError(conflict(known, record, str(store.directory)))
            continue
        seq += 1
        chain = chain_of(chain, record.digest)
        placed[name] = (seq, record)
        meta = json.dumps({**defaults, **record.meta}, sort_keys=True)
        rows.append(
            (seq, record.kind, record.key, record.text, record.digest, record.fields,
             chain, meta)
        )  # fmt: skip
        if '"artifacts":{"' in record.text:
            for label, ref in (record.payload.get("artifacts") or {}).items():
                check_ref(ref)
                if ref not in files:
                    files[ref] = _artifact_size(store, ref, record)
                holds.append((seq, label, ref))
        for cited in _cites(record):
            at = placed[cited][0] if cited in placed else store._seq_of(*cited)
            if at is None:
                raise UsageError(
                    f"{record.kind} {record.key} rests on {cited[0]} {cited[1]}, which is not "
                    "in the store. Commit that record first, or in the same batch before it."
                )
            cites.append((seq, at))
    run = store._db.executemany
    run("INSERT INTO records (seq, kind, key, payload, digest, fields, chain, meta) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)  # fmt: skip
    run("INSERT OR IGNORE INTO artifacts VALUES (?, ?)", files.items())
    run("INSERT INTO holds VALUES (?, ?, ?)", holds)
    run("INSERT OR IGNORE INTO cites VALUES (?, ?)", cites)
    return seq, chain


def ready(store: Store, item: Entry | Record | Interface) -> Record:
    """The sealed record, stamped, and checked against laws 3 and 4."""
    record = item if isinstance(item, Record) else item.record()
    if isinstance(item, Record):
        check_sealed(record, "a record given to commit()")
    if store._stamps:
        payload = dict(record.payload)
        payload["stamps"] = [*payload.get("stamps", ()), *store._stamps]
        record = Record.make(record.kind, record.key, payload, meta=record.meta)
    if isinstance(item, Record) and record.kind in TYPES and entry_of(record).key != record.key:
        raise EvidenceError(
            f"{record.kind} {record.key}: the key does not follow from the record's fields. Build "
            "it from its type, which makes the key."
        )
    payload = record.payload
    if "partition" in payload:
        _check_partition(store, record)
    if record.kind == "interface":
        store._interfaces[record.key] = Interface.from_payload(payload)
    elif record.kind == "measurement":
        interface = _interface(store, payload["interface"])
        if interface is None:
            raise UsageError(
                f"measurement {record.key} names interface {payload['interface']}, which is "
                "not in the store. Commit the Interface first."
            )
        wanted = measurement_key(interface, payload["values"], payload["seed"])
        if wanted != record.key:
            raise EvidenceError(
                f"measurement {record.key} should have key {wanted} by its interface, values "
                "and seed. Build it with Measurement.measured()."
            )
    return record


def check_sealed(record: Record, place: str) -> None:
    """Refuse a record whose content is not what its digest says.

    Raises:
        EvidenceError: names the record and ``place``.
    """
    if digest_of(record.kind, record.key, record.text) != record.digest:
        raise EvidenceError(
            f"{place}: {record.kind} {record.key} was altered: its digest does not follow from its "
            "content. Run dreamcheck verify on the study it comes from."
        )


def _check_partition(store: Store, record: Record) -> None:
    payload = record.payload
    partition = payload["partition"]
    if partition not in store._protocol.seeds:
        raise UsageError(
            f"{record.kind} {record.key} draws on partition {partition!r}; the study declares "
            f"{', '.join(sorted(store._protocol.seeds)) or 'none'}. Partitions are declared "
            "when a study is made (law 3)."
        )
    for seed in [payload["seed"]] if "seed" in payload else payload.get("seeds", ()):
        owner = store._owner.get(seed)
        if owner != partition:
            where = f"belongs to {owner!r}" if owner else "is in no partition"
            raise UsageError(
                f"{record.kind} {record.key}: seed {seed} is not in partition {partition!r}; "
                f"it {where}. Search must never see validation (law 3): use the declared seeds."
            )


def _interface(store: Store, key: str) -> Interface | None:
    if key not in store._interfaces:
        record = store.get("interface", key)
        if record is None:
            return None
        store._interfaces[key] = Interface.from_payload(record.payload)
    return store._interfaces[key]


def _artifact_size(store: Store, ref: str, record: Record) -> int:
    try:
        return store.artifacts.path(ref).stat().st_size
    except FileNotFoundError as e:
        raise UsageError(
            f"{record.kind} {record.key} refers to artifact {ref}, which is not there. Store "
            "it with store.artifacts before the record."
        ) from e


def _cites(record: Record) -> tuple[tuple[str, str], ...]:
    if record.kind == "measurement":
        return (("interface", record.payload["interface"]),)
    if record.kind in ("evaluation", "validation", "neighbourhood"):
        return entry_of(record).cites()
    return ()


def same(stored: Record, new: Record) -> bool:
    """Equal content; a stamp tells how a record was made, not what it says."""
    if stored.digest == new.digest:
        return True
    old, now = dict(stored.payload), dict(new.payload)
    old.pop("stamps", None)
    now.pop("stamps", None)
    return old == now


def conflict(stored: Record, new: Record, place: str) -> str:
    fields = differences(stored.payload, new.payload)
    shown = ", ".join(
        f"{name}: {stored.at(name)!r:.60} stored, {new.at(name)!r:.60} now" for name in fields[:3]
    )
    return (
        f"{place}: {new.kind} {new.key} is already stored with other content ({shown}). The same "
        "key must give the same record: the code, the model or the machine changed under the "
        "study. Make another study, or raise the interface's algorithm_version."
    )
