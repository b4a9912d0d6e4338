"""The contract of ``WorldModel``, as checks anyone can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from dreamcheck.imagination.runner import frozen, open_loop
from dreamcheck.models.protocol import HasModule, Rollout, SharedRollouts, WorldModel
from dreamcheck.streams import stream

Observations = Callable[[int], Mapping[str, Tensor]]
"""n -> {"pixels": uint8 [n, 3, H, W], ...}: n observations that differ from one another."""

ROWS = 40
"""Rows of a call: at least 32, where float32 CPU kernels give equal rows at any position."""


def noise_frames(model: WorldModel) -> Observations:
    """Random frames at the model's own size, for models that read pixels only."""

    def frames(n: int) -> Mapping[str, Tensor]:
        size = model.conventions.image_size
        pixels = stream(0, "conformance frames", n).integers(0, 256, (n, 3, size, size))
        return {"pixels": torch.from_numpy(pixels.astype(np.uint8)).to(model.device)}

    return frames


def check_world_model(
    model: WorldModel,
    observation: Observations | None = None,
    *,
    forecast: int = 4,
    tolerance: float = 1e-5,
) -> None:
    """Check everything the contract promises.

    Args:
        observation: makes n observations; random frames by default.
        forecast: steps of the rollouts.
        tolerance: largest difference, relative to the largest number in the result, between
            results that should be equal.

    Raises:
        AssertionError: the first promise that is broken, in words.
    """
    assert isinstance(model, WorldModel), (
        f"{type(model).__name__} lacks one of conventions, latent, history_min, history_max, "
        "identity, device, encode, embed_actions, predict"
    )
    assert 1 <= model.history_min <= model.history_max, (
        f"history_min = {model.history_min}, history_max = {model.history_max}: they must be "
        "ordered and at least 1"
    )
    make = observation or noise_frames(model)
    with frozen(model):
        latents = _check_encode(model, make, tolerance)
        actions = _check_actions(model, forecast)
        _check_predict(model, latents, actions, tolerance)
        _check_rollout(model, latents, actions, forecast, tolerance)
    _check_modes(model, make, latents, actions)
    _check_identity(model)


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    scale = max(1.0, float(b.abs().max()))
    return bool((a - b).abs().max() <= tolerance * scale)


def _history(model: WorldModel, latents: Tensor, h: int) -> Tensor:
    """[ROWS, h, *shape]: row i holds latents i, i + 1, ..."""
    return torch.stack([latents.roll(-i, dims=0) for i in range(h)], dim=1)


def _check_encode(model: WorldModel, make: Observations, tolerance: float) -> Tensor:
    seen = make(ROWS)
    latents = model.encode(seen)
    expected = (ROWS, *model.latent.shape)
    assert tuple(latents.shape) == expected, (
        f"encode returned {tuple(latents.shape)} for {ROWS} frames; latent.shape promises {expected}"
    )
    assert latents.dtype == torch.float32, f"encode returned {latents.dtype}, not float32"
    assert torch.isfinite(latents).all(), "encode returned NaN or infinity"
    assert torch.equal(latents, model.encode(seen)), (
        "encoding the same frames twice gave different latents: something random or stateful is on"
    )
    order = torch.arange(ROWS - 1, -1, -1)
    again = model.encode({k: v[order] for k, v in seen.items()})[order]
    assert _close(again, latents, tolerance), (
        "reversing the order of the frames changed their latents: a row depends on its batch-mates "
        "or its position (BatchNorm in training mode?)"
    )
    # Half of the batch replaced by copies of one frame: statistics over the batch would move.
    other = {k: torch.cat([v[: ROWS // 2], v[:1].expand(ROWS // 2, *v.shape[1:])])
             for k, v in seen.items()}  # fmt: skip
    assert _close(model.encode(other)[: ROWS // 2], latents[: ROWS // 2], tolerance), (
        "a frame's latent changed with its batch-mates: batch statistics are in use"
    )
    return latents


def _check_actions(model: WorldModel, forecast: int) -> Tensor:
    steps = model.history_max + forecast - 1
    raw = stream(0, "conformance actions", steps).standard_normal(
        (ROWS, steps, model.conventions.action_width)
    )
    actions = model.embed_actions(torch.from_numpy(raw.astype(np.float32)).to(model.device))
    assert actions.ndim == 3 and tuple(actions.shape[:2]) == (ROWS, steps), (
        f"embed_actions returned {tuple(actions.shape)} for [{ROWS}, {steps}, "
        f"{model.conventions.action_width}]; expected [{ROWS}, {steps}, E]"
    )
    assert torch.isfinite(actions).all(), "embed_actions returned NaN or infinity"
    return actions


def _check_predict(model: WorldModel, latents: Tensor, actions: Tensor, tolerance: float) -> None:
    expected = (ROWS, *model.latent.shape)
    for h in range(model.history_min, model.history_max + 1):
        window, blocks = _history(model, latents, h), actions[:, :h]
        out = model.predict(window, blocks, row_seeds=list(range(ROWS)))
        assert tuple(out.shape) == expected, (
            f"predict with {h} latents of history returned {tuple(out.shape)}, expected {expected}"
        )
        assert torch.isfinite(out).all(), f"predict with {h} latents returned NaN or infinity"
        again = model.predict(window, blocks, row_seeds=list(range(ROWS)))
        assert torch.equal(out, again), (
            f"predict with {h} latents gave two results for the same arguments and row seeds: "
            "dropout is on, or a generator is not keyed by row_seeds"
        )
        order = torch.arange(ROWS - 1, -1, -1)
        turned = model.predict(
            window[order], blocks[order], row_seeds=list(range(ROWS - 1, -1, -1))
        )[order]
        assert _close(turned, out, tolerance), (
            f"predict with {h} latents depends on the order of the rows"
        )


def _check_rollout(
    model: WorldModel, latents: Tensor, actions: Tensor, forecast: int, tolerance: float
) -> None:
    for h in sorted({model.history_min, model.history_max}):
        window, blocks = _history(model, latents, h), actions[:, : h - 1 + forecast]
        generic = open_loop(model, window, blocks, generic=True)
        expected = (ROWS, forecast, *model.latent.shape)
        assert tuple(generic.shape) == expected, (
            f"an open-loop rollout gave {tuple(generic.shape)}, expected {expected}"
        )
        if isinstance(model, Rollout):
            fast = model.rollout(window, blocks)
            assert tuple(fast.shape) == expected, (
                f"rollout returned {tuple(fast.shape)}, expected {expected}: the K predicted "
                "latents, without the observed ones"
            )
            difference = float((fast - generic).abs().max())
            assert _close(fast, generic, tolerance), (
                f"rollout from {h} latents differs from repeated predict by {difference:.3g}: "
                "actions shifted by a block, or another window of history"
            )
            if isinstance(model, SharedRollouts):
                shared = model.rollouts([window, window], blocks)
                assert len(shared) == 2 and all(torch.equal(z, fast) for z in shared), (
                    f"rollouts of two equal histories from {h} latents differ from rollout: what "
                    "histories share must change no bit"
                )


def _check_modes(model: WorldModel, make: Observations, latents: Tensor, actions: Tensor) -> None:
    if not isinstance(model, HasModule):
        return
    trained = [n or "the module" for n, m in model.module.named_modules() if m.training]
    assert not trained, (
        f"the model is handed over in training mode ({trained[0]} and {len(trained) - 1} more): "
        "call module.eval() when it is built"
    )
    before = {k: b.clone() for k, b in model.module.named_buffers()}
    with torch.no_grad():
        model.encode(make(ROWS))
        h = model.history_max
        model.predict(_history(model, latents, h), actions[:, :h], row_seeds=list(range(ROWS)))
    changed = [k for k, b in model.module.named_buffers() if not torch.equal(b, before[k])]
    assert not changed, (
        f"encode or predict changed the buffer {changed[0]}: a frozen model must not learn"
    )
    assert not any(m.training for m in model.module.modules()), (
        "encode or predict switched the module to training mode"
    )


def _check_identity(model: WorldModel) -> None:
    first = model.identity
    assert isinstance(first, str) and len(first) >= 16, f"identity = {first!r} is no digest"
    assert model.identity == first, "identity differs from one reading to the next"
    if not isinstance(model, HasModule):
        return
    weights = [p for p in model.module.parameters() if p.numel()]
    if not weights:
        return
    with torch.no_grad():
        kept = weights[-1].clone()
        weights[-1].add_(1.0)
        moved = model.identity
        weights[-1].copy_(kept)
    assert moved != first, (
        "identity stayed the same although a weight changed: measurements of two models would "
        "share a key"
    )
    assert model.identity == first, "identity did not return after the weight was restored"
