"""`verify`, with the neighbourhoods generated again from the libraries."""

from __future__ import annotations

from pathlib import Path

import dreamcheck.reports.statistics  # noqa: F401  (registers the statistics)
from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import DreamcheckError
from dreamcheck.evidence import Store, VerifyReport, verify
from dreamcheck.tasks import get_task


def verify_study(directory: str | Path) -> VerifyReport:
    """Everything in a study and its report checked; only read.

    Raises:
        UsageError: no study there, or one of a newer schema.
    """
    libraries = _libraries(directory)

    def regenerate(anchor: str) -> list[str]:
        for library, graph in libraries:
            try:
                index = library.index(anchor)
            except DreamcheckError:
                continue
            return library.ids(sorted(int(i) for i in graph.within(index, 1)))
        return []

    return verify(directory, regenerate=regenerate if libraries else None)


def _libraries(directory: str | Path) -> list[tuple[Library, Graph]]:
    """The study's libraries, built again; empty where its protocol cannot be read."""
    try:
        with Store.read(directory, strict=False) as store:
            protocol = store.protocol
        rules = get_task(protocol["task"]).rules()
        built = [
            Library.build(get_specification(s["specification"]), task_rules=rules)
            for s in protocol["searches"]
        ]
    except (DreamcheckError, KeyError):
        return []
    return [(library, Graph(library)) for library in built]
