"""The store of one study: append-only records in SQLite, chained, committed in batches."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dreamcheck.digest import canonical_json, digest, plain, sha256_bytes
from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.evidence import leftovers, schema
from dreamcheck.evidence.artifacts import Artifacts, check_ref, sync_folder, write_whole
from dreamcheck.evidence.disk import fit_for_wal, telling_full
from dreamcheck.evidence.keys import Interface, measurement_key
from dreamcheck.evidence.lock import StudyLock
from dreamcheck.evidence.protocol import (
    FILE,
    Protocol,
    differences,
    make_protocol,
    parse_protocol,
)
from dreamcheck.evidence.record import Record, chain_of
from dreamcheck.evidence.records import TYPES, Entry, entry_of

log = logging.getLogger("dreamcheck.evidence")

_COLUMNS = "kind, key, payload, digest, fields, meta, seq, chain"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PAGE = 2000  # records per read: long iterations never hold a transaction open


class Store:
    """Evidence of one study directory. Make it with ``create``, ``open``, ``ensure`` or ``read``.

    One writer at a time, any number of readers beside it. Use it as a context manager: closing
    folds the log into the database file, so that copying the directory copies the study.

    directory: the study. protocol, seeds: what study.toml froze. notices: what was found on
    opening (leftovers of a killed run, no write-ahead log here). artifacts: large arrays.
    """

    directory: Path
    artifacts: Artifacts
    notices: tuple[str, ...]

    def __init__(self) -> None:
        raise UsageError("use Store.create, Store.open, Store.ensure or Store.read.")

    # -- making and opening ------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: str | Path,
        *,
        protocol: Mapping[str, Any] | Path,
        seeds: Mapping[str, Iterable[int]] | None = None,
        profile: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a study and open it for writing.

        Args:
            directory: made if absent; must not hold a study.
            protocol: what study.toml shall say, or a TOML file taken as it is. None entries are
                left out.
            seeds: partition -> environment seeds, e.g. ``{"search": range(8), "validation":
                range(16, 32)}``. With a TOML file they are its [seeds] table.
            profile: numerics profile (torch version, device, dtype, threads, instruction set).

        Raises:
            UsageError: the directory holds a study; a seed is in two partitions (law 3).
        """
        directory = Path(directory)
        if isinstance(protocol, Path):
            if seeds is not None:
                raise UsageError(f"seeds are given by [seeds] in {protocol}: leave seeds= out.")
            frozen = parse_protocol(_read_text(protocol), place=str(protocol))
        else:
            frozen = make_protocol(protocol, seeds or {})
        if (directory / leftovers.DATABASE).exists():
            raise UsageError(
                f"{directory} already holds a study. Resume it with Store.open() or --resume, or "
                "choose another directory."
            )
        directory.mkdir(parents=True, exist_ok=True)
        lock = StudyLock(directory)
        lock.acquire()
        try:
            notices = leftovers.set_aside(directory)
            with telling_full(directory, lambda: "No study was made."):
                _make_database(directory, frozen)
        finally:
            lock.release()
        store = cls.open(directory, profile=profile)
        store.notices = (*notices, *store.notices)
        return store

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        profile: Mapping[str, Any] | None = None,
        mixed_numerics: bool = False,
        stamps: Sequence[str] = (),
    ) -> Self:
        """Open a study for writing; the lock ends with this process.

        Args:
            directory: the study.
            profile: numerics profile of this run; None for a run that measures nothing.
            mixed_numerics: go on under another profile than the study's; every record committed
                is then stamped with the profile.
            stamps: failed guards that were allowed (law 2), put on every record committed.

        Raises:
            UsageError: no study here, a newer schema, or another writer.
            EvidenceError: study.toml was edited, or the database is damaged.
            GuardRefused: another numerics profile, the differing entries named.
        """
        directory = Path(directory)
        _require_study(directory)
        lock = StudyLock(directory)
        lock.acquire()
        store = cls.__new__(cls)
        try:
            notices = leftovers.set_aside(directory)
            store._begin(directory, writable=True, lock=lock)
            for notice in notices:
                log.warning("%s: %s", directory, notice)
            reason = fit_for_wal(directory)
            mode = "wal" if reason is None else "delete"
            if store._db.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0] != mode:
                reason = reason or "SQLite kept the rollback journal"
            if reason is not None:
                notices.append(f"no write-ahead log ({reason}); a rollback journal is used.")
            store.notices = tuple(notices)
            store._stamps = tuple(stamps) + store._numerics(profile, mixed_numerics)
        except BaseException:
            store._abandon()
            lock.release()
            raise
        return store

    @classmethod
    def ensure(
        cls,
        directory: str | Path,
        *,
        protocol: Mapping[str, Any],
        seeds: Mapping[str, Iterable[int]],
        profile: Mapping[str, Any] | None = None,
        mixed_numerics: bool = False,
        stamps: Sequence[str] = (),
    ) -> Self:
        """Resume the study if it is there, else create it: the first line of a resumable command.

        Raises:
            UsageError: the study there has another protocol, the differing entries named.
        """
        directory = Path(directory)
        if not (directory / leftovers.DATABASE).exists():
            cls.create(directory, protocol=protocol, seeds=seeds).close()
        store = cls.open(directory, profile=profile, mixed_numerics=mixed_numerics, stamps=stamps)
        wanted = make_protocol(protocol, seeds)
        if wanted.digest != store._protocol.digest:
            store.close()
            here, there = wanted.entries, store._protocol.entries
            names = differences(
                {**here, "seeds": wanted.seeds}, {**there, "seeds": store._protocol.seeds}
            )
            raise UsageError(
                f"{directory} holds a study with another protocol; {', '.join(names)} differ(s). "
                "Use the same settings to resume it, or another directory for a new study."
            )
        return store

    @classmethod
    def read(cls, directory: str | Path, *, strict: bool = True) -> Self:
        """Open a study read-only; works while a writer is active and on read-only media.

        strict: refuse a study whose study.toml was edited; ``verify`` reports it instead.

        Raises:
            UsageError: no study here, or a newer schema.
            EvidenceError: study.toml was edited, or the database is damaged.
        """
        directory = Path(directory)
        _require_study(directory)
        store = cls.__new__(cls)
        try:
            store._begin(directory, writable=False, lock=None, strict=strict)
        except BaseException:
            store._abandon()
            raise
        return store

    def _begin(
        self, directory: Path, *, writable: bool, lock: StudyLock | None, strict: bool = True
    ) -> None:
        self.directory = directory
        self.notices = ()
        self._lock = lock
        self._pid = os.getpid()
        self._stamps: tuple[str, ...] = ()
        self._interfaces: dict[str, Interface] = {}
        self._db = sqlite3.connect(
            f"{(directory / leftovers.DATABASE).resolve().as_uri()}?mode={'rw' if writable else 'ro'}",
            uri=True,
            isolation_level=None,
            timeout=30.0,
        )
        self.artifacts = Artifacts(directory, writable=writable, kept=self._kept)
        try:
            self._db.execute("PRAGMA foreign_keys = ON")
            self._db.execute("PRAGMA synchronous = FULL")
            found = schema.check(self._db, str(directory))
            if writable:
                schema.migrate(self._db)
            elif found < max(schema.versions()):
                raise UsageError(
                    f"{directory} has the older schema version {found}: open it once for writing "
                    "(any command that resumes it) to bring it up to date."
                )
            self._protocol = self._frozen_protocol(strict)
            self._owner = dict(self._db.execute("SELECT seed, partition FROM seeds").fetchall())
            self._head = self._find_head(strict)
        except sqlite3.DatabaseError as e:
            raise EvidenceError(
                f"{directory / leftovers.DATABASE} cannot be read ({e}). Restore it from a "
                "snapshot; artifacts and study.toml are untouched."
            ) from e

    def _frozen_protocol(self, strict: bool) -> Protocol:
        text = self._fact("study.toml")
        if text is None:
            raise EvidenceError(f"{self.directory}: the database holds no protocol.")
        frozen = parse_protocol(text, place=f"the protocol stored in {self.directory}")
        problem = protocol_problem(self.directory, frozen)
        if problem and strict:
            raise EvidenceError(problem)
        return frozen

    def _find_head(self, strict: bool) -> tuple[int, str]:
        last = self._db.execute(
            "SELECT seq, chain FROM records ORDER BY seq DESC LIMIT 1"
        ).fetchone() or (0, self._protocol.sha256)
        noted = json.loads(self._fact("head") or "null")
        if strict and noted != list(last):
            raise EvidenceError(
                f"{self.directory}: the last record is number {last[0]}, but the study ended with "
                f"number {noted[0] if noted else '?'}: records were added or removed by hand. "
                "Run dreamcheck verify on the study to see which."
            )
        return int(last[0]), str(last[1])

    def _numerics(self, profile: Mapping[str, Any] | None, mixed: bool) -> tuple[str, ...]:
        """Note the run's profile; returns the stamps its records need."""
        if profile is None:
            return ()
        own = plain(profile)
        known: list[dict[str, Any]] = json.loads(self._fact("profiles") or "[]")
        if not known or (mixed and own not in known):
            with self._transaction():
                self._set_fact("profiles", canonical_json([*known, own]))
        if not known or own == known[0]:
            return ()
        if not mixed:
            names = differences(known[0], own)
            told = ", ".join(f"{n}: {known[0].get(n)!r} then, {own.get(n)!r} now" for n in names)
            raise GuardRefused(
                f"{self.directory} was measured under another numerics profile ({told}). Results "
                "may differ in the last bits: resume on the same set-up, or pass --mixed-numerics, "
                "which stamps every further record."
            )
        return (f"mixed-numerics:{digest(own)[:12]}",)

    # -- facts about the study ---------------------------------------------------------------

    @property
    def protocol(self) -> dict[str, Any]:
        """The frozen protocol, without its seed partitions."""
        return self._protocol.entries

    @property
    def protocol_digest(self) -> str:
        """Digest of protocol and seeds: equal for studies that may be merged."""
        return self._protocol.digest

    @property
    def seeds(self) -> dict[str, tuple[int, ...]]:
        """Partition -> environment seeds."""
        return self._protocol.seeds

    @property
    def profiles(self) -> list[dict[str, Any]]:
        """Numerics profiles in order of use; the first is the study's own."""
        return json.loads(self._fact("profiles") or "[]")

    @property
    def head(self) -> tuple[int, str]:
        """(number of records, chained digest of the last): one name for everything stored."""
        if self._lock is None:
            return self._find_head(strict=False)
        return self._head

    def _fact(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM study WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set_fact(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO study VALUES (?, ?)", (name, value))

    # -- writing -----------------------------------------------------------------------------

    def commit(self, records: Iterable[Entry | Record | Interface]) -> int:
        """Write a batch, whole or not at all; durable when it returns.

        The same key with the same content is no news and is skipped, so a resumed run may commit
        again what it is unsure of. Records come after those they cite, at best in the same batch.

        Returns:
            How many records were new.

        Raises:
            UsageError: a seed outside the partition it names (law 3), a cited record or an
                artifact that is not there, an ill-formed record.
            EvidenceError: a key is stored with other content.
            IncompleteError: the disk is full; earlier commits are kept.
        """
        self._must_write()
        batch = [self._ready(r) for r in records]
        defaults = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        with telling_full(self.directory, lambda: self._kept(len(batch))):
            with self._transaction():
                head = self._insert(batch, defaults)
                new = head[0] - self._head[0]
                if new:
                    self._set_fact("head", canonical_json(head))
            self._head = head
        return new

    def _insert(self, batch: Sequence[Record], defaults: Mapping[str, Any]) -> tuple[int, str]:
        seq, chain = self._head
        rows, holds, cites, files = [], [], [], {}
        placed: dict[tuple[str, str], tuple[int, Record]] = {}
        for record in batch:
            name = (record.kind, record.key)
            known = placed[name][1] if name in placed else self._stored(*name)
            if known is not None:
                if not _same(known, record):
                    raise EvidenceError(_conflict(known, record, str(self.directory)))
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
                        files[ref] = self._artifact_size(ref, record)
                    holds.append((seq, label, ref))
            for cited in _cites(record):
                at = placed[cited][0] if cited in placed else self._seq_of(*cited)
                if at is None:
                    raise UsageError(
                        f"{record.kind} {record.key} rests on {cited[0]} {cited[1]}, which is not "
                        "in the store. Commit that record first, or in the same batch before it."
                    )
                cites.append((seq, at))
        run = self._db.executemany
        run("INSERT INTO records (seq, kind, key, payload, digest, fields, chain, meta) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)  # fmt: skip
        run("INSERT OR IGNORE INTO artifacts VALUES (?, ?)", files.items())
        run("INSERT INTO holds VALUES (?, ?, ?)", holds)
        run("INSERT OR IGNORE INTO cites VALUES (?, ?)", cites)
        return seq, chain

    def _ready(self, item: Entry | Record | Interface) -> Record:
        """The sealed record, stamped, and checked against laws 3 and 4."""
        record = item if isinstance(item, Record) else item.record()
        if self._stamps:
            payload = dict(record.payload)
            payload["stamps"] = [*payload.get("stamps", ()), *self._stamps]
            record = Record.make(record.kind, record.key, payload, meta=record.meta)
        if isinstance(item, Record) and record.kind in TYPES:
            entry_of(record)
        payload = record.payload
        if "partition" in payload:
            self._check_partition(record)
        if record.kind == "interface":
            self._interfaces[record.key] = Interface.from_payload(payload)
        elif record.kind == "measurement":
            interface = self._interface(payload["interface"])
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

    def _check_partition(self, record: Record) -> None:
        payload = record.payload
        partition = payload["partition"]
        if partition not in self._protocol.seeds:
            raise UsageError(
                f"{record.kind} {record.key} draws on partition {partition!r}; the study declares "
                f"{', '.join(sorted(self._protocol.seeds)) or 'none'}. Partitions are declared "
                "when a study is made (law 3)."
            )
        for seed in [payload["seed"]] if "seed" in payload else payload.get("seeds", ()):
            owner = self._owner.get(seed)
            if owner != partition:
                where = f"belongs to {owner!r}" if owner else "is in no partition"
                raise UsageError(
                    f"{record.kind} {record.key}: seed {seed} is not in partition {partition!r}; "
                    f"it {where}. Search must never see validation (law 3): use the declared seeds."
                )

    def _interface(self, key: str) -> Interface | None:
        if key not in self._interfaces:
            record = self.get("interface", key)
            if record is None:
                return None
            self._interfaces[key] = Interface.from_payload(record.payload)
        return self._interfaces[key]

    def _artifact_size(self, ref: str, record: Record) -> int:
        try:
            return self.artifacts.path(ref).stat().st_size
        except FileNotFoundError as e:
            raise UsageError(
                f"{record.kind} {record.key} refers to artifact {ref}, which is not there. Store "
                "it with store.artifacts before the record."
            ) from e

    def _stored(self, kind: str, key: str) -> Record | None:
        # Most records are new: ask the index for the place before reading the row.
        return self.get(kind, key) if self._seq_of(kind, key) is not None else None

    def _seq_of(self, kind: str, key: str) -> int | None:
        row = self._db.execute(
            "SELECT seq FROM records WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return row[0] if row else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _must_write(self) -> None:
        if self._lock is None:
            raise UsageError(f"{self.directory} is open for reading; use Store.open() to write.")
        if os.getpid() != self._pid:
            raise UsageError(
                f"{self.directory} was opened by process {self._pid}; a forked worker must hand "
                "its records to that process, the study's one writer."
            )

    def _kept(self, lost: int = 0) -> str:
        unwritten = f"; the last batch of {lost} was not written" if lost else ""
        return f"All {self._head[0]} committed records are kept{unwritten}."

    # -- reading -----------------------------------------------------------------------------

    def get(self, kind: str, key: str) -> Record | None:
        """The record of that key, or None."""
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM records WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return _record(row) if row else None

    def missing(self, kind: str, keys: Iterable[str]) -> list[str]:
        """The keys that are not stored yet, in order: what a resumed run still has to do.

        Reads the key index only, never a payload.
        """
        return [key for key in keys if self._seq_of(kind, key) is None]

    def records(self, kind: str | None = None, **where: Any) -> Iterator[Record]:
        """Records in the order of commitment.

        Args:
            kind: of this kind only.
            where: payload path -> value; a path descends with "__" or ".", a list or tuple means
                any of its values, None means absent: ``records("measurement", seed=3,
                activity__contacts=0)``.
        """
        condition, values = _condition(kind, where)
        last = 0
        while True:
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM records WHERE seq > ? AND {condition} "
                "ORDER BY seq LIMIT ?",
                (last, *values, _PAGE),
            ).fetchall()
            yield from map(_record, rows)
            if len(rows) < _PAGE:
                return
            last = rows[-1][6]

    def count(self, kind: str | None = None, **where: Any) -> int:
        """How many records ``records(kind, **where)`` would give."""
        condition, values = _condition(kind, where)
        return self._db.execute(
            f"SELECT count(*) FROM records WHERE {condition}", values
        ).fetchone()[0]

    def kinds(self) -> dict[str, int]:
        """Kind -> number of records."""
        return dict(self._db.execute("SELECT kind, count(*) FROM records GROUP BY kind"))

    def artifact_refs(self) -> dict[str, int]:
        """Reference -> size in bytes of every artifact that a record holds."""
        return dict(self._db.execute("SELECT ref, num_bytes FROM artifacts ORDER BY ref"))

    # -- moving ------------------------------------------------------------------------------

    def snapshot(self, directory: str | Path) -> Path:
        """A complete copy of the study as of now, also while it is being written."""
        from dreamcheck.evidence.transfer import snapshot

        return snapshot(self, Path(directory))

    def merge(self, others: Iterable[str | Path]) -> int:
        """Take in the records of studies with the identical protocol; returns how many were new."""
        from dreamcheck.evidence.transfer import merge

        self._must_write()
        return merge(self, [Path(o) for o in others])

    def export(self, directory: str | Path) -> list[Path]:
        """One Parquet file per kind (needs the [export] extra)."""
        from dreamcheck.evidence.transfer import export

        return export(self, Path(directory))

    # -- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Fold the log into the database file and give the lock back. May be called twice.

        A disk too full for that loses nothing: the log stays beside the database, and the next
        opening takes it up.
        """
        if self._db is None or os.getpid() != self._pid:
            return
        try:
            if self._lock is not None:
                self._fold()
        finally:
            self._abandon()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _fold(self) -> None:
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # A reader on the log makes this fail at once instead of after the usual wait.
            self._db.execute("PRAGMA busy_timeout = 200")
            self._db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as e:
            log.warning(
                "%s: the log stays beside the database (%s); copy both, or open and close the "
                "study once more before copying.", self.directory, e,
            )  # fmt: skip

    def _abandon(self) -> None:
        if getattr(self, "_db", None) is not None:
            self._db.close()
            self._db = None  # type: ignore[assignment]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def protocol_problem(directory: Path, frozen: Protocol) -> str | None:
    """What is wrong with the directory's study.toml against the frozen protocol, or None."""
    path = directory / FILE
    if not path.exists():
        return f"{path} is missing. The frozen text is in evidence.sqlite, table study."
    data = path.read_bytes()
    if sha256_bytes(data) == frozen.sha256:
        return None
    try:
        now = parse_protocol(data.decode("utf-8"), place=str(path))
        names = differences(
            {**frozen.entries, "seeds": frozen.seeds}, {**now.entries, "seeds": now.seeds}
        )
    except (UsageError, UnicodeDecodeError):
        names = []
    told = f"entries {', '.join(names)} differ" if names else "its text differs"
    return (
        f"{path} was changed after the study was made ({told}). A protocol is frozen: restore the "
        "file (its text is in evidence.sqlite, table study), or make another study."
    )


def _make_database(directory: Path, frozen: Protocol) -> None:
    """Build the empty database beside its place and move it there last."""
    making = directory / leftovers.CREATING
    db = sqlite3.connect(making, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = FULL")
        schema.migrate(db)
        db.execute("BEGIN")
        facts = {
            "study.toml": frozen.text,
            "study.toml sha256": frozen.sha256,
            "protocol digest": frozen.digest,
            "head": canonical_json((0, frozen.sha256)),
        }
        db.executemany("INSERT INTO study VALUES (?, ?)", facts.items())
        owners = [(seed, name) for name, seeds in frozen.seeds.items() for seed in seeds]
        db.executemany("INSERT INTO seeds VALUES (?, ?)", owners)
        db.execute("COMMIT")
    finally:
        db.close()
    path = directory / FILE
    if path.exists() and path.read_bytes() != frozen.text.encode("utf-8"):
        making.unlink()
        raise UsageError(
            f"{path} is there without a study and says something else. Pass it as protocol=, or "
            "move it away."
        )
    write_whole(path, frozen.text.encode("utf-8"))
    os.replace(making, directory / leftovers.DATABASE)
    sync_folder(directory)


def _require_study(directory: Path) -> None:
    if not (directory / leftovers.DATABASE).is_file():
        raise UsageError(
            f"{directory} holds no study: {leftovers.DATABASE} is not there. Check the path, or "
            "make a study with dreamcheck discover --out DIR."
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} cannot be read as a protocol: {e}.") from e


def _record(row: Sequence[Any]) -> Record:
    kind, key, text, digest_, fields, meta, seq, chain = row
    return Record(kind, key, text, digest_, fields, json.loads(meta), seq, chain)


def _cites(record: Record) -> tuple[tuple[str, str], ...]:
    if record.kind == "measurement":
        return (("interface", record.payload["interface"]),)
    if record.kind in ("evaluation", "validation", "neighbourhood"):
        return entry_of(record).cites()
    return ()


def _same(stored: Record, new: Record) -> bool:
    """Equal content; a stamp tells how a record was made, not what it says."""
    if stored.digest == new.digest:
        return True
    old, now = dict(stored.payload), dict(new.payload)
    old.pop("stamps", None)
    now.pop("stamps", None)
    return old == now


def _conflict(stored: Record, new: Record, place: str) -> str:
    fields = differences(stored.payload, new.payload)
    shown = ", ".join(
        f"{name}: {stored.at(name)!r:.60} stored, {new.at(name)!r:.60} now" for name in fields[:3]
    )
    return (
        f"{place}: {new.kind} {new.key} is already stored with other content ({shown}). The same "
        "key must give the same record: the code, the model or the machine changed under the "
        "study. Make another study, or raise the interface's algorithm_version."
    )


def _condition(kind: str | None, where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    parts, values = ["1"], []
    if kind is not None:
        parts.append("kind = ?")
        values.append(kind)
    for path, wanted in where.items():
        column = f"json_extract(payload, '{_json_path(path)}')"
        if wanted is None:
            parts.append(f"{column} IS NULL")
        elif isinstance(wanted, (list, tuple, set, frozenset, range)):
            marks = ", ".join("?" * len(wanted))
            parts.append(f"{column} IN ({marks})")
            values += [plain(w) for w in wanted]
        else:
            parts.append(f"{column} = ?")
            values.append(plain(wanted))
    return " AND ".join(parts), values


def _json_path(path: str) -> str:
    steps = path.replace("__", ".").split(".")
    for step in steps:
        if not step or any(c in step for c in "'\"\\[]"):
            raise UsageError(f"payload path {path!r}: use names joined by '.' or '__'.")
    return "$" + "".join(f".{s}" if _PLAIN_NAME.match(s) else f'."{s}"' for s in steps)
