"""NPZ episodes of any column names: through ``data.npz`` where they fit it, else as a table."""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.npz import read_npz
from dreamcheck.data.readers.mapping import ColumnMapping
from dreamcheck.data.readers.table import ColumnInfo, TableEpisodes
from dreamcheck.digest import digest, digest_file
from dreamcheck.errors import UsageError

NOT_PER_FRAME = ("columns", "lengths")


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of every array, from the headers alone.

    Raises:
        UsageError: not an NPZ, or arrays of Python objects.
    """
    out: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
    try:
        with zipfile.ZipFile(path) as z:
            for entry in z.namelist():
                with z.open(entry) as f:
                    version = np.lib.format.read_magic(f)
                    read: Any = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = read(f)
                out[entry.removesuffix(".npy")] = (tuple(shape), dtype)
    except (ValueError, OSError, zipfile.BadZipFile, KeyError) as error:
        raise UsageError(f"{path} cannot be read as NPZ ({error}); truncated?") from None
    held = [n for n, (_, dtype) in out.items() if dtype.hasobject]
    if held:
        raise UsageError(
            f"{path}: {', '.join(held)} hold Python objects, which are refused: reading them could "
            "run code. Save plain arrays."
        )
    return out


class NPZTable:
    """One NPZ file per episode as one flat table; the file read last is kept."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.source = str(files[0].parent if len(files) > 1 else files[0])
        headers = [_headers(f) for f in files]
        common = set.intersection(*(set(h) for h in headers)) - set(NOT_PER_FRAME)
        if not common:
            raise UsageError(f"{self.source}: the files have no array in common.")
        self.lengths = np.array(
            [max(h[n][0][0] for n in common if h[n][0]) for h in headers], dtype=np.int64
        )
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._infos = {
            n: ColumnInfo(headers[0][n][0][1:], headers[0][n][1])
            for n in sorted(common)
            if all(h[n][0] and h[n][0][0] == k for h, k in zip(headers, self.lengths, strict=True))
        }
        self._kept: tuple[int, dict[str, np.ndarray]] | None = None

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over the files in order of name."""
        return digest([digest_file(f) for f in self.files])

    def columns(self) -> Mapping[str, ColumnInfo]:
        """Arrays with one row per frame in every file."""
        return self._infos

    def _file(self, i: int) -> dict[str, np.ndarray]:
        if self._kept is None or self._kept[0] != i:
            with np.load(self.files[i], allow_pickle=False) as z:
                self._kept = (i, {n: z[n] for n in self._infos})
        return self._kept[1]

    def rows(self, column: str, start: int, stop: int) -> np.ndarray:
        """Entries start … stop - 1."""
        return self.take(column, np.arange(start, min(stop, int(self.lengths.sum()))))

    def take(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Entries at row numbers, file by file."""
        rows = np.asarray(rows, dtype=np.int64)
        info = self._infos[column]
        out = np.empty((len(rows), *info.shape), dtype=info.dtype)
        which = np.searchsorted(self._starts, rows, side="right") - 1
        for i in np.unique(which):
            here = which == i
            out[here] = self._file(int(i))[column][rows[here] - self._starts[i]]
        return out


def open_npz(path: str | Path, mapping: ColumnMapping | None = None) -> Episodes:
    """Episodes of one NPZ file or of a folder of them.

    Files in the layout of ``data.npz`` are read by it. Others, and those whose last action is a
    number, are read as a table with a mapping, and what was repaired is in ``notes``.

    Raises:
        UsageError: neither way fits; the first reason is given.
    """
    path = Path(path)
    reason: UsageError | None = None
    if mapping is None:
        try:
            episodes = read_npz(path)
            if path.is_dir():
                for e in range(len(episodes.lengths)):
                    episodes.actions(e)
            return episodes
        except UsageError as error:
            reason = error
    try:
        files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        if not path.is_dir() and "lengths" in _headers(path) and reason is not None:
            raise reason
        table = NPZTable(files)
        return TableEpisodes(
            table,
            lengths=table.lengths,
            offsets=np.cumsum(table.lengths) - table.lengths,
            mapping=mapping,
        )
    except UsageError:
        if reason is not None:
            raise reason from None
        raise
