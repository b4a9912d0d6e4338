"""The store of one study: append-only records in SQLite, chained, committed in batches."""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dreamcheck.digest import canonical_json, digest, plain
from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.evidence import batch, leftovers, schema
from dreamcheck.evidence.artifacts import Artifacts
from dreamcheck.evidence.create import make_database
from dreamcheck.evidence.disk import fit_for_wal, telling_full
from dreamcheck.evidence.keys import Interface
from dreamcheck.evidence.lock import StudyLock
from dreamcheck.evidence.protocol import (
    Protocol,
    differences,
    make_protocol,
    parse_protocol,
    protocol_problem,
)
from dreamcheck.evidence.queries import COLUMNS, condition, record_of
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.records import Entry

log = logging.getLogger("dreamcheck.evidence")

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
                make_database(directory, frozen)
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
        # One statement, so that a commit between two reads cannot look like tampering.
        head, seq, chain = self._db.execute(
            "SELECT (SELECT value FROM study WHERE name = 'head'), last.seq, last.chain "
            "FROM (SELECT 1) LEFT JOIN "
            "(SELECT seq, chain FROM records ORDER BY seq DESC LIMIT 1) AS last"
        ).fetchone()
        last = (seq, chain) if seq is not None else (0, self._protocol.sha256)
        noted = json.loads(head or "null")
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
        ready = [batch.ready(self, r) for r in records]
        defaults = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        with telling_full(self.directory, lambda: self._kept(len(ready))):
            with self._transaction():
                head = batch.insert(self, ready, defaults)
                new = head[0] - self._head[0]
                if new:
                    self._set_fact("head", canonical_json(head))
            self._head = head
        return new

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
            f"SELECT {COLUMNS} FROM records WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return record_of(row) if row else None

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
        clause, values = condition(kind, where)
        last = 0
        while True:
            rows = self._db.execute(
                f"SELECT {COLUMNS} FROM records WHERE seq > ? AND {clause} ORDER BY seq LIMIT ?",
                (last, *values, _PAGE),
            ).fetchall()
            yield from map(record_of, rows)
            if len(rows) < _PAGE:
                return
            last = rows[-1][6]

    def count(self, kind: str | None = None, **where: Any) -> int:
        """How many records ``records(kind, **where)`` would give."""
        clause, values = condition(kind, where)
        return self._db.execute(f"SELECT count(*) FROM records WHERE {clause}", values).fetchone()[
            0
        ]

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
