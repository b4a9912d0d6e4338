"""Checkpoints of others, read without running anything of theirs."""

from dreamcheck.models.importing.convert import FAMILIES, Imported, import_checkpoint, read_foreign
from dreamcheck.models.importing.facts import ColumnStatistics, Fact, ImportReport
from dreamcheck.models.importing.recognise import Found, recognise

__all__ = [
    "FAMILIES",
    "ColumnStatistics",
    "Fact",
    "Found",
    "ImportReport",
    "Imported",
    "import_checkpoint",
    "read_foreign",
    "recognise",
]
