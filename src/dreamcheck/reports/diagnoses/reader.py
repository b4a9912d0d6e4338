"""What a diagnosis' section is written with: its record, and numbers that can be recomputed."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.digest import digest
from dreamcheck.evidence import Numbers, Record, Shown, Store
from dreamcheck.evidence.diagnoses import KIND
from dreamcheck.evidence.record import at_path
from dreamcheck.reports.pictures import png_uri


@dataclass(frozen=True)
class DiagnosisReader:
    """One diagnosis record as its section reads it.

    mark: the page's marker, which gives every appearance of a number its own element.
    index: tells several diagnoses of one name apart.
    """

    record: Record
    store: Store
    numbers: Numbers
    mark: Callable[[Shown], str]
    index: int = 0

    @property
    def name(self) -> str:
        """Which diagnosis."""
        return self.record.payload["name"]

    @property
    def anchor(self) -> str:
        """The section's id in the page; a prefix for ids inside it."""
        return f"{self.name}-{self.index}" if self.index else self.name

    @property
    def result(self) -> Mapping[str, Any]:
        """What was found."""
        return self.record.payload["result"]

    @property
    def subject(self) -> Mapping[str, Any]:
        """What was examined."""
        return self.record.payload["subject"]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What else the result depends on."""
        return self.record.payload["inputs"]

    def at(self, path: str) -> Any:
        """The value at a dotted path of the result, None where there is none; for drawing."""
        return at_path(self.result, path)

    def number(self, path: str, format: str = "{}") -> str:
        """The result's value at a dotted path, as the marked element that ``verify`` recomputes."""
        return self._shown("field", f"result.{path}", format, {"path": f"result.{path}"})

    def subject_number(self, path: str, format: str = "{}") -> str:
        """A value of the subject, as a marked element."""
        return self._shown("field", f"subject.{path}", format, {"path": f"subject.{path}"})

    def input_number(self, path: str, format: str = "{}") -> str:
        """A value of the inputs, as a marked element."""
        return self._shown("field", f"inputs.{path}", format, {"path": f"inputs.{path}"})

    def statistic(self, name: str, format: str = "{}", *, id: str, **params: Any) -> str:
        """A registered statistic of this record, as a marked element; ``id`` names it here."""
        return self._shown(name, id, format, params)

    def picture(self, name: str) -> str:
        """The data URI of a PNG artifact."""
        return png_uri(self.store.artifacts.get(self.record.payload["artifacts"][name]))

    @staticmethod
    def text(value: Any) -> str:
        """Any text, safe in HTML."""
        return html.escape(str(value))

    def _shown(self, statistic: str, id: str, format: str, params: Mapping[str, Any]) -> str:
        place = "".join(c if c.isalnum() or c in "._-" else "-" for c in f"{self.anchor}.{id}")
        shown = self.numbers.number(
            place if format == "{}" else f"{place}/{digest(format)[:6]}",
            statistic,
            query={"kind": KIND, "keys": [self.record.key]},
            params=params,
            format=format,
        )
        return self.mark(shown)
