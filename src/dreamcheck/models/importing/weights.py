"""Named tensors out of whatever file holds them: state dicts, trainer files, pickled modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.archives import TorchFile, open_torch
from dreamcheck.models.importing.records import WAY_OUT, Record, TensorSpec

MAX_MODULES = 100_000
MAX_DEPTH = 64
STATE_KEYS = ("state_dict", "model_state_dict", "model", "module", "weights", "ema", "net")
"""Where trainers put the model's state dict, in order of preference."""


@dataclass(frozen=True)
class Weights:
    """A file's tensors by name, before anyone says what they mean.

    classes: module path -> class name, for pickled modules ("" is the root).
    attributes: module path -> plain numbers and strings set on the module ("heads": 16).
    kind: "state dict", "trainer file", "pickled module" or "safetensors".
    dtypes: how the numbers are stored, e.g. ("float32",).
    """

    path: Path
    tensors: Mapping[str, Tensor]
    kind: str
    classes: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()


def _state(record: Record) -> Mapping[str, Any]:
    """An object's attributes; (dict, slots) pairs keep the dict."""
    state = record.state
    if isinstance(state, tuple) and state and isinstance(state[0], dict):
        state = state[0]
    return state if isinstance(state, dict) else {}


def is_module(value: Any) -> bool:
    """Whether a record looks like a torch module: it has the three dictionaries of one."""
    return isinstance(value, Record) and {"_parameters", "_modules"} <= set(_state(value))


def walk_module(
    root: Record, *, source: str
) -> tuple[dict[str, TensorSpec], dict[str, str], dict[str, dict[str, Any]]]:
    """A pickled module's tensors under their state-dict names, its classes and plain attributes.

    Non-persistent buffers are left out, as ``state_dict`` does.

    Raises:
        CheckpointError: modules inside themselves, or more of them than any model has.
    """
    tensors: dict[str, TensorSpec] = {}
    classes: dict[str, str] = {}
    attributes: dict[str, dict[str, Any]] = {}
    todo: list[tuple[str, Record, int]] = [("", root, 0)]
    while todo:
        path, record, depth = todo.pop()
        if depth > MAX_DEPTH or len(classes) > MAX_MODULES:
            raise CheckpointError(
                f"{source}: modules are nested {depth} deep or contain each other "
                f"(at {path!r:.80}). {WAY_OUT}"
            )
        state = _state(record)
        classes[path] = record.cls
        attributes[path] = {
            k: v
            for k, v in state.items()
            if isinstance(k, str) and not k.startswith("_") and isinstance(v, (int, float, str))
        }
        # None is worth knowing too: which optional parts the class has, and this model lacks.
        attributes[path] |= {k: None for k, v in state.items() if v is None and k[:1] != "_"}
        prefix = f"{path}." if path else ""
        hidden = state.get("_non_persistent_buffers_set") or ()
        for group in ("_parameters", "_buffers"):
            members = state.get(group)
            for name, value in members.items() if isinstance(members, dict) else ():
                if value is None or (group == "_buffers" and name in hidden):
                    continue
                if not isinstance(value, TensorSpec):
                    what = value.cls if isinstance(value, Record) else type(value).__name__
                    raise CheckpointError(
                        f"{source}: {prefix}{name} is a {what}, not a plain tensor. {WAY_OUT}"
                    )
                tensors[f"{prefix}{name}"] = value
        children = state.get("_modules")
        for name, value in children.items() if isinstance(children, dict) else ():
            if isinstance(value, Record):
                todo.append((f"{prefix}{name}", value, depth + 1))
    return tensors, classes, attributes


def _plain_dict(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict) and value and all(isinstance(k, str) for k in value):
        return value
    return None


def _find(root: Any, source: str) -> tuple[str, Any]:
    """The part of a file's object that holds the weights: (kind, state dict or module)."""
    if is_module(root):
        return "pickled module", root
    top = _plain_dict(root)
    if top is not None:
        if any(isinstance(v, TensorSpec) for v in top.values()):
            return "state dict", top
        for key in STATE_KEYS:
            inner = top.get(key)
            if is_module(inner):
                return "pickled module", inner
            named = _plain_dict(inner)
            if named is not None and any(isinstance(v, TensorSpec) for v in named.values()):
                return "trainer file", named
        held = ", ".join(sorted(top)[:12])
        raise CheckpointError(
            f"{source} holds a dictionary with the keys {held}; none of them is a state dict. "
            f"{WAY_OUT}"
        )
    what = root.cls if isinstance(root, Record) else type(root).__name__
    raise CheckpointError(
        f"{source} holds a {what}, which is neither a state dict nor a torch module. {WAY_OUT}"
    )


def read_weights(path: str | Path) -> Weights:
    """All tensors of a checkpoint file, no code run.

    Raises:
        CheckpointError: missing, damaged, or without weights; names the file and what it holds.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    file: TorchFile = open_torch(path)
    kind, found = _find(file.root, str(path))
    classes: dict[str, str] = {}
    attributes: dict[str, dict[str, Any]] = {}
    if kind == "pickled module":
        specs, classes, attributes = walk_module(found, source=str(path))
    else:
        specs = {k: v for k, v in found.items() if isinstance(v, TensorSpec)}
    return Weights(
        path,
        file.read(specs),
        kind,
        classes,
        attributes,
        tuple(sorted({s.dtype for s in specs.values()})),
    )


def _safetensors(path: Path) -> Weights:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise CheckpointError(f"{path} is not a file.")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} is no readable safetensors file ({error}): truncated or damaged."
        ) from None
    dtypes = tuple(sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values()}))
    return Weights(path, tensors, "safetensors", dtypes=dtypes)
