"""What lies at a path: which file holds the weights, which configuration belongs to it.

A name of a model hub resolves to a local snapshot only; fetching is a separate, explicit step.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dreamcheck.errors import CheckpointError
from dreamcheck.models.checkpoint import CONFIG_FILE, FORMAT
from dreamcheck.models.importing.configs import ForeignConfig, read_config

WEIGHT_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin")
HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")


@dataclass(frozen=True)
class Found:
    """A recognised checkpoint.

    layout: in words, e.g. "stable-worldmodel run", "hub snapshot", "pickled module".
    notes: choices that were made, in words.
    """

    weights: Path
    config: ForeignConfig | None
    layout: str
    notes: tuple[str, ...] = ()


def _epoch(path: Path) -> int:
    numbers = re.findall(r"(\d+)", path.stem)
    return int(numbers[-1]) if numbers else -1


def _weight_files(folder: Path) -> list[Path]:
    return sorted(
        p
        for p in folder.iterdir()
        if p.is_file() and p.suffix in WEIGHT_SUFFIXES and p.name[0] != "."
    )


def _choose(folder: Path, files: list[Path]) -> tuple[Path, tuple[str, ...]]:
    """One weights file of a folder; several epochs of one run resolve to the last, in words."""
    if len(files) == 1:
        return files[0], ()
    stems = {re.sub(r"\d+", "#", p.name) for p in files}
    if len(stems) == 1 and len({_epoch(p) for p in files}) == len(files):
        chosen = max(files, key=_epoch)
        return chosen, (
            f"{len(files)} epochs lie in {folder.name}/; the last one, {chosen.name}, was taken "
            "(name another file to import it)",
        )
    listed = ", ".join(p.name for p in files[:8])
    raise CheckpointError(
        f"{folder} holds {len(files)} weight files ({listed}) and which one is meant is not clear. "
        "Name one of them."
    )


def _config_beside(weights: Path) -> ForeignConfig | None:
    path = weights.parent / CONFIG_FILE
    if path.is_file() and path.stat().st_size < 1 << 20:
        with contextlib.suppress(ValueError):
            held = json.loads(path.read_text(encoding="utf-8", errors="replace"))
            if isinstance(held, dict) and held.get("format") == FORMAT:
                raise CheckpointError(
                    f"{weights.parent} already is a checkpoint of Dreamcheck: use it as it is, "
                    f"--model {weights.parent}."
                )
    return read_config(path) if path.is_file() else None


def _file(path: Path, layout: str | None = None, notes: Iterable[str] = ()) -> Found:
    name = path.name
    if path.suffix not in WEIGHT_SUFFIXES:
        raise CheckpointError(
            f"{path} does not end in one of {', '.join(WEIGHT_SUFFIXES)}; give a weights file, a "
            "run's folder, or a hub snapshot."
        )
    if layout is None:
        if name.endswith("_object.ckpt"):
            layout = "pickled module"
        elif name.endswith(("_weight.ckpt", "_weights.ckpt")):
            layout = "weights file"
        elif (path.parent / "config.json").is_file():
            layout = "stable-worldmodel run"
        else:
            layout = "weights file"
    return Found(path, _config_beside(path), layout, tuple(notes))


def _snapshot(folder: Path) -> Path:
    """The commit folder of a hub cache: refs/main, else the only one there is."""
    snapshots = folder / "snapshots"
    ref = folder / "refs" / "main"
    if ref.is_file() and ref.stat().st_size < 200:
        commit = ref.read_text(encoding="utf-8").strip()
        # A commit is a name inside snapshots/, never a path out of it.
        if re.fullmatch(r"[0-9A-Za-z._-]+", commit) and not commit.startswith("."):
            chosen = snapshots / commit
            if chosen.is_dir():
                return chosen
        raise CheckpointError(
            f"{ref} names the snapshot {commit!r:.80}, which is not in {snapshots}. Download the "
            "model again, or name a snapshot folder."
        )
    there = sorted(p for p in snapshots.iterdir() if p.is_dir())
    if len(there) == 1:
        return there[0]
    names = ", ".join(p.name for p in there) or "none"
    raise CheckpointError(
        f"{snapshots} holds {len(there)} snapshots ({names}) and no refs/main says which is meant. "
        "Name one of the folders."
    )


def hub_folders(name: str) -> list[Path]:
    """Where a hub name's local snapshot may lie: stable-worldmodel's home, then the hub's cache."""
    folder = f"models--{name.replace('/', '--')}"
    swm = Path(os.environ.get("STABLEWM_HOME") or Path.home() / ".stable_worldmodel")
    hub = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return [
        swm / "checkpoints" / folder,
        swm / folder,
        (Path(hub) if hub else Path(home) / "hub") / folder,
    ]


def recognise(path: str | Path) -> Found:
    """What a path or hub name refers to. Reads names and config.json, no weights.

    Raises:
        CheckpointError: nothing there, ambiguous, or a configuration that names unknown parts.
    """
    given = str(path)
    path = Path(path).expanduser()
    if path.is_file():
        return _file(path)
    if path.is_dir():
        return _folder(path)
    if HUB_NAME.match(given):
        for folder in hub_folders(given):
            if folder.is_dir():
                found = _folder(folder)
                return Found(
                    found.weights,
                    found.config,
                    "hub snapshot",
                    (*found.notes, f"{given} was found at {found.weights.parent}"),
                )
        looked = "; ".join(str(p) for p in hub_folders(given))
        raise CheckpointError(
            f"{given} is no file or folder, and no local snapshot of a hub model of that name was "
            f"found (looked in {looked}). Nothing is downloaded unless you ask: add --download, or "
            f"fetch it yourself (hf download {given}) and give the folder."
        )
    raise CheckpointError(
        f"{path} does not exist. Give a run's folder, a weights file, a hub snapshot, or the name "
        "user/repo of one."
    )


def _folder(folder: Path) -> Found:
    layout = "hub snapshot" if folder.name.startswith("models--") else None
    if (folder / "snapshots").is_dir():
        folder = _snapshot(folder)
        layout = "hub snapshot"
    elif folder.parent.name == "snapshots":
        layout = "hub snapshot"
    files = _weight_files(folder)
    notes: tuple[str, ...] = ()
    if len(files) > 1:
        # A run folder of older releases keeps the object and the weights of the same model.
        plain = [p for p in files if not p.name.endswith("_object.ckpt")]
        if len(plain) == 1 and {
            p.name.replace("_object.ckpt", "") for p in files if p not in plain
        } == {re.sub(r"_weights?\.ckpt$", "", plain[0].name)}:
            notes = (f"{plain[0].name} was preferred to the pickled module beside it",)
            files = plain
    if not files:
        inside = sorted(p.name for p in folder.iterdir())[:8] if folder.is_dir() else []
        raise CheckpointError(
            f"{folder} holds no weights ({', '.join(WEIGHT_SUFFIXES)}); it holds "
            f"{', '.join(inside) or 'nothing'}. If it is the parent of several runs, name one."
        )
    chosen, more = _choose(folder, files)
    return _file(chosen, layout, (*notes, *more))
