"""Batch normalisation between training and evaluation: modes, gaps, layer reports, precise BN.

In evaluation BatchNorm uses running statistics. Where these lag behind the weights, every number
measured in evaluation mode is distorted, and no weight is to blame.

Source: spec/protocol.md section 5 (B1-B7).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from dreamcheck.errors import UsageError

Mode = Literal["eval", "batch_statistics", "train"]
MODES: tuple[Mode, ...] = ("eval", "batch_statistics", "train")
"""Evaluation; statistics of the batch but no dropout; everything as in training."""

BatchT = TypeVar("BatchT")


def norm_layers(module: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """BatchNorm layers that keep running statistics, by name."""
    return {
        name: m
        for name, m in module.named_modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats
    }


@contextlib.contextmanager
def in_mode(module: nn.Module, mode: Mode) -> Iterator[None]:
    """The module in one of MODES; modes and every buffer are as before afterwards (B3)."""
    modes = {name: m.training for name, m in module.named_modules()}
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    try:
        module.train(mode == "train")
        if mode == "batch_statistics":
            for layer in norm_layers(module).values():
                layer.train()
        yield
    finally:
        for name, m in module.named_modules():
            m.training = modes[name]
        with torch.no_grad():
            for name, b in module.named_buffers():
                b.copy_(buffers[name])


def mode_losses(
    module: nn.Module,
    losses: Callable[[BatchT], Mapping[str, float]],
    batches: Sequence[BatchT],
    *,
    modes: Sequence[Mode] = MODES,
) -> dict[Mode, dict[str, float]]:
    """Mean of every loss term over the same batches in each mode (B1, B2).

    Args:
        losses: terms of one batch; called without gradients. Any randomness in it must not depend
            on how often it was called, or the modes are not comparable.
    """
    out: dict[Mode, dict[str, float]] = {}
    for mode in modes:
        with in_mode(module, mode), torch.no_grad():
            terms = [losses(batch) for batch in batches]
        out[mode] = {k: sum(t[k] for t in terms) / len(terms) for k in terms[0]}
    return out


@dataclass(frozen=True)
class LayerReport:
    """One BatchNorm layer's stored statistics (B4, B7).

    amplification: mean of 1 / sqrt(running variance).
    batches: accumulated count; the optimiser's step count means a training average, the number of
        recalibration batches means precise BN.
    """

    name: str
    mean_of_means: float
    variance_mean: float
    variance_min: float
    variance_max: float
    amplification: float
    batches: int


def layer_reports(module: nn.Module) -> list[LayerReport]:
    """Stored statistics of every BatchNorm layer."""
    reports = []
    for name, layer in norm_layers(module).items():
        assert layer.running_mean is not None and layer.running_var is not None
        variance = layer.running_var.double()
        count = layer.num_batches_tracked
        reports.append(
            LayerReport(
                name=name,
                mean_of_means=float(layer.running_mean.double().mean()),
                variance_mean=float(variance.mean()),
                variance_min=float(variance.min()),
                variance_max=float(variance.max()),
                amplification=float((variance + layer.eps).rsqrt().mean()),
                batches=0 if count is None else int(count),
            )
        )
    return reports


@dataclass(frozen=True)
class Recalibration:
    """What precise BN did.

    batches: training batches averaged over. layers_before, layers_after: stored statistics.
    """

    batches: int
    layers_before: tuple[LayerReport, ...]
    layers_after: tuple[LayerReport, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def recalibrate(
    module: nn.Module,
    forward: Callable[[BatchT], object],
    batches: Iterable[BatchT],
) -> Recalibration:
    """Replace running statistics by the plain average over training batches (precise BN, B6).

    In place; keep a copy to compare with. Dropout stays off, as in the evaluation that the
    statistics are for. Modes and momenta are restored.

    Args:
        forward: must go through every normalised path; encoding alone misses a predictor's head.
        batches: training batches, 100 to 200 of them.

    Raises:
        UsageError: no batches, no BatchNorm layer, or a layer that ``forward`` never reached.
    """
    layers = norm_layers(module)
    if not layers:
        raise UsageError("the model has no BatchNorm layer with running statistics to recalibrate.")
    before = tuple(layer_reports(module))
    modes = {name: m.training for name, m in module.named_modules()}
    momenta = {name: layer.momentum for name, layer in layers.items()}
    old = {name: b.detach().clone() for name, b in module.named_buffers()}
    done = False
    count = 0
    try:
        module.eval()
        for layer in layers.values():
            layer.reset_running_stats()
            layer.momentum = None  # cumulative average
            layer.train()
        with torch.no_grad():
            for batch in batches:
                forward(batch)
                count += 1
        missed = [
            name
            for name, layer in layers.items()
            if layer.num_batches_tracked is None or int(layer.num_batches_tracked) == 0
        ]
        if missed:
            raise UsageError(
                f"recalibration on {count} batch(es) never reached BatchNorm layer "
                f"{', '.join(missed)}: the forward pass must go through every normalised path, "
                "the prediction head's too. Nothing was changed."
            )
        done = True
    finally:
        for name, layer in layers.items():
            layer.momentum = momenta[name]
        for name, m in module.named_modules():
            m.training = modes[name]
        if not done:
            with torch.no_grad():
                for name, b in module.named_buffers():
                    b.copy_(old[name])
    return Recalibration(count, before, tuple(layer_reports(module)))
