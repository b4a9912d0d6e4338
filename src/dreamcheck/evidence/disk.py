"""What a study's disk can be trusted with, and what to say when it is full."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dreamcheck.errors import IncompleteError

_FULL = {errno.ENOSPC, errno.EDQUOT}

# Write-ahead logging needs shared memory that all processes see and locks that work: local file
# systems only. Anything not named here keeps the rollback journal, which works everywhere.
_LOCAL = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "tmpfs", "overlay",
}  # fmt: skip


def file_system(directory: Path) -> str:
    """The type of the file system that holds a directory, "unknown" where it cannot be told."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    except OSError:
        return "unknown"
    place = str(directory.resolve())
    best, found = -1, "unknown"
    for line in mounts:
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        # Later mounts cover earlier ones at the same point.
        if inside and len(point) >= best:
            best, found = len(point), right.split()[0]
    return found


def fit_for_wal(directory: Path) -> str | None:
    """None when write-ahead logging is safe here, else the reason it is not.

    The type of the file system must be a local one, and a real write through a log, read back by
    a second connection, must succeed.
    """
    kind = file_system(directory)
    if kind not in _LOCAL:
        return f"file system {kind!r} is not known to be local"
    probe = directory / f".probe-{os.getpid()}.sqlite"
    try:
        writer = sqlite3.connect(probe, isolation_level=None)
        try:
            mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            writer.execute("CREATE TABLE t (x INTEGER)")
            writer.execute("INSERT INTO t VALUES (1)")
            reader = sqlite3.connect(f"{probe.resolve().as_uri()}?mode=ro", uri=True)
            try:
                seen = reader.execute("SELECT x FROM t").fetchone()
            finally:
                reader.close()
        finally:
            writer.close()
        return None if mode == "wal" and seen == (1,) else "a trial write did not come back"
    except (sqlite3.Error, OSError) as e:
        return f"a trial write failed: {e}"
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{probe}{suffix}").unlink(missing_ok=True)


@contextmanager
def telling_full(directory: Path, kept: Callable[[], str]) -> Iterator[None]:
    """Turn a full or failing disk into an IncompleteError that says what is kept."""
    try:
        yield
    except sqlite3.OperationalError as e:
        name = getattr(e, "sqlite_errorname", "") or ""
        if name == "SQLITE_FULL" or "full" in str(e):
            raise _full(directory, kept(), e) from e
        if name.startswith("SQLITE_IOERR"):
            raise IncompleteError(
                f"the disk of {directory} failed ({e}). {kept()} Make sure the disk is writable, "
                "then resume with the same command."
            ) from e
        raise
    except OSError as e:
        if e.errno in _FULL:
            raise _full(directory, kept(), e) from e
        raise


def _full(directory: Path, kept: str, cause: Exception) -> IncompleteError:
    return IncompleteError(
        f"the disk of {directory} is full ({cause}). {kept} Free some space, or move the study "
        "directory to a larger disk, then resume with the same command."
    )
