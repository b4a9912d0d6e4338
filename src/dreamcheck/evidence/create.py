"""Making the empty database of a new study."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dreamcheck.digest import canonical_json
from dreamcheck.errors import UsageError
from dreamcheck.evidence import leftovers, schema
from dreamcheck.evidence.artifacts import sync_folder, write_whole
from dreamcheck.evidence.protocol import FILE, Protocol


def make_database(directory: Path, frozen: Protocol) -> None:
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
