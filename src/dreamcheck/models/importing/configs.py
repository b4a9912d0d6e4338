"""A foreign config.json read as data: allow-listed classes and sizes, nothing is built from it.

stable-worldmodel's loader constructs whatever ``_target_`` names, so its configuration is code.
Here a ``_target_`` is looked up in a list; an unknown one is named and refused (law 10).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamcheck.errors import CheckpointError

MAX_CONFIG_BYTES = 1 << 20
MAX_DEPTH = 16

_SWM = "stable_worldmodel.wm"
TARGETS: Mapping[str, str] = {
    f"{_SWM}.lewm.LeWM": "lewm",
    f"{_SWM}.lewm.lewm.LeWM": "lewm",
    f"{_SWM}.LeWM": "lewm",
    "jepa.JEPA": "lewm",
    "lewm.LeWM": "lewm",
    f"{_SWM}.pldm.PLDM": "pldm",
    f"{_SWM}.pldm.pldm.PLDM": "pldm",
    f"{_SWM}.PLDM": "pldm",
    **{
        f"{root}.{name}": part
        for root in (f"{_SWM}.lewm.module", f"{_SWM}.pldm.module", "module")
        for name, part in (
            ("Predictor", "predictor"),
            ("ARPredictor", "predictor"),
            ("Embedder", "action_encoder"),
            ("MLP", "head"),
        )
    },
    "stable_pretraining.backbone.utils.vit_hf": "encoder",
    "stable_pretraining.backbone.vit_hf": "encoder",
    "torch.nn.BatchNorm1d": "norm",
    "torch.nn.modules.batchnorm.BatchNorm1d": "norm",
}
"""The classes a configuration may name, and what each is."""

NO_IMPORTER = {
    "prejepa": "PreJEPA / DINO-WM",
    "tdmpc2": "TD-MPC2",
    "gcrl": "a goal-conditioned policy",
    "dinowm": "DINO-WM",
}

VIT_HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16}
VIT_WIDTHS = {"tiny": 192, "small": 384, "base": 768, "large": 1024, "huge": 1280}


@dataclass(frozen=True)
class ForeignConfig:
    """What a configuration says. sizes: LeWMConfig field -> number; notes: what was left unread."""

    path: Path
    family: str | None
    target: str | None
    sizes: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _check_targets(value: Any, path: Path, where: str = "", depth: int = 0) -> None:
    """Refuse every class that is not on the list, wherever it stands."""
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{path} is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_targets(item, path, f"{where}[{i}]", depth + 1)
    if not isinstance(value, dict):
        return
    target = value.get("_target_")
    if target is not None and target not in TARGETS:
        place = where.lstrip(".") or "the top"
        known = next((n for k, n in NO_IMPORTER.items() if k in str(target).lower()), None)
        if known:
            raise CheckpointError(
                f"{path} names _target_ = {target!r} at {place}: {known} is recognised but has no "
                "importer. Score it through an adapter (examples/own_model_torch.py) or through "
                "`dreamcheck export-queries` / `import-answers`."
            )
        raise CheckpointError(
            f"{path} names _target_ = {target!r} at {place}, which is not on the list of known "
            "parts. It was not imported and will not be: a configuration is data here. For a fork "
            "with its own parts write a twenty-line adapter (examples/own_model_torch.py); if the "
            "part only has another name, move config.json aside and sizes are read from the "
            "tensors."
        )
    for k, v in value.items():
        _check_targets(v, path, f"{where}.{k}", depth + 1)


def _number(section: Mapping[str, Any], key: str) -> float | None:
    value = section.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def read_config(path: str | Path) -> ForeignConfig:
    """Family and sizes out of a config.json.

    Raises:
        CheckpointError: unreadable, or a ``_target_`` that is not on the list (named).
    """
    path = Path(path)
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise CheckpointError(
            f"{path} is {path.stat().st_size} bytes long; a configuration is not."
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is no readable JSON: {error}. Copy it again, or move it aside: sizes are then "
            "read from the tensors."
        ) from None
    if not isinstance(raw, dict):
        raise CheckpointError(
            f"{path} holds a {type(raw).__name__}; an object is expected. Move it aside to read "
            "sizes from the tensors."
        )
    _check_targets(raw, path)
    notes: list[str] = []
    # A run's whole configuration keeps the model under "model"; a saved model is the model.
    body = raw
    if "encoder" not in raw and isinstance(raw.get("model"), dict):
        body = raw["model"]
        notes.append("the model's part of a whole run's configuration was read")
    target = body.get("_target_")
    family = TARGETS.get(target) if isinstance(target, str) else None
    if family not in ("lewm", "pldm", None):
        raise CheckpointError(f"{path} describes {target}, a part of a model and not a model.")
    sizes: dict[str, float] = {}

    def section(name: str) -> Mapping[str, Any]:
        value = body.get(name)
        return value if isinstance(value, dict) else {}

    def take(part: str, key: str, ours: str) -> None:
        value = section(part).get(key)
        if isinstance(value, str) and ("${" in value or value == "???"):
            notes.append(f"{part}.{key} = {value} was never filled in; read from the tensors")
            return
        number = _number(section(part), key)
        if number is not None:
            sizes[ours] = number

    take("encoder", "patch_size", "patch_size")
    take("encoder", "image_size", "image_size")
    take("encoder", "num_attention_heads", "encoder_heads")
    take("encoder", "num_hidden_layers", "encoder_depth")
    take("encoder", "hidden_size", "encoder_width")
    take("encoder", "layer_norm_eps", "encoder_norm_eps")
    scale = section("encoder").get("size")
    if isinstance(scale, str) and scale in VIT_HEADS:
        sizes.setdefault("encoder_heads", VIT_HEADS[scale])
        sizes.setdefault("encoder_width", VIT_WIDTHS[scale])
    take("predictor", "num_frames", "history")
    take("predictor", "depth", "predictor_depth")
    take("predictor", "heads", "predictor_heads")
    take("predictor", "dim_head", "predictor_head_width")
    take("predictor", "mlp_dim", "predictor_mlp")
    take("predictor", "hidden_dim", "predictor_width")
    take("predictor", "dropout", "dropout")
    take("action_encoder", "input_dim", "action_width")
    take("projector", "hidden_dim", "head_hidden")
    take("projector", "output_dim", "latent_width")
    return ForeignConfig(
        path, family, target if isinstance(target, str) else None, sizes, tuple(notes)
    )
