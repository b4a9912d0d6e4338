"""What a killed run leaves in a study directory: recognised, set aside, never written onto."""

from __future__ import annotations

import shutil
from pathlib import Path

DATABASE = "evidence.sqlite"
CREATING = "evidence.sqlite.creating"


def set_aside(directory: Path) -> list[str]:
    """Move or copy leftovers into ``leftovers/<n>/``; returns one notice each.

    Call it with the study's lock held and before the database is opened.

    - Half-written artifacts, trial files and a half-made database are moved.
    - A log or journal of the database may hold committed records that SQLite will recover when
      the database is opened: it is copied first, and left for SQLite.
    - A write-ahead log beside a database that is not in write-ahead mode belongs to another
      file. SQLite would replay it regardless: it is moved.
    """
    moves: list[Path] = []
    copies: list[Path] = []
    notices: list[str] = []
    waiting = directory / "artifacts" / ".tmp"
    if waiting.is_dir():
        moves += sorted(waiting.iterdir())
    moves += sorted(directory.glob(".probe-*.sqlite*")) + sorted(directory.glob(".*.tmp"))
    moves += sorted(directory.glob(f"{CREATING}*"))

    log = directory / f"{DATABASE}-wal"
    index = directory / f"{DATABASE}-shm"
    journal = directory / f"{DATABASE}-journal"
    if log.exists() and log.stat().st_size:
        if _in_wal_mode(directory / DATABASE):
            copies.append(log)
        else:
            moves += [log, *([index] if index.exists() else [])]
    if journal.exists() and journal.stat().st_size:
        copies.append(journal)
    if not moves and not copies:
        return []

    shelf = _next_shelf(directory)
    for path in moves:
        shutil.move(path, shelf / path.name)
        notices.append(
            f"{path.relative_to(directory)} was left unfinished by a run that was killed; "
            f"it is now in {shelf.relative_to(directory)}."
        )
    for path in copies:
        shutil.copy2(path, shelf / path.name)
        notices.append(
            f"{path.name} was left by a run that was killed; its committed records are recovered, "
            f"a copy is in {shelf.relative_to(directory)}."
        )
    return notices


def _in_wal_mode(database: Path) -> bool:
    """Whether the file's header says write-ahead (format versions 2 at bytes 18 and 19)."""
    with open(database, "rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"


def _next_shelf(directory: Path) -> Path:
    shelves = directory / "leftovers"
    shelves.mkdir(exist_ok=True)
    number = 1 + max((int(p.name) for p in shelves.iterdir() if p.name.isdigit()), default=0)
    shelf = shelves / str(number)
    shelf.mkdir()
    return shelf
