"""Lance tables as stable-worldmodel writes them, through the lance library itself.

Pixels are JPEG there (an error of up to 9 of 255 at its quality 95) and numbers float32; both are
said in the notes.

Source: spec/ecosystem-swm.md ("Data files").
"""

from __future__ import annotations

import functools
import hashlib
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
from dreamcheck.errors import UsageError


def _lance() -> Any:
    try:
        import lance
    except ImportError:
        raise UsageError(
            "reading Lance needs its own library: pip install pylance pyarrow (the extra "
            "dreamcheck[lance]). Or convert the data: `swm convert` writes HDF5."
        ) from None
    return lance


def _info(field: Any) -> ColumnInfo:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return ColumnInfo((-1,), np.dtype(object))  # an encoded picture
    if pa.types.is_fixed_size_list(kind):
        return ColumnInfo((kind.list_size,), np.dtype(kind.value_type.to_pandas_dtype()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return ColumnInfo((), np.dtype(kind.to_pandas_dtype()))
    return ColumnInfo((), np.dtype(object))


class LanceTable:
    """One Lance dataset's columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = str(path)
        try:
            self._data = _lance().dataset(str(path))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is no readable Lance table: {error}.") from None
        self._infos = {f.name: _info(f) for f in self._data.schema}
        self.num_rows = int(self._data.count_rows())

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over every file of the table, by name."""
        h = hashlib.sha256()
        for file in sorted(p for p in self.path.rglob("*") if p.is_file()):
            h.update(f"{file.relative_to(self.path)}\n".encode())
            with open(file, "rb") as f:
                while piece := f.read(1 << 20):
                    h.update(piece)
        return h.hexdigest()

    def columns(self) -> Mapping[str, ColumnInfo]:
        """Every column; binary ones are encoded pictures."""
        return self._infos

    def _values(self, table: Any, column: str) -> np.ndarray:
        import pyarrow as pa

        array = table.column(column).combine_chunks()
        info = self._infos[column]
        if pa.types.is_fixed_size_list(array.type):
            flat = array.flatten().to_numpy(zero_copy_only=False)
            return flat.reshape(-1, info.shape[0])
        if info.dtype == object:
            out = np.empty(len(array), dtype=object)
            out[:] = array.to_pylist()
            return out
        return array.to_numpy(zero_copy_only=False)

    def rows(self, column: str, start: int, stop: int) -> np.ndarray:
        """Entries start … stop - 1."""
        stop = min(stop, self.num_rows)
        table = self._data.to_table(columns=[column], offset=start, limit=max(0, stop - start))
        return self._values(table, column)

    def take(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Entries at row numbers, in the given order."""
        rows = np.asarray(rows, dtype=np.int64)
        unique, inverse = np.unique(rows, return_inverse=True)
        table = self._data.take(unique.tolist(), columns=[column])
        return self._values(table, column)[inverse]


def open_lance(path: str | Path, mapping: ColumnMapping | None = None) -> TableEpisodes:
    """Episodes of a ``*.lance`` folder, or of a folder that holds exactly one.

    Raises:
        UsageError: the library is missing, the table unreadable, or no episode number is there.
    """
    path = Path(path)
    if path.suffix != ".lance":
        tables = sorted(path.glob("*.lance"))
        if len(tables) != 1:
            raise UsageError(f"{path} holds {len(tables)} Lance tables; name one.")
        path = tables[0]
    mapping = mapping or ColumnMapping()
    table = LanceTable(path)
    name = pick(mapping.episode, EPISODE_NAMES, table.columns(), "episode", table.source)
    lengths, offsets = cut_by_episode(table.rows(name, 0, table.num_rows), table.source)
    episodes = TableEpisodes(
        table, lengths=lengths, offsets=offsets, mapping=mapping, hidden=(name,)
    )
    told = ["numbers are stored as float32"]
    if episodes.has_pixels:
        told.append("pictures are JPEG (lossy: up to 9 of 255 at quality 95)")
    episodes.notes = (*told, *episodes.notes)
    return episodes
