"""One way in: a path, whatever it is, as episodes."""

from __future__ import annotations

from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.readers.mapping import ColumnMapping, read_mapping
from dreamcheck.errors import UsageError


def open_episodes(path: str | Path, mapping: ColumnMapping | str | Path | None = None) -> Episodes:
    """Recorded episodes at a path: HDF5, a folder of NPZ episodes, Lance or LeRobot.

    Args:
        path: file or folder; what it is shows in its name and contents.
        mapping: which column is what, or a TOML file that says so.

    Raises:
        UsageError: nothing there, a format that is not read, or a missing library (named).
    """
    if isinstance(mapping, (str, Path)):
        mapping = read_mapping(mapping)
    text = str(path)
    if text.startswith("lerobot://"):
        from dreamcheck.data.readers.lerobot_dataset import open_lerobot

        return open_lerobot(text, mapping)
    path = Path(path).expanduser()
    if not path.exists():
        raise UsageError(f"{path} does not exist.")
    if path.suffix in (".h5", ".hdf5") or (
        path.is_dir() and (any(path.glob("*.h5")) or any(path.glob("*.hdf5")))
    ):
        from dreamcheck.data.readers.hdf5 import open_hdf5

        return open_hdf5(path, mapping)
    if path.suffix == ".lance" or (path.is_dir() and any(path.glob("*.lance"))):
        from dreamcheck.data.readers.lance_table import open_lance

        return open_lance(path, mapping)
    if path.is_dir() and (path / "meta" / "info.json").is_file():
        from dreamcheck.data.readers.lerobot_dataset import open_lerobot

        return open_lerobot(path, mapping)
    if path.suffix == ".npz" or (path.is_dir() and any(path.glob("*.npz"))):
        from dreamcheck.data.readers.npz_folder import open_npz

        return open_npz(path, mapping)
    inside = sorted(p.name for p in path.iterdir())[:8] if path.is_dir() else []
    held = f"; it holds {', '.join(inside)}" if inside else ""
    raise UsageError(
        f"{path} is in no format that is read here{held}. Read are HDF5 (.h5), a folder of .npz "
        "episodes, Lance (.lance) and LeRobot (a folder with meta/info.json)."
    )
