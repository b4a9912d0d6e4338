"""Episodes as NPZ: one file with everything, or a folder with one file per episode, read lazily.

Arrays of an episode file: ``action`` [L, A] (last row NaN), optionally ``pixels`` uint8
[L, 3, H, W] (or [L, H, W, 3]), ``state`` [L, S], ``columns`` [S, 2] (name and unit as text), and
any further per-frame array. A single file holds the same, flat over all frames, and ``lengths``.
Arrays of objects are refused: reading them would run code.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes, Episodes, LazyExtra
from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Column

EPISODE_FILE = "episode_{:06d}.npz"
_NAMED = ("lengths", "action", "pixels", "state", "columns")


def write_npz(path: str | Path, episodes: Episodes) -> Path:
    """Write episodes: a name ending in .npz makes one file, any other a folder of episode files.

    Raises:
        UsageError: the folder already holds other episode files, which are never written onto.
    """
    path = Path(path)
    each = [_arrays_of(episodes, e) for e in range(len(episodes.lengths))]
    if path.suffix == ".npz":
        flat = {k: np.concatenate([a[k] for a in each]) for k in each[0] if k != "columns"}
        _write(path, {**flat, "columns": each[0]["columns"], "lengths": episodes.lengths})
        return path
    path.mkdir(parents=True, exist_ok=True)
    if any(path.glob("*.npz")):
        raise UsageError(
            f"{path} already holds episode files; they would mix with the new ones. Give an empty "
            "folder."
        )
    for e, arrays in enumerate(each):
        _write(path / EPISODE_FILE.format(e), arrays)
    return path


def read_npz(path: str | Path) -> Episodes:
    """Episodes of one NPZ file, or of a folder of them in order of name.

    Raises:
        UsageError: missing, not an NPZ, object arrays, or arrays that do not fit together.
    """
    path = Path(path)
    if path.is_dir():
        return FolderEpisodes(path)
    arrays = _read(path)
    if "lengths" not in arrays:
        arrays["lengths"] = np.array([len(_action(arrays, path))])
    return ArrayEpisodes(
        lengths=arrays["lengths"],
        actions=_action(arrays, path),
        pixels=_channels_first(arrays.get("pixels"), path),
        state=arrays.get("state"),
        columns=_columns(arrays),
        extra={k: v for k, v in arrays.items() if k not in _NAMED},
    )


class FolderEpisodes:
    """One NPZ file per episode; a file is read when its episode is asked for, the last is kept."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.files = sorted(self.folder.glob("*.npz"))
        if not self.files:
            raise UsageError(f"{self.folder} holds no .npz files; one per episode is expected.")
        self._kept: tuple[int, ArrayEpisodes] | None = None
        self._lengths = np.array([_length(p) for p in self.files], dtype=np.int64)
        first = self._episode(0)
        self.columns = first.columns
        self.extra: Mapping[str, np.ndarray] = LazyExtra(self, tuple(first.extra))
        self.has_pixels = first.has_pixels

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E], read from the files' headers."""
        return self._lengths

    @property
    def digest(self) -> str:
        """SHA-256 over every episode's content, in order; reads every file."""
        return digest([self._episode(e).digest for e in range(len(self.files))])

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A]; the last row is NaN."""
        return self._episode(e).actions(0)

    def frames(self, e: int, ts: Sequence[int] | np.ndarray) -> np.ndarray:
        """uint8 [len(ts), 3, H, W]."""
        return self._episode(e).frames(0, ts)

    def state(self, e: int) -> np.ndarray:
        """[L, len(columns)]."""
        return self._episode(e).state(0)

    def extra_of(self, name: str, e: int) -> np.ndarray:
        """One episode's rows of a further per-frame array.

        Raises:
            UsageError: this file has no such array, though the first one has.
        """
        extra = self._episode(e).extra
        if name not in extra:
            raise UsageError(
                f"{self.files[e]} has no array {name!r}, which {self.files[0].name} has: every "
                "episode's file needs the same arrays."
            )
        return extra[name]

    def _episode(self, e: int) -> ArrayEpisodes:
        if not 0 <= e < len(self.files):
            raise UsageError(f"episode {e} does not exist; there are {len(self.files)}.")
        if self._kept is None or self._kept[0] != e:
            one = read_npz(self.files[e])
            assert isinstance(one, ArrayEpisodes)
            if len(one.lengths) != 1:
                raise UsageError(
                    f"{self.files[e]} holds {len(one.lengths)} episodes; in a folder every file "
                    "holds one. Read that file by itself."
                )
            self._kept = (e, one)
        return self._kept[1]


def _arrays_of(episodes: Episodes, e: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {
        "action": np.asarray(episodes.actions(e)),
        "state": np.asarray(episodes.state(e)),
        "columns": np.array([[c.name, c.unit] for c in episodes.columns], dtype=str).reshape(-1, 2),
    }
    if getattr(episodes, "has_pixels", True):
        arrays["pixels"] = episodes.frames(e, np.arange(int(episodes.lengths[e])))
    if isinstance(episodes, ArrayEpisodes | FolderEpisodes):
        arrays |= {k: episodes.extra_of(k, e) for k in episodes.extra}
    return arrays


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with open(new, "wb") as f:
        np.savez_compressed(f, **arrays)  # type: ignore[arg-type]
    os.replace(new, path)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UsageError(f"{path} does not exist.")
    try:
        with np.load(path, allow_pickle=False) as z:
            return {k: z[k] for k in z.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read as NPZ ({error}). It was truncated, or holds Python objects, "
            "which are refused: save plain arrays with numpy.savez."
        ) from error


def _length(path: Path) -> int:
    """Rows of ``action``, from the array's header alone."""
    try:
        with zipfile.ZipFile(path) as z, z.open("action.npy") as f:
            version = np.lib.format.read_magic(f)
            read: Any = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            return int(read(f)[0][0])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile, IndexError) as error:
        raise UsageError(
            f"{path} has no readable `action` array ({error}); an episode file holds `action` "
            "[L, A] and, per frame, `pixels` and `state`."
        ) from error


def _action(arrays: dict[str, np.ndarray], path: Path) -> np.ndarray:
    if "action" not in arrays:
        raise UsageError(f"{path} has no `action`; it holds {', '.join(sorted(arrays))}.")
    return arrays["action"]


def _columns(arrays: dict[str, np.ndarray]) -> tuple[Column, ...]:
    if "columns" in arrays:
        return tuple(Column(str(n), str(u)) for n, u in arrays["columns"])
    width = arrays["state"].shape[1] if "state" in arrays else 0
    return tuple(Column(f"state_{i}", "unknown") for i in range(width))


def _channels_first(pixels: np.ndarray | None, path: Path) -> np.ndarray | None:
    if pixels is None:
        return None
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or 3 not in (pixels.shape[1], pixels.shape[3]):
        raise UsageError(
            f"{path}: pixels are {pixels.dtype} {pixels.shape}; expected uint8 [L, 3, H, W] or "
            "[L, H, W, 3], RGB."
        )
    return pixels if pixels.shape[1] == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
