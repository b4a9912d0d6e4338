"""Law 6: every displayed number is computed from records here, and written to report.json."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamcheck.digest import canonical_json, digest, plain
from dreamcheck.errors import Abstention, InterfaceMismatch, UsageError
from dreamcheck.evidence import page_text, statistics
from dreamcheck.evidence.artifacts import write_whole
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.store import Store

FORMAT = "dreamcheck-report-1"
NOT_MEASURED = "not measured"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*\Z")

Query = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""{"kind": ..., "where": {path: value}} or {"kind": ..., "keys": [...]}, or a list of such."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A number as it is displayed.

    value: None when it was not measured; reason then says why, and text is "not measured".
    """

    id: str
    value: statistics.Scalar | None
    text: str
    reason: str | None = None

    def element(self, *, copy: int = 0) -> str:
        """The HTML element that marks it; ``copy`` numbers its second, third, ... appearance."""
        place = f"n:{self.id}" + (f"~{copy}" if copy else "")
        value = page_text.value_text(self.value)
        title = f' title="{html.escape(self.reason)}"' if self.reason else ""
        return (
            f'<data class="num" id="{place}" value="{html.escape(value)}"{title}>'
            f"{html.escape(self.text)}</data>"
        )

    def __str__(self) -> str:
        return self.text


class Numbers:
    """Collects the numbers of one report over one store.

    >>> numbers = Numbers(store)
    >>> worst = numbers.number("worst.risk", "max", query={"kind": "evaluation"},
    ...                        params={"path": "risk"}, format="{:.2f} px")
    >>> worst.element()     # for the page
    >>> numbers.write(directory / "report.json", page=html_text)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, dict[str, Any]] = {}
        self._shown: dict[str, Shown] = {}
        self._cache: dict[str, list[Record]] = {}

    def number(
        self,
        id: str,
        statistic: str,
        *,
        query: Query,
        params: Mapping[str, Any] | None = None,
        format: str = "{}",
    ) -> Shown:
        """Compute a number from records, note it, and return it as displayed.

        Asking again for the same id with the same definition returns the same number.

        Args:
            id: unique in the report; letters, digits and ``. _ : / -``.
            statistic: a registered name.
            query: which records.
            params: of the statistic.
            format: Python format string with one field, the unit included: ``"{:.2f} px"``.

        Raises:
            UsageError: an ill-formed id or one with another definition, an unknown statistic.
            InterfaceMismatch: records of several interfaces (law 7).
        """
        if not _ID.match(id):
            raise UsageError(f"number id {id!r}: use letters, digits and . _ : / - only.")
        definition = plain(
            {
                "id": id,
                "statistic": statistic,
                "params": params or {},
                "query": query,
                "format": format,
            }
        )
        known = self._entries.get(id)
        if known is not None:
            if any(known[name] != value for name, value in definition.items()):
                raise UsageError(f"number {id!r} is already shown with another definition.")
            return self._shown[id]
        entry, shown = compute(self._store, definition, cache=self._cache)
        self._entries[id] = entry
        self._shown[id] = shown
        return shown

    def __getitem__(self, id: str) -> Shown:
        return self._shown[id]

    def __len__(self) -> int:
        return len(self._shown)

    def manifest(self, *, page: str | None = None) -> dict[str, Any]:
        """What report.json holds: the study, every number, and digests of the page's text."""
        seq, chain = self._store.head
        body = {
            "format": FORMAT,
            "study": {
                "protocol_digest": self._store.protocol_digest,
                "records": seq,
                "chain": chain,
            },
            "numbers": list(self._entries.values()),
            "page": page_text.describe(page) if page is not None else None,
        }
        return {**body, "digest": digest(body)}

    def write(self, path: str | Path, *, page: str | None = None) -> None:
        """Write report.json. ``page`` is the finished report.html, exactly as it is written.

        Raises:
            UsageError: the page shows a number that was not computed here, or another text for it.
        """
        manifest = self.manifest(page=page)
        if page is not None:
            problems = page_text.check(page, manifest)
            if problems:
                raise UsageError(f"the page disagrees with its numbers: {problems[0].message}")
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(Path(path), text.encode("utf-8"))


def select(store: Store, query: Query) -> list[Record]:
    """The records of a query, in the order of commitment, or of its keys where keys are given.

    Raises:
        UsageError: an unknown part of a query.
        Abstention: a key that is not stored.
    """
    if not isinstance(query, Mapping):
        return [r for part in query for r in select(store, part)]
    unknown = set(query) - {"kind", "where", "keys"}
    if unknown or "kind" not in query:
        raise UsageError(f"a record query has kind, and where or keys; got {sorted(query)}.")
    kind = query["kind"]
    if "keys" not in query:
        return list(store.records(kind, **query.get("where", {})))
    found = []
    for key in query["keys"]:
        record = store.get(kind, key)
        if record is None:
            raise Abstention(f"{kind} {key} is not stored.")
        found.append(record)
    return found


def compute(
    store: Store,
    definition: Mapping[str, Any],
    *,
    cache: dict[str, list[Record]] | None = None,
) -> tuple[dict[str, Any], Shown]:
    """A number from its definition: (its manifest entry, as displayed). ``verify`` uses this too."""
    entry = statistics.find(definition["statistic"])
    reason = None
    value: statistics.Scalar | None = None
    records: list[Record] = []
    try:
        records = _cached(store, definition["query"], cache)
        if not entry.across_interfaces:
            _one_interface(records, definition["id"])
        value = entry.function(records, definition["params"])
    except Abstention as e:
        reason = str(e)
    except KeyError as e:
        raise UsageError(
            f"number {definition['id']!r}: statistic {entry.name!r} needs parameter {e}."
        ) from e
    if isinstance(value, float) and not math.isfinite(value):
        value, reason = None, f"the result is {value}."
    text = NOT_MEASURED if value is None else definition["format"].format(value)
    failed = sum(r.payload.get("failure") is not None for r in records)
    body = {
        **definition,
        "value": value,
        "text": text,
        "reason": reason,
        "module": entry.module,
        "num_records": len(records),
        "num_failed": failed,
        "records_digest": digest([r.digest for r in records]),
    }
    return {**body, "entry_digest": digest(body)[:16]}, Shown(definition["id"], value, text, reason)


def _cached(store: Store, query: Query, cache: dict[str, list[Record]] | None) -> list[Record]:
    if cache is None:
        return select(store, query)
    name = f"{store.head[0]} {canonical_json(query)}"
    if name not in cache:
        cache[name] = select(store, query)
    return cache[name]


def _one_interface(records: Sequence[Record], id: str) -> None:
    seen = sorted({r.payload["interface"] for r in records if "interface" in r.payload})
    if len(seen) > 1:
        raise InterfaceMismatch(
            f"number {id!r} would pool {len(seen)} prediction interfaces "
            f"({', '.join(s[:12] for s in seen)}). Their risks are not comparable (law 7): add "
            "interface=... to the query and show one number each."
        )
