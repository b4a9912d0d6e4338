"""HDF5 files as stable-worldmodel writes them, and any with flat columns and episode lengths.

Differences between releases that are met here: Blosc compression, names with ``/`` (which HDF5
turns into groups, and stable-worldmodel's own reader then fails on), no episode-number column, and
last actions that are numbers (see ``TableEpisodes``).

Source: spec/ecosystem-swm.md ("Data files").
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.readers.mapping import ColumnMapping
from dreamcheck.data.readers.table import (
    EPISODE_NAMES,
    ColumnInfo,
    TableEpisodes,
    cut_by_episode,
    pick,
)
from dreamcheck.digest import digest_file
from dreamcheck.errors import UsageError

LENGTH_NAMES = ("ep_len", "episode_length", "lengths")
OFFSET_NAMES = ("ep_offset", "episode_offset", "offsets")


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UsageError(
            "reading HDF5 needs h5py: pip install 'dreamcheck[data]' (h5py and hdf5plugin)."
        ) from None
    # Registers the filters; files without Blosc can be read without it.
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401
    return h5py


class HDF5Table:
    """An open file's flat columns. Names with groups are joined by ``/``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = str(path)
        h5py = _h5py()
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise UsageError(
                f"{path} is no readable HDF5 file ({str(error).splitlines()[0]}): truncated, still "
                "being written, or a Git LFS pointer."
            ) from None
        self.datasets: dict[str, Any] = {}
        self._file.visititems(self._visit)
        self._string = h5py.check_string_dtype

    def _visit(self, name: str, item: Any) -> None:
        if hasattr(item, "dtype") and item.ndim >= 1:
            self.datasets[name] = item

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return digest_file(self.path)

    def columns(self) -> Mapping[str, ColumnInfo]:
        """Every dataset; per-episode tables are sorted out by the caller."""
        return {n: ColumnInfo(tuple(d.shape[1:]), d.dtype) for n, d in self.datasets.items()}

    def _read(self, column: str, key: Any) -> np.ndarray:
        try:
            return np.asarray(self.datasets[column][key])
        except OSError as error:
            text = str(error)
            if "filter" in text or "plugin" in text:
                raise UsageError(
                    f"{self.path}: column {column!r} is compressed with a filter that is not "
                    "installed (Blosc, most likely): pip install 'dreamcheck[data]'."
                ) from None
            raise UsageError(
                f"{self.path}: column {column!r} cannot be read ({text.splitlines()[0]}); the file "
                "is damaged or truncated."
            ) from None

    def rows(self, column: str, start: int, stop: int) -> np.ndarray:
        """Entries start … stop - 1."""
        return self._read(column, slice(start, stop))

    def take(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Entries at row numbers; HDF5 itself wants them increasing and unique."""
        rows = np.asarray(rows, dtype=np.int64)
        if not len(rows):
            return self.rows(column, 0, 0)
        unique, inverse = np.unique(rows, return_inverse=True)
        if unique[-1] >= len(self.datasets[column]):
            raise UsageError(
                f"{self.path}: column {column!r} has {len(self.datasets[column])} rows but row "
                f"{unique[-1]} was asked for: the file is truncated, or its lengths are another's."
            )
        # A dense run reads as one slice, which is much faster than a list of rows.
        if unique[-1] - unique[0] + 1 <= 2 * len(unique):
            block = self.rows(column, int(unique[0]), int(unique[-1]) + 1)
            return block[rows - unique[0]]
        return self._read(column, unique)[inverse]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open_hdf5(path: str | Path, mapping: ColumnMapping | None = None) -> TableEpisodes:
    """Episodes of an HDF5 file, or of a folder that holds exactly one.

    Raises:
        UsageError: not readable, no lengths and no episode number, or columns that do not exist.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted([*path.glob("*.h5"), *path.glob("*.hdf5")])
        if len(files) != 1:
            raise UsageError(f"{path} holds {len(files)} HDF5 files; name one.")
        path = files[0]
    mapping = mapping or ColumnMapping()
    table = HDF5Table(path)
    data = table.datasets
    length_name = mapping.lengths or next((n for n in LENGTH_NAMES if n in data), None)
    hidden: list[str] = []
    notes: list[str] = []
    if length_name is not None:
        name = pick(length_name, (), data, "lengths", table.source)
        lengths = table.rows(name, 0, len(data[name])).astype(np.int64)
        offset_name = mapping.offsets or next((n for n in OFFSET_NAMES if n in data), None)
        if offset_name is not None:
            offset_name = pick(offset_name, (), data, "offsets", table.source)
            offsets = table.rows(offset_name, 0, len(data[offset_name])).astype(np.int64)
            hidden.append(offset_name)
        else:
            offsets = np.cumsum(lengths) - lengths
        if len(offsets) != len(lengths):
            raise UsageError(
                f"{path}: {len(lengths)} episode lengths but {len(offsets)} offsets; the file is "
                "damaged."
            )
        hidden.append(name)
        if not any(n in data for n in EPISODE_NAMES):
            notes.append("no episode-number column; episodes were cut by their lengths")
        # An episode's number is no property of its frames.
        hidden += [n for n in EPISODE_NAMES if n in data]
    else:
        name = pick(mapping.episode, EPISODE_NAMES, data, "episode", table.source)
        lengths, offsets = cut_by_episode(table.rows(name, 0, len(data[name])), table.source)
        hidden.append(name)
        notes.append(f"no episode lengths; episodes were cut where {name} changes")
    slashed = sorted(n for n in data if "/" in n)
    if slashed:
        notes.append(
            f"columns with / in their names are read by their full name ({', '.join(slashed[:3])}); "
            "stable-worldmodel's own reader fails on this file"
        )
    # Tables with one row per episode are no frame columns.
    total = int((offsets + lengths).max()) if len(lengths) else 0
    for n in list(data):
        if n not in hidden and len(data[n]) < total and len(data[n]) == len(lengths):
            hidden.append(n)
    for n in hidden:
        data.pop(n, None)
    episodes = TableEpisodes(table, lengths=lengths, offsets=offsets, mapping=mapping)
    episodes.notes = (*notes, *episodes.notes)
    return episodes
