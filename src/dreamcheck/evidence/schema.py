"""The store's schema: one readable file of versions, applied in order."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources

from dreamcheck.errors import UsageError

APPLICATION_ID = 0x44_52_43_4B  # "DRCK", so that `file` can tell a study from another database
_MARK = re.compile(r"^-- @version (\d+)$", re.MULTILINE)


def schema_text() -> str:
    """The text of schema.sql."""
    return resources.files("dreamcheck.evidence").joinpath("schema.sql").read_text("utf-8")


def versions(text: str | None = None) -> dict[int, str]:
    """Version -> the SQL that makes it out of the version before."""
    parts = _MARK.split(text if text is not None else schema_text())
    steps = {int(number): sql for number, sql in zip(parts[1::2], parts[2::2], strict=True)}
    assert list(steps) == list(range(1, len(steps) + 1)), "schema versions must count 1, 2, 3, ..."
    return steps


def version_of(connection: sqlite3.Connection) -> int:
    """The schema version of an open store."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check(connection: sqlite3.Connection, place: str, *, text: str | None = None) -> int:
    """The store's version, known to be one this Dreamcheck reads.

    Raises:
        UsageError: a newer schema than this Dreamcheck knows.
    """
    newest = max(versions(text))
    found = version_of(connection)
    if found > newest:
        raise UsageError(
            f"{place} has schema version {found}; this Dreamcheck knows versions up to {newest}. "
            "It was written by a newer Dreamcheck: install that one to read or continue the study. "
            "Nothing was changed."
        )
    return found


def migrate(connection: sqlite3.Connection, *, text: str | None = None) -> int:
    """Bring an open store to the newest version; returns the version it had before."""
    before = version_of(connection)
    for number, sql in versions(text).items():
        if number > before:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA application_id = {APPLICATION_ID};\n"
                f"PRAGMA user_version = {number};\nCOMMIT;"
            )
    return before
