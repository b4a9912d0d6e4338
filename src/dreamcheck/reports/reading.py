"""What sections are written with: a study's records, and its numbers as displayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.evidence import Numbers, Shown, Store


@dataclass
class Reader:
    """A store with its numbers, and the shorthand the sections are written in."""

    store: Store
    numbers: Numbers
    subject: Mapping[str, Any]

    @property
    def unit(self) -> str:
        """Unit of the losses."""
        return self.subject["unit"]

    def payloads(self, kind: str, **where: Any) -> list[dict[str, Any]]:
        """Payloads of records, in the order of commitment."""
        return [{**r.payload, "key": r.key} for r in self.store.records(kind, **where)]

    def field(self, kind: str, key: str, path: str, fmt: str = "{:.2f}") -> Shown:
        """One field of one record, displayed."""
        return self.numbers.number(
            f"{kind}/{slug(key)}/{slug(path)}",
            "field",
            query={"kind": kind, "keys": [key]},
            params={"path": path},
            format=fmt,
        )

    def count(self, name: str, kind: str, **where: Any) -> Shown:
        """How many records there are."""
        return self.numbers.number(name, "count", query={"kind": kind, "where": where})

    def over(
        self, name: str, statistic: str, kind: str, path: str, fmt: str = "{:.2f}", **where: Any
    ) -> Shown:
        """A statistic of one field over records."""
        return self.numbers.number(
            name,
            statistic,
            query={"kind": kind, "where": where},
            params={"path": path},
            format=fmt,
        )


def slug(text: str) -> str:
    """A text as part of a number's id; begins with a letter or digit, as an id must."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text).lstrip("._-")
