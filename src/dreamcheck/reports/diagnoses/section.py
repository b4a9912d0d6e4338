"""The sections of a store's diagnoses, in the order of the page."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from dreamcheck.evidence import Numbers, Shown, Store
from dreamcheck.evidence.diagnoses import KIND
from dreamcheck.reports.diagnoses.reader import DiagnosisReader


@dataclass(frozen=True)
class Section:
    """One section: id is its anchor; opens: it stands before everything else of the page."""

    id: str
    title: str
    order: int
    body: Markup
    stamps: tuple[str, ...]
    key: str

    @property
    def opens(self) -> bool:
        """Whether the page begins with it."""
        return self.order == 0


def diagnosis_sections(
    store: Store, numbers: Numbers, mark: Callable[[Shown], str]
) -> list[Section]:
    """A section for each diagnosis whose name has one, by order and then by commitment."""
    seen: Counter[str] = Counter()
    sections = []
    for record in store.records(KIND):
        name = record.payload["name"]
        module_name = f"dreamcheck.reports.diagnoses.{name.replace('-', '_')}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as e:
            if e.name != module_name:
                raise
            continue  # kept by a newer version or another package: data, not shown
        reader = DiagnosisReader(record, store, numbers, mark, seen[name])
        seen[name] += 1
        sections.append(
            Section(
                id=reader.anchor,
                title=module.TITLE,
                order=module.ORDER,
                body=Markup(module.body(reader)),
                stamps=tuple(record.payload["stamps"]),
                key=record.key,
            )
        )
    return sorted(sections, key=lambda s: s.order)
