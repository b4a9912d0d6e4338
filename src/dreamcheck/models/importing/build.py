"""A LeWM-family network out of named tensors: sizes, strict loading, and the source of each size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from pydantic import ValidationError
from torch import Tensor

from dreamcheck.errors import CheckpointError
from dreamcheck.models.importing.configs import ForeignConfig
from dreamcheck.models.importing.facts import Fact, Source
from dreamcheck.models.importing.layouts import (
    Sizes,
    fold_projections,
    from_theirs,
    is_family,
    read_sizes,
    unwrap,
    vit_names,
)
from dreamcheck.models.importing.weights import Weights
from dreamcheck.models.lewm import LeWMConfig, LeWMNet

HEAD_WIDTH = 64
"""Every public vision transformer and predictor of this family has heads of 64 (huge has 80)."""

_WHY_HEADS = "attention heads leave no trace in tensor shapes"


@dataclass(frozen=True)
class Built:
    """A loaded network with what is known about it."""

    net: LeWMNet
    facts: tuple[Fact, ...]
    notes: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


def _attribute(weights: Weights, root: str, below: str, names: tuple[str, ...]) -> float | None:
    """A number set on any module below a path of a pickled model."""
    start = f"{root}{below}"
    for path in sorted(weights.attributes):
        if path == start.rstrip(".") or path.startswith(start):
            for name in names:
                value = weights.attributes[path].get(name)
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    return value
    return None


def _conflicts(config: ForeignConfig, sizes: Sizes) -> list[str]:
    out = []
    for f in fields(Sizes):
        if f.name in config.sizes and config.sizes[f.name] != getattr(sizes, f.name):
            out.append(
                f"{f.name}: {config.path.name} says {config.sizes[f.name]:g}, the tensors "
                f"{getattr(sizes, f.name)}"
            )
    return out


def _heads(
    what: str,
    total: int,
    default_width: int,
    said: float | None,
    attribute: float | None,
) -> tuple[int, Source, str]:
    """Number of heads of ``total`` numbers, and where it came from."""
    heads: float | None
    source: Source
    if attribute is not None:
        heads, source, note = attribute, "pickled attribute", ""
    elif said is not None:
        heads, source, note = said, "config", ""
    else:
        if total % default_width:
            raise CheckpointError(
                f"{what}: {total} numbers do not divide into heads of {default_width}, and no "
                f"config.json says how many there are; {_WHY_HEADS}. Put the run's config.json "
                "beside the weights."
            )
        heads, source = total // default_width, "family default"
        note = f"{_WHY_HEADS}; heads of {default_width} are assumed"
    if int(heads) != heads or heads < 1 or total % int(heads):
        raise CheckpointError(f"{what} = {heads} does not divide the {total} numbers it splits.")
    return int(heads), source, note


def build(weights: Weights, config: ForeignConfig | None) -> Built:
    """The network its tensors describe, loaded strictly, in evaluation mode.

    Raises:
        CheckpointError: another family, keys that do not fit (all listed), sizes that contradict
            the configuration, or numbers that are not finite.
    """
    source = str(weights.path)
    renamed = unwrap(weights.tensors)
    if not is_family(renamed.tensors):
        tops = sorted({k.split(".")[0] for k in renamed.tensors})
        kind = weights.classes.get("", "")
        raise CheckpointError(
            f"{source} is not of the LeWM family (ViT encoder, action embedder, causal predictor): "
            f"its parts are {', '.join(tops[:10])}{f', its class {kind}' if kind else ''}. Write a "
            "twenty-line adapter (examples/own_model_torch.py), or use `dreamcheck export-queries`."
        )
    notes = [f"the prefix {p!r} was taken off the tensor names" for p in renamed.removed]
    if renamed.others:
        notes.append(
            f"{len(renamed.others)} tensors beside the model were not read "
            f"({', '.join(renamed.others[:3])}{', …' if len(renamed.others) > 3 else ''})"
        )
    sizes = read_sizes(renamed.tensors)
    facts, architecture = _architecture(weights, renamed.root, config, sizes)
    tensors: Mapping[str, Tensor]
    tensors, folded = fold_projections(renamed.tensors)
    if folded:
        notes.append(
            f"the predictor is {sizes.predictor_width} wide and latents {sizes.latent_width}: "
            f"{', '.join(folded)} multiplied into neighbouring maps (the same function; results "
            "differ in the last bits)"
        )
    # On the meta device a network costs no memory: only what the file holds is ever allocated.
    with torch.device("meta"):
        net = LeWMNet(architecture)
    expected = {k: tuple(v.shape) for k, v in net.state_dict().items()}
    converted = from_theirs(tensors, architecture, expected, source=source)
    bad = [k for k, v in renamed.tensors.items() if not torch.isfinite(v).all()]
    if bad:
        raise CheckpointError(
            f"{source}: {len(bad)} of {len(renamed.tensors)} tensors hold NaN or infinity (first: {bad[0]}). Training "
            "diverged before this checkpoint was saved; take an earlier one."
        )
    net.load_state_dict(converted.tensors, strict=True, assign=True)
    net.requires_grad_(False)
    facts.append(Fact("encoder key names", vit_names(tensors), "tensor shape"))
    facts.append(
        Fact("stored numbers", ", ".join(d for d in weights.dtypes if "float" in d), "tensor shape")
    )
    return Built(net.eval(), tuple(facts), tuple(notes), converted.left_out)


def _architecture(
    weights: Weights, root: str, config: ForeignConfig | None, sizes: Sizes
) -> tuple[list[Fact], LeWMConfig]:
    said = config.sizes if config else {}
    if config and (conflicts := _conflicts(config, sizes)):
        raise CheckpointError(
            f"{config.path} describes another model than {weights.path.name}: "
            f"{'; '.join(conflicts)}. Put the configuration of this run beside the weights, or "
            "move config.json aside to read the sizes from the tensors alone."
        )
    encoder_heads = _heads(
        "encoder heads",
        sizes.encoder_width,
        HEAD_WIDTH,
        said.get("encoder_heads"),
        _attribute(weights, root, "encoder.", ("num_attention_heads", "num_heads")),
    )
    width = said.get("predictor_head_width")
    heads = said.get("predictor_heads")
    if heads is not None and width is not None and heads * width != sizes.predictor_inner:
        raise CheckpointError(
            f"{config.path if config else ''} says {heads:g} predictor heads of {width:g}, but the "
            f"tensors hold {sizes.predictor_inner} numbers for all heads together."
        )
    predictor_heads = _heads(
        "predictor heads",
        sizes.predictor_inner,
        int(width) if width else HEAD_WIDTH,
        heads,
        _attribute(weights, root, "predictor.transformer.", ("heads",)),
    )
    eps = _attribute(weights, root, "encoder.layernorm", ("eps",))
    values = {f.name: getattr(sizes, f.name) for f in fields(Sizes) if f.name != "predictor_inner"}
    facts = [Fact(k, v, "tensor shape") for k, v in values.items()]
    facts.append(Fact("encoder_heads", *encoder_heads))
    facts.append(Fact("predictor_heads", *predictor_heads))
    eps_source: Source = "family default"
    if eps is not None:
        eps_source = "pickled attribute"
    elif "encoder_norm_eps" in said:
        eps, eps_source = said["encoder_norm_eps"], "config"
    facts.append(Fact("encoder_norm_eps", eps if eps is not None else 1e-12, eps_source))
    dropout = said.get("dropout")
    facts.append(
        Fact(
            "dropout",
            0.1 if dropout is None else dropout,
            "family default" if dropout is None else "config",
            "used in training only",
        )
    )
    try:
        architecture = LeWMConfig(
            **values,
            encoder_heads=encoder_heads[0],
            predictor_heads=predictor_heads[0],
            predictor_head_width=sizes.predictor_inner // predictor_heads[0],
            encoder_norm_eps=eps if eps is not None else 1e-12,
            dropout=0.1 if dropout is None else dropout,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise CheckpointError(
            f"{weights.path}: {'.'.join(map(str, first['loc']))} = {first.get('input')!r} is out of "
            f"range: {first['msg']}. No model of this family is built like that."
        ) from None
    return facts, architecture
