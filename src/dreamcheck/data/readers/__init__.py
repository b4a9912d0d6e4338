"""Recorded data of others behind the one ``Episodes`` interface, read lazily."""

from dreamcheck.data.readers.mapping import ColumnMapping, read_mapping
from dreamcheck.data.readers.opening import open_episodes

__all__ = ["ColumnMapping", "open_episodes", "read_mapping"]
