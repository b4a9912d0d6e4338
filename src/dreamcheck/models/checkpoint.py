"""Checkpoints: a folder of JSON and tensors. Nothing in it is ever executed (law 10).

config.json           format, family, architecture, conventions, how it was trained
weights.safetensors   parameters and buffers
readout-*.json/.safetensors, support.*, card.md, card.json   optional companions
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dreamcheck.errors import CheckpointError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.protocol import WorldModel

FORMAT = "dreamcheck-checkpoint"
FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "weights.safetensors"

PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin")
"""Files that load by running what is written in them; refused whatever they hold."""


@dataclass(frozen=True)
class Family:
    """One kind of network: its configuration, how to build it, how to wrap it as a world model."""

    name: str
    config: type[BaseModel]
    build: Callable[[Any], nn.Module]
    wrap: Callable[[Any, Conventions, torch.device | str], WorldModel]


FAMILIES: dict[str, Family] = {
    "lewm": Family(
        name="lewm",
        config=LeWMConfig,
        build=LeWMNet,
        wrap=lambda net, conventions, device: LeWM(net, conventions, device=device),
    )
}
"""Networks a config.json may name. Fixed in code: a configuration can choose, never bring one."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and checked.

    training: what the trainer wrote down: recipe, seeds, data digest, versions.
    """

    model: WorldModel
    path: Path
    family: str
    conventions: Conventions
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def card(self) -> dict[str, Any] | None:
        """The model card's numbers, or None where it has no card."""
        path = self.path / "card.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def save_checkpoint(
    folder: str | Path,
    module: nn.Module,
    conventions: Conventions,
    *,
    family: str = "lewm",
    training: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint folder; existing files of the same names are replaced one by one.

    Args:
        module: a network of the family, with its configuration as ``module.config``.
        training: provenance to keep, as JSON-ready values.

    Raises:
        CheckpointError: an unknown family, or a weight that is not finite.
    """
    _family(family)
    folder = Path(folder)
    tensors = {k: v.detach().cpu().contiguous() for k, v in module.state_dict().items()}
    _check_finite(tensors, folder)
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "family": family,
        "architecture": module.config.model_dump(mode="json"),  # type: ignore[union-attr, operator]
        "conventions": conventions.model_dump(mode="json"),
        "training": dict(training or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / WEIGHTS_FILE, tensors)
    write_json(folder / CONFIG_FILE, config)
    return folder


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, replaced at once, readable by whoever may read the folder."""
    new = path.with_name(path.name + ".new")
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, new)
    # The library writes for the owner alone, which an installed package cannot use.
    mask = os.umask(0)
    os.umask(mask)
    new.chmod(0o666 & ~mask)
    os.replace(new, path)


def write_json(path: Path, value: Any) -> None:
    """Indented JSON, replaced at once; NaN and infinity are refused."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(new, path)


def read_checkpoint(
    path: str | Path,
    *,
    family: str | None = None,
    latent_width: int | None = None,
    device: torch.device | str = "cpu",
) -> Checkpoint:
    """A checkpoint folder (or its weights file) as a frozen model.

    Args:
        family, latent_width: what the caller needs; another one is refused.

    Raises:
        CheckpointError: missing, truncated, a pickle, of another family, width or format version,
            keys or shapes that do not fit, or weights that are not finite.
    """
    folder = _folder_of(Path(path))
    config = _read_config(folder)
    found = _family(config["family"], where=folder)
    if family is not None and found.name != family:
        raise CheckpointError(
            f"{folder} is a {found.name} checkpoint but a {family} one is needed here. Give a "
            f"{family} checkpoint, or drop what asks for that family."
        )
    try:
        architecture = found.config.model_validate(config["architecture"])
        conventions = Conventions.model_validate(config["conventions"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "value"
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: {where}: {first['msg']}. The file was edited or written by "
            "another program; restore it, or import the original weights again."
        ) from error
    tensors = read_tensors(folder / WEIGHTS_FILE)
    _check_finite(tensors, folder)
    net = _fill(found.build(architecture), tensors, folder)
    try:
        model = found.wrap(net, conventions, device)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    if latent_width is not None and model.latent.width != latent_width:
        raise CheckpointError(
            f"{folder} has latents of width {model.latent.width} but {latent_width} was expected: "
            "the probe, study or recorded latents at hand belong to another model."
        )
    return Checkpoint(
        model=model,
        path=folder,
        family=found.name,
        conventions=conventions,
        training=config.get("training", {}),
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file.

    Raises:
        CheckpointError: missing, or not a whole safetensors file.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path} does not exist. A checkpoint is a folder with {CONFIG_FILE} and "
            f"{WEIGHTS_FILE}; was the copy finished?"
        )
    refuse_pickle(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}; {path.stat().st_size} bytes). It was "
            "probably truncated while copying: copy it again and compare sizes."
        ) from error


def refuse_pickle(path: Path) -> None:
    """Refuse a file that loads by running what is written in it.

    Raises:
        CheckpointError: the name or the first bytes are those of a pickle or a torch archive.
    """
    with open(path, "rb") as f:
        head = f.read(4)
    zipped, pickled = head.startswith(b"PK\x03\x04"), head[:1] == b"\x80" and head[1:2] <= b"\x05"
    if path.suffix.lower() in PICKLE_SUFFIXES or zipped or (pickled and head[1:2] >= b"\x02"):
        raise CheckpointError(
            f"{path} is a pickle or torch archive: loading it could run code, so it is not opened. "
            "Convert it with `dreamcheck import PATH --out CHECKPOINT`, which extracts tensors "
            "only, then use the folder it writes."
        )


def _folder_of(path: Path) -> Path:
    if path.is_dir():
        if not (path / CONFIG_FILE).is_file():
            pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLE_SUFFIXES)
            hint = (
                f"It holds {pickles[0]}: convert the folder with `dreamcheck import`."
                if pickles
                else "Give the folder that `dreamcheck train` or `dreamcheck import` wrote."
            )
            raise CheckpointError(f"{path} has no {CONFIG_FILE}, so it is not a checkpoint. {hint}")
        return path
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist. Give a checkpoint folder or its {WEIGHTS_FILE}."
        )
    refuse_pickle(path)
    if path.name != WEIGHTS_FILE or not (path.parent / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{path} has no {CONFIG_FILE} beside it (or is not called {WEIGHTS_FILE}): weights "
            "alone do not say which network and conventions they belong to. Give the checkpoint "
            "folder, or convert with `dreamcheck import`."
        )
    return path.parent


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}); copy it again.") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is not a Dreamcheck checkpoint's configuration (format is not {FORMAT!r}). "
            "Checkpoints of other tools are converted with `dreamcheck import`."
        )
    version = config.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}; this release reads {FORMAT_VERSION}. "
            "It was written by a newer Dreamcheck: upgrade, or save the checkpoint again."
        )
    known = {"format", "format_version", "family", "architecture", "conventions", "training"}
    unknown, missing = set(config) - known, known - {"training"} - set(config)
    if unknown or missing:
        raise CheckpointError(
            f"{path}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}. A checkpoint "
            "holds data only; nothing outside the format is used."
        )
    return config


def _family(name: Any, *, where: Path | None = None) -> Family:
    if name not in FAMILIES:
        place = f"{where / CONFIG_FILE}: " if where is not None else ""
        raise CheckpointError(
            f"{place}unknown model family {name!r}; this release builds {', '.join(FAMILIES)}. "
            "For another network pass `package.module:factory` as the model."
        )
    return FAMILIES[name]


def _check_finite(tensors: Mapping[str, Tensor], where: Path) -> None:
    bad = [k for k, v in tensors.items() if v.is_floating_point() and not v.isfinite().all()]
    if bad:
        raise CheckpointError(
            f"{where}: {len(bad)} weight tensor(s) hold NaN or infinity, first {bad[0]!r}. Training "
            "diverged or the file is damaged; use an earlier checkpoint."
        )


def _fill(net: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> nn.Module:
    own = net.state_dict()
    missing = sorted(set(own) - set(tensors))
    unknown = sorted(set(tensors) - set(own))
    shapes = [
        f"{k}: expected {list(own[k].shape)}, found {list(tensors[k].shape)}"
        for k in own
        if k in tensors and own[k].shape != tensors[k].shape
    ]
    if missing or unknown or shapes:
        parts = [
            f"{len(found)} {what} ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})"
            for what, found in (
                ("keys missing", missing),
                ("unknown keys", unknown),
                ("tensors of another shape", shapes),
            )
            if found
        ]
        raise CheckpointError(
            f"{where}: the weights do not fit the architecture in {CONFIG_FILE}: "
            f"{'; '.join(parts)}. The two files belong to different checkpoints."
        )
    net.load_state_dict(dict(tensors), strict=True)
    return net.eval()
