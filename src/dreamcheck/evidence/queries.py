"""Reading records: rows back to records, payload paths to SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.digest import plain
from dreamcheck.errors import UsageError
from dreamcheck.evidence.record import Record

COLUMNS = "kind, key, payload, digest, fields, meta, seq, chain"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def record_of(row: Sequence[Any]) -> Record:
    """The record in a row of COLUMNS."""
    kind, key, text, digest_, fields, meta, seq, chain = row
    return Record(kind, key, text, digest_, fields, json.loads(meta), seq, chain)


def condition(kind: str | None, where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The SQL condition, and its values, of a kind and payload paths (see ``Store.records``).

    Raises:
        UsageError: a path that is not names joined by "." or "__".
    """
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
