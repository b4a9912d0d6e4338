"""One writer per study: a lock that dies with its process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from dreamcheck.errors import UsageError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

_held: dict[tuple[int, Path], StudyLock] = {}


class StudyLock:
    """An exclusive lock on ``study.lock`` of a study directory.

    A POSIX record lock: the kernel drops it when the process ends, however it ends, and a forked
    worker neither inherits nor prolongs it. Such locks do not exclude the same process, so open
    studies are also listed here.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory.resolve() / "study.lock"
        self._file: IO[Any] | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            UsageError: another process, or another Store of this one, is writing this study.
        """
        # The list is asked before the file is opened: closing any descriptor of a file drops
        # every POSIX lock this process has on it.
        if (os.getpid(), self._path) in _held:
            raise UsageError(
                f"{self._path.parent} is already open for writing in this process. Close that "
                "store first, or open a reader with Store.read()."
            )
        file = open(self._path, "a+")  # noqa: SIM115 - held open for as long as the lock
        try:
            if fcntl is not None:
                fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:  # pragma: no cover - Windows
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as e:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise UsageError(
                f"{self._path.parent} is being written by another process ({holder}). Wait for it "
                "to end, or read the study with Store.read(); the lock ends with that process."
            ) from e
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {os.uname().nodename if hasattr(os, 'uname') else '?'}\n")
        file.flush()
        self._file = file
        _held[(os.getpid(), self._path)] = self

    def release(self) -> None:
        """Give the lock back; the file stays, empty."""
        _held.pop((os.getpid(), self._path), None)
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None
