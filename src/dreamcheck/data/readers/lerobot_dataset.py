"""LeRobot datasets through the lerobot library itself (``pip install 'dreamcheck[lerobot]'``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.readers.mapping import ColumnMapping
from dreamcheck.data.readers.table import ColumnInfo, TableEpisodes, cut_by_episode
from dreamcheck.digest import digest, digest_file
from dreamcheck.errors import UsageError

SCHEME = "lerobot://"


def _library() -> Any:
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError:
        raise UsageError(
            "reading LeRobot datasets needs its own library: pip install lerobot (0.4 and newer; it "
            "brings its own torch, so best into an environment of its own). Or export the episodes "
            "to a folder of NPZ files."
        ) from None
    return LeRobotDataset


def _numpy(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A camera's shape as the library hands pictures out, whichever way it was declared."""
    if len(shape) != 3:
        return (3, 1, 1)
    return (shape[2], *shape[:2]) if shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4) else shape


class LeRobotTable:
    """A dataset's columns; pictures are decoded by the library, frame by frame."""

    def __init__(self, root: Path, repo_id: str) -> None:
        self.root = root
        self.source = f"{SCHEME}{repo_id}"
        # root points at files on disk, so nothing is fetched.
        self._data = _library()(repo_id=repo_id, root=root)
        self._infos: dict[str, ColumnInfo] = {}
        for name, feature in self._data.features.items():
            kind, shape = feature["dtype"], tuple(feature["shape"])
            if kind in ("image", "video"):
                self._infos[name] = ColumnInfo(_channels_first(shape), np.dtype(np.uint8))
            elif kind != "string":
                self._infos[name] = ColumnInfo(() if shape == (1,) else shape, np.dtype(kind))
        self.cameras = tuple(
            n for n, i in self._infos.items() if i.dtype == np.uint8 and len(i.shape) == 3
        )

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over the files below the root."""
        files = sorted(p for p in self.root.rglob("*") if p.is_file())
        return digest({str(p.relative_to(self.root)): digest_file(p) for p in files})

    def columns(self) -> Mapping[str, ColumnInfo]:
        """Every numeric column and every camera."""
        return self._infos

    def rows(self, column: str, start: int, stop: int) -> np.ndarray:
        """Entries start … stop - 1."""
        return self.take(column, np.arange(start, min(stop, len(self._data))))

    def take(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Entries at row numbers."""
        rows = np.asarray(rows, dtype=np.int64)
        if column in self.cameras:
            frames = [_numpy(self._data[int(i)][column]) for i in rows]
            stacked = np.stack(frames) if frames else np.zeros((0, *self._infos[column].shape))
            if stacked.dtype != np.uint8:
                # The library's pictures are floats on [0, 1].
                stacked = np.clip(np.rint(stacked * 255), 0, 255).astype(np.uint8)
            return stacked
        values = self._data.hf_dataset.select(rows.tolist())[column]
        return np.stack([_numpy(v) for v in values]) if len(rows) else np.zeros((0,))


def open_lerobot(path: str | Path, mapping: ColumnMapping | None = None) -> TableEpisodes:
    """Episodes of a LeRobot dataset folder (the one with ``meta/info.json``).

    Raises:
        UsageError: the library is missing, the folder is no dataset, or several cameras exist and
            the mapping names none.
    """
    root = Path(str(path).removeprefix(SCHEME))
    if not (root / "meta" / "info.json").is_file():
        raise UsageError(
            f"{root} has no meta/info.json: give the local folder of a LeRobot dataset. Nothing is "
            "downloaded from here."
        )
    mapping = mapping or ColumnMapping()
    table = LeRobotTable(root, root.name)
    if mapping.pixels is None and table.cameras:
        if len(table.cameras) > 1:
            raise UsageError(
                f"{root} has the cameras {', '.join(table.cameras)}; name one in a mapping file: "
                f'pixels = "{table.cameras[0]}".'
            )
        mapping = mapping.model_copy(update={"pixels": table.cameras[0], "pixel_layout": "chw"})
    name = mapping.episode or "episode_index"
    numbers = table.rows(name, 0, len(table._data))
    lengths, offsets = cut_by_episode(numbers, table.source)
    return TableEpisodes(table, lengths=lengths, offsets=offsets, mapping=mapping, hidden=(name,))
