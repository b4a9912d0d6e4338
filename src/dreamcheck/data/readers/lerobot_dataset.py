"""LeRobot datasets through the lerobot library itself (``pip install 'dreamcheck[lerobot]'``).

Tried on what lerobot 0.4.4 and 0.6.1 write (format v3.0), pictures and videos. The library fetches
what it misses from the hub; here it is kept offline, and what is missing is said.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.readers.mapping import ColumnMapping
from dreamcheck.data.readers.table import ColumnInfo, TableEpisodes, cut_by_episode
from dreamcheck.digest import digest, digest_file
from dreamcheck.errors import UsageError

SCHEME = "lerobot://"


_INSTALL = "pip install 'lerobot[dataset]'"


def _library() -> Any:
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError as error:
        missing = "" if (error.name or "").startswith("lerobot") else f" ({error})"
        raise UsageError(
            f"reading LeRobot datasets needs its own library{missing}: {_INSTALL} (0.4 and newer; it "
            "brings its own torch, so best into an environment of its own). Or export the episodes "
            "to a folder of NPZ files."
        ) from None
    return LeRobotDataset


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """The hub's client refuses to connect inside, and is as it was afterwards."""
    try:
        import huggingface_hub.utils
        from huggingface_hub import constants
    except ImportError:  # without its client nothing can be fetched
        yield
        return
    # A session that is open already keeps its rules: 0.x and 1.x close them under two names.
    fresh = [getattr(huggingface_hub.utils, n, None) for n in ("reset_sessions", "close_session")]
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        for close in filter(None, fresh):
            close()
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
        for close in filter(None, fresh):
            close()


def _decoder() -> dict[str, str]:
    """torchcodec where it loads (it needs FFmpeg's libraries), else PyAV, which brings its own."""
    try:
        import torchcodec  # noqa: F401
    except Exception:  # it raises RuntimeError with every library it looked for
        return {"video_backend": "pyav"}
    return {}


def _open(root: Path, repo_id: str) -> Any:
    """The library's dataset over files on disk; nothing is fetched.

    Raises:
        UsageError: the library or a part of it is missing, another format, or missing files.
    """
    library = _library()
    try:
        with _offline():
            return library(repo_id=repo_id, root=root, **_decoder())
    except ImportError as error:
        raise UsageError(
            f"{root}: lerobot is installed but not the part that reads datasets ({error}). "
            f"{_INSTALL}."
        ) from None
    except Exception as error:  # whatever the library raises, it is about this folder
        kind, text = type(error).__name__, " ".join(str(error).split())
        if "Compatib" in kind or "convert_dataset" in text:
            way_out = (
                "Convert it with the library's own script (lerobot.scripts."
                "convert_dataset_v21_to_v30), or export the episodes to a folder of NPZ files."
            )
        else:
            way_out = (
                "Files it needs are missing or damaged, and nothing is downloaded from here: fetch "
                "the whole dataset (hf download --repo-type dataset …) and give its folder."
            )
        raise UsageError(
            f"{root} could not be opened by lerobot ({kind}: {text[:160]}). {way_out}"
        ) from None


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
        self.source = str(root)
        self._data = _open(root, repo_id)
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

    def names(self) -> dict[str, tuple[str, ...]]:
        """What the dataset calls the numbers of its vectors, where it names every one."""
        out = {}
        for column, info in self._infos.items():
            given = self._data.features[column].get("names")
            if isinstance(given, Mapping):  # {"motors": [...]}
                given = next(iter(given.values()), None)
            if (
                len(info.shape) == 1
                and isinstance(given, (list, tuple))
                and len(given) == info.shape[0]
            ):
                out[column] = tuple(str(n) for n in given)
        return out

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
    mapping = mapping.model_copy(update={"names": {**table.names(), **mapping.names}})
    name = mapping.episode or "episode_index"
    numbers = table.rows(name, 0, len(table._data))
    lengths, offsets = cut_by_episode(numbers, table.source)
    return TableEpisodes(table, lengths=lengths, offsets=offsets, mapping=mapping, hidden=(name,))
