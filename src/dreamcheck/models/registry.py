"""Models by name: a checkpoint on disk, one that ships, a user's factory, an installed plug-in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch

from dreamcheck.errors import CheckpointError
from dreamcheck.models.checkpoint import CONFIG_FILE, read_checkpoint
from dreamcheck.models.protocol import WorldModel
from dreamcheck.user_code import import_named

ENTRY_POINT_GROUP = "dreamcheck.models"


def shipped_folder() -> Path:
    """Where the checkpoints that ship with the package lie."""
    return Path(str(resources.files("dreamcheck.models") / "shipped"))


def shipped_models() -> tuple[str, ...]:
    """Names of the checkpoints that ship."""
    folder = shipped_folder()
    if not folder.is_dir():
        return ()
    return tuple(sorted(p.name for p in folder.iterdir() if (p / CONFIG_FILE).is_file()))


def plugin_models() -> tuple[str, ...]:
    """Names registered under the entry point group ``dreamcheck.models``."""
    return tuple(sorted(e.name for e in metadata.entry_points(group=ENTRY_POINT_GROUP)))


def checkpoint_folder(name: str | Path) -> Path | None:
    """The folder a name stands for, or None when it is a factory or a plug-in.

    A shipped name wins over nothing else: an existing path of the same name is that path.
    """
    path = Path(name)
    if path.exists():
        return path if path.is_dir() else path.parent
    if str(name) in shipped_models():
        return shipped_folder() / str(name)
    return None


def recorded_recipe(name: str | Path) -> Mapping[str, Any] | None:
    """The training recipe in a checkpoint's own configuration, or None where it holds none."""
    folder = checkpoint_folder(name)
    if folder is None or not (folder / CONFIG_FILE).is_file():
        return None
    held = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    recipe = held.get("training", {}).get("recipe")
    return recipe if isinstance(recipe, dict) else None


def load_model(name: str | Path, *, device: torch.device | str = "cpu") -> WorldModel:
    """A world model by checkpoint path, shipped name, ``package.module:factory`` or plug-in name.

    A factory is imported because the user named it; it takes no argument (or ``device=``) and
    returns a ``WorldModel``.

    Raises:
        CheckpointError: nothing of that name, with what exists; or an unusable checkpoint.
    """
    text = str(name)
    if Path(name).exists():
        return read_checkpoint(name, device=device).model
    if text in shipped_models():
        return read_checkpoint(shipped_folder() / text, device=device).model
    if ":" in text and not text.endswith((".safetensors", "/")):
        return _checked(_import_factory(text), text, device)
    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == text:
            return _checked(entry.load(), text, device)
    raise CheckpointError(
        f"there is no model {text!r}: no such path, shipped models are "
        f"{', '.join(shipped_models()) or '(none)'}, installed plug-ins are "
        f"{', '.join(plugin_models()) or '(none)'}. Your own code is named as "
        "package.module:factory."
    )


def _import_factory(text: str) -> object:
    module_name, _, attribute = text.partition(":")
    try:
        module = import_named(module_name)
    except ImportError as error:
        raise CheckpointError(
            f"cannot import {module_name!r} for model {text!r}: {error}. Run from the folder that "
            "holds it, or install it."
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        public = [n for n in vars(module) if not n.startswith("_") and callable(vars(module)[n])]
        raise CheckpointError(
            f"{module_name} has no {attribute!r}; it has {', '.join(public[:8])}."
        ) from error


def _checked(factory: object, text: str, device: torch.device | str) -> WorldModel:
    if not callable(factory):
        raise CheckpointError(f"{text} is a {type(factory).__name__}, not a function.")
    try:
        model = factory(device=device)
    except TypeError as error:
        # Only a factory without that argument is called again; its own TypeErrors are shown.
        if "device" not in str(error):
            raise
        model = factory()
    if not isinstance(model, WorldModel):
        wanted = (
            "conventions", "latent", "history_min", "history_max", "identity", "device",
            "encode", "embed_actions", "predict",
        )  # fmt: skip
        missing = [a for a in wanted if not hasattr(model, a)]
        raise CheckpointError(
            f"{text} returned a {type(model).__name__} without {', '.join(missing)}: it is not a "
            "WorldModel. See dreamcheck.models.protocol and examples/tiny_model.py."
        )
    return model
