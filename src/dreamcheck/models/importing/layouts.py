"""Tensor names and shapes of the LeWM family as others write them, and the same as we write them.

Two name layouts of the vision transformer exist, because transformers renamed its modules between
versions 4 and 5; everything else is the same in every release.

Source: spec/ecosystem-swm.md ("Models and checkpoints"); the names are those of the public code.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dreamcheck.errors import CheckpointError
from dreamcheck.models.lewm import LeWMConfig

VitNames = Literal["transformers4", "transformers5"]

_PATCH = "encoder.embeddings.patch_embeddings.projection.weight"
_POSITIONS = "predictor.pos_embedding"
_ACTION = "action_encoder.patch_embed.weight"

LEFT_OUT = (
    (re.compile(r"^encoder\.embeddings\.mask_token$"), "mask token, unused at inference"),
    (re.compile(r"^encoder\.embeddings\.position_ids$"), "position numbers, not weights"),
    (re.compile(r"^encoder\.pooler\."), "pooler, never read by this family"),
    (re.compile(r"^patch_proj_(clean|masked)\."), "patch reconstruction head, training only"),
    (re.compile(r"^(sigreg|regularizer|visreg|pldm|path_straight|idm|probe)\b"), "training only"),
)
"""Tensors that a model of this family may carry and inference does not use."""

TRAINING_PREFIXES = ("sigreg", "regularizer", "visreg", "pldm", "path_straight", "idm")


@dataclass(frozen=True, slots=True)
class Renamed:
    """State-dict names without wrappers' prefixes. removed: prefixes taken off; others: not ours."""

    tensors: Mapping[str, Tensor]
    removed: tuple[str, ...]
    others: tuple[str, ...]
    root: str = ""


def unwrap(tensors: Mapping[str, Tensor]) -> Renamed:
    """Names as the model itself has them: without ``model.``, ``module.``, ``_orig_mod.``.

    The prefix is found, not guessed: it is what stands before ``predictor.pos_embedding``.
    """
    removed: list[str] = []
    clean = {k.replace("_orig_mod.", ""): v for k, v in tensors.items()}
    if any("_orig_mod." in k for k in tensors):
        removed.append("_orig_mod.")
    roots = sorted(k[: -len(_POSITIONS)] for k in clean if k.endswith(_POSITIONS))
    if not roots:
        return Renamed(clean, tuple(removed), ())
    root = min(roots, key=len)
    if root and not root.endswith("."):
        return Renamed(clean, tuple(removed), ())
    if root:
        removed.append(root)
    inside = {k[len(root) :]: v for k, v in clean.items() if k.startswith(root)}
    others = tuple(sorted(k for k in clean if not k.startswith(root)))
    return Renamed(inside, tuple(removed), others, root)


def is_family(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the names are those of a LeWM-like model: ViT, action embedder, causal predictor."""
    return {_PATCH, _POSITIONS, _ACTION} <= set(tensors)


def vit_names(tensors: Mapping[str, Tensor]) -> VitNames:
    """Which transformers release named the encoder's tensors.

    Raises:
        CheckpointError: neither of the two layouts.
    """
    if any(k.startswith("encoder.encoder.layer.") for k in tensors):
        return "transformers4"
    if any(k.startswith("encoder.layers.") for k in tensors):
        return "transformers5"
    seen = sorted({".".join(k.split(".")[:3]) for k in tensors if k.startswith("encoder.")})
    raise CheckpointError(
        f"the encoder's layers are named in a way that is not known: {', '.join(seen[:8])}. "
        "Known are encoder.encoder.layer.N (transformers 4) and encoder.layers.N (transformers 5)."
    )


def _vit_layer(names: VitNames, i: int) -> dict[str, tuple[str, ...]]:
    """Our name of one encoder layer's module -> theirs (three for query, key, value)."""
    if names == "transformers4":
        p = f"encoder.encoder.layer.{i}."
        parts: dict[str, tuple[str, ...]] = {
            "qkv": tuple(f"{p}attention.attention.{x}" for x in ("query", "key", "value")),
            "out": (f"{p}attention.output.dense",),
            "up": (f"{p}intermediate.dense",),
            "down": (f"{p}output.dense",),
        }
    else:
        p = f"encoder.layers.{i}."
        parts = {
            "qkv": tuple(f"{p}attention.{x}_proj" for x in ("q", "k", "v")),
            "out": (f"{p}attention.o_proj",),
            "up": (f"{p}mlp.fc1",),
            "down": (f"{p}mlp.fc2",),
        }
    parts["norm_before"] = (f"{p}layernorm_before",)
    parts["norm_after"] = (f"{p}layernorm_after",)
    return {f"encoder.layers.{i}.{k}": v for k, v in parts.items()}


def name_map(config: LeWMConfig, names: VitNames) -> dict[str, tuple[str, ...]]:
    """Our tensor name -> theirs; several of theirs are stacked along the first axis."""
    both = ("weight", "bias")
    modules: dict[str, tuple[str, ...]] = {
        "encoder.patch": ("encoder.embeddings.patch_embeddings.projection",),
        "encoder.norm": ("encoder.layernorm",),
        "action_embedder.smooth": ("action_encoder.patch_embed",),
        "action_embedder.up": ("action_encoder.embed.0",),
        "action_embedder.down": ("action_encoder.embed.2",),
        "predictor.norm": ("predictor.transformer.norm",),
    }
    for i in range(config.encoder_depth):
        modules |= _vit_layer(names, i)
    out = {f"{k}.{w}": tuple(f"{t}.{w}" for t in v) for k, v in modules.items() for w in both}
    for i in range(config.predictor_depth):
        ours, theirs = f"predictor.layers.{i}.", f"predictor.transformer.layers.{i}."
        for k, v in {
            "modulation": "adaLN_modulation.1",
            "attention_norm": "attn.norm",
            "out": "attn.to_out.0",
            "mlp_norm": "mlp.net.0",
            "up": "mlp.net.1",
            "down": "mlp.net.4",
        }.items():
            out |= {f"{ours}{k}.{w}": (f"{theirs}{v}.{w}",) for w in both}
        out[f"{ours}qkv.weight"] = (f"{theirs}attn.to_qkv.weight",)
    for ours, theirs in (("projector", "projector"), ("prediction_head", "pred_proj")):
        out |= {f"{ours}.up.{w}": (f"{theirs}.net.0.{w}",) for w in both}
        out |= {f"{ours}.down.{w}": (f"{theirs}.net.3.{w}",) for w in both}
        for w in (*both, "running_mean", "running_var", "num_batches_tracked"):
            out[f"{ours}.norm.{w}"] = (f"{theirs}.net.1.{w}",)
    out["encoder.cls"] = ("encoder.embeddings.cls_token",)
    out["encoder.positions"] = ("encoder.embeddings.position_embeddings",)
    out["predictor.positions"] = (_POSITIONS,)
    if config.latent_width != config.predictor_width:
        out |= {f"predictor.read.{w}": (f"predictor.transformer.input_proj.{w}",) for w in both}
    return out


def _shape(tensors: Mapping[str, Tensor], name: str, dims: int) -> tuple[int, ...]:
    if name not in tensors:
        close = difflib.get_close_matches(name, tensors, n=3)
        hint = f" Close to it: {', '.join(close)}." if close else ""
        raise CheckpointError(f"the checkpoint has no tensor {name}.{hint}")
    shape = tuple(tensors[name].shape)
    if len(shape) != dims:
        raise CheckpointError(f"{name} has shape {shape}; {dims} dimensions are expected.")
    return shape


def _layers(tensors: Iterable[str], pattern: str) -> int:
    found = {int(m.group(1)) for k in tensors if (m := re.match(pattern, k))}
    return max(found) + 1 if found else 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Every size that shapes show. Attention heads and dropout are not among them."""

    image_size: int
    patch_size: int
    encoder_width: int
    encoder_depth: int
    encoder_mlp: int
    head_hidden: int
    latent_width: int
    action_width: int
    action_smoothed: int
    action_hidden: int
    predictor_width: int
    predictor_depth: int
    predictor_inner: int
    predictor_mlp: int
    history: int


def read_sizes(tensors: Mapping[str, Tensor]) -> Sizes:
    """Sizes of a LeWM-like network from its tensors' shapes.

    Raises:
        CheckpointError: a part is missing or is not built as this family builds it.
    """
    names = vit_names(tensors)
    width, channels, patch, patch_w = _shape(tensors, _PATCH, 4)
    if channels != 3 or patch != patch_w:
        raise CheckpointError(
            f"{_PATCH} cuts {channels}-channel patches of {patch} x {patch_w} pixels; square RGB "
            "patches are expected."
        )
    _, tokens, _ = _shape(tensors, "encoder.embeddings.position_embeddings", 3)
    grid = math.isqrt(tokens - 1)
    if grid * grid != tokens - 1:
        raise CheckpointError(
            f"the encoder has {tokens - 1} patch positions, which is no square; only square frames "
            "with a class token are supported."
        )
    if names == "transformers4":
        depth = _layers(tensors, r"encoder\.encoder\.layer\.(\d+)\.")
        mlp = _shape(tensors, "encoder.encoder.layer.0.intermediate.dense.weight", 2)[0]
    else:
        depth = _layers(tensors, r"encoder\.layers\.(\d+)\.")
        mlp = _shape(tensors, "encoder.layers.0.mlp.fc1.weight", 2)[0]
    for head in ("projector", "pred_proj"):
        if f"{head}.net.1.running_mean" not in tensors:
            held = sorted(k for k in tensors if k.startswith(f"{head}."))
            raise CheckpointError(
                f"{head} is not Linear, BatchNorm, GELU, Linear as in LeWM: it holds "
                f"{', '.join(held[:6]) or 'nothing (an identity)'}. Such a model needs an adapter "
                "(examples/own_model_torch.py)."
            )
    hidden = _shape(tensors, "projector.net.0.weight", 2)[0]
    other = _shape(tensors, "pred_proj.net.0.weight", 2)[0]
    if hidden != other:
        raise CheckpointError(
            f"projector and pred_proj have hidden widths {hidden} and {other}; the network here "
            "has one for both. Such a model needs an adapter (examples/own_model_torch.py)."
        )
    smoothed, action_width, _ = _shape(tensors, _ACTION, 3)
    qkv, _ = _shape(tensors, "predictor.transformer.layers.0.attn.to_qkv.weight", 2)
    return Sizes(
        image_size=grid * patch,
        patch_size=patch,
        encoder_width=width,
        encoder_depth=depth,
        encoder_mlp=mlp,
        head_hidden=hidden,
        latent_width=_shape(tensors, "projector.net.3.weight", 2)[0],
        action_width=action_width,
        action_smoothed=smoothed,
        action_hidden=_shape(tensors, "action_encoder.embed.0.weight", 2)[0],
        predictor_width=_shape(tensors, "predictor.transformer.norm.weight", 1)[0],
        predictor_depth=_layers(tensors, r"predictor\.transformer\.layers\.(\d+)\."),
        predictor_inner=qkv // 3,
        predictor_mlp=_shape(tensors, "predictor.transformer.layers.0.mlp.net.1.weight", 2)[0],
        history=_shape(tensors, _POSITIONS, 3)[1],
    )


def fold_projections(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The same function without the projections our predictor does not have.

    A predictor whose width differs from the latent's has three more linear maps. Each follows or
    precedes another linear map, so it multiplies into its neighbour: positions through the input
    map, the action embedding through the condition map, the output map into the head. Computed in
    float64.

    Returns:
        the tensors, and which maps were folded.
    """
    out = dict(tensors)
    folded: list[str] = []

    def taken(part: str) -> tuple[Tensor, Tensor] | None:
        weight = out.get(f"predictor.transformer.{part}.weight")
        bias = out.get(f"predictor.transformer.{part}.bias")
        if weight is None or bias is None:
            return None
        folded.append(part)
        return weight.double(), bias.double()

    if (read := taken("input_proj")) is not None:
        # W (x + p) + b = (W x + b) + W p: the positions move behind the map, which stays.
        out[_POSITIONS] = (out[_POSITIONS].double() @ read[0].T).float()
    if (condition := taken("cond_proj")) is not None:
        weight, bias = (out[f"action_encoder.embed.2.{w}"].double() for w in ("weight", "bias"))
        out["action_encoder.embed.2.weight"] = (condition[0] @ weight).float()
        out["action_encoder.embed.2.bias"] = (condition[0] @ bias + condition[1]).float()
        out.pop("predictor.transformer.cond_proj.weight")
        out.pop("predictor.transformer.cond_proj.bias")
    if (output := taken("output_proj")) is not None:
        weight, bias = (out[f"pred_proj.net.0.{w}"].double() for w in ("weight", "bias"))
        out["pred_proj.net.0.weight"] = (weight @ output[0]).float()
        out["pred_proj.net.0.bias"] = (weight @ output[1] + bias).float()
        out.pop("predictor.transformer.output_proj.weight")
        out.pop("predictor.transformer.output_proj.bias")
    return out, tuple(folded)


@dataclass(frozen=True, slots=True)
class Converted:
    """Tensors under our names. left_out: (their name, why) of what was not needed."""

    tensors: dict[str, Tensor]
    left_out: tuple[tuple[str, str], ...]


def from_theirs(
    tensors: Mapping[str, Tensor],
    config: LeWMConfig,
    expected: Mapping[str, tuple[int, ...]],
    *,
    source: str,
) -> Converted:
    """Their state dict as ours, strictly: everything is used or named.

    Args:
        expected: shapes of our network's tensors by our names.
        source: file name for messages.

    Raises:
        CheckpointError: keys are missing, unknown or of another shape; all are listed.
    """
    names = name_map(config, vit_names(tensors))
    missing: list[str] = []
    wrong: list[str] = []
    used: set[str] = set()
    out: dict[str, Tensor] = {}
    for ours, theirs in names.items():
        lost = [t for t in theirs if t not in tensors]
        used.update(theirs)
        if lost:
            if ours.endswith("num_batches_tracked"):
                out[ours] = torch.zeros((), dtype=torch.int64)
                continue
            missing += lost
            continue
        pieces = [tensors[t] for t in theirs]
        value = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        if tuple(value.shape) != expected[ours]:
            wrong.append(f"{theirs[0]}: {tuple(value.shape)}, expected {expected[ours]}")
            continue
        out[ours] = value.float() if value.is_floating_point() else value
    left_out: list[tuple[str, str]] = []
    unknown: list[str] = []
    for key in tensors:
        if key in used:
            continue
        why = next((reason for pattern, reason in LEFT_OUT if pattern.search(key)), None)
        if why is None:
            unknown.append(key)
        else:
            left_out.append((key, why))
    if missing or wrong or unknown:
        raise CheckpointError(difference(source, missing, unknown, wrong))
    absent = sorted(set(expected) - set(out))
    assert not absent, f"name_map does not cover {absent}"
    return Converted(out, tuple(left_out))


def difference(source: str, missing: list[str], unknown: list[str], wrong: list[str]) -> str:
    """A readable account of keys that do not fit."""
    lines = [f"{source} does not fit the network its shapes describe:"]
    for title, keys in (
        ("missing", missing),
        ("not known", unknown),
        ("another shape", wrong),
    ):
        if keys:
            more = f" … and {len(keys) - 8} more" if len(keys) > 8 else ""
            lines.append(f"  {title} ({len(keys)}): {'; '.join(sorted(keys)[:8])}{more}")
    pairs = [
        f"{m} <- {close[0]}?"
        for m in sorted(missing)[:4]
        if (close := difflib.get_close_matches(m, unknown, n=1, cutoff=0.75))
    ]
    if pairs:
        lines.append(f"  perhaps renamed: {'; '.join(pairs)}")
    lines.append(
        "The model is a fork with other parts: rename its keys, or write a twenty-line adapter "
        "(examples/own_model_torch.py). Nothing is loaded in part."
    )
    return "\n".join(lines)


def to_theirs(
    tensors: Mapping[str, Tensor], config: LeWMConfig, *, names: VitNames = "transformers5"
) -> dict[str, Tensor]:
    """Our state dict under stable-worldmodel's names, for ``load_state_dict`` there.

    Raises:
        CheckpointError: the predictor's width differs from the latent's; the folded positions
            have no counterpart there.
    """
    if config.latent_width != config.predictor_width:
        raise CheckpointError(
            f"latent width {config.latent_width} and predictor width {config.predictor_width} "
            "differ: the positional embedding cannot be written in stable-worldmodel's layout."
        )
    out: dict[str, Tensor] = {}
    for ours, theirs in name_map(config, names).items():
        for name, piece in zip(
            theirs,
            tensors[ours].chunk(len(theirs)) if len(theirs) > 1 else [tensors[ours]],
            strict=True,
        ):
            out[name] = piece.detach().clone()
    return out


Reader = Callable[[Mapping[str, Tensor]], Sizes]
