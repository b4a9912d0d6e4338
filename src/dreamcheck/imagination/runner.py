"""Driving a model the one way we trust: evaluation mode, no gradients, canonical tiles (law 5).

A model call on a batch of three and the same call on a batch of three hundred can differ in the
last bits, because the matrix kernels change with the shape. Here every call has one of few
shapes: rows go through in tiles of a fixed size, the last one padded. A row's result then does not
depend on how many neighbours it had.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import (
    EncodeLevels,
    HasModule,
    Rollout,
    SharedRollouts,
    WorldModel,
)

MIN_TILE = 32
"""Fewest rows of a tile: from about five rows on, float32 CPU kernels give equal rows."""


class NotFinite(UsageError):
    """A model returned NaN or infinity."""


def numerics_profile(device: torch.device | str = "cpu", dtype: str = "float32") -> dict[str, Any]:
    """What bit-equality depends on: torch, device, dtype, threads, instruction set."""
    device = torch.device(device)
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else torch.backends.cpu.get_cpu_capability()
    )
    return {
        "torch": str(torch.__version__),
        "device": device.type,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "instruction_set": name,
    }


@contextlib.contextmanager
def frozen(model: WorldModel) -> Iterator[None]:
    """Evaluation mode and no gradients inside; mode and buffers as they were afterwards.

    Buffers are restored because some models update statistics even in evaluation mode.
    """
    module = model.module if isinstance(model, HasModule) else None
    if module is None:
        with torch.no_grad():
            yield
        return
    modes = {name: m.training for name, m in module.named_modules()}
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    try:
        module.eval()
        with torch.no_grad():
            yield
    finally:
        for name, m in module.named_modules():
            m.training = modes.get(name, m.training)
        with torch.no_grad():
            for name, b in module.named_buffers():
                if name in buffers and not torch.equal(b, buffers[name]):
                    b.copy_(buffers[name])


def _pad(x: Tensor, rows: int) -> Tensor:
    """Rows repeated from the first one, so that padding is ordinary data (no NaN, no zeros)."""
    missing = rows - x.shape[0]
    return x if missing == 0 else torch.cat([x, x[:1].expand(missing, *x.shape[1:])])


class Runner:
    """A model behind canonical tiles.

    Args:
        tile: rows per call, at least 32; a multiple of ``group`` rows is kept together by the
            caller's batching (one episode's candidates are never split).
        dtype: "float32", or "bfloat16" to screen under autocast where a check allows it.
    """

    def __init__(self, model: WorldModel, *, tile: int = 64, dtype: str = "float32") -> None:
        if tile < MIN_TILE:
            raise UsageError(
                f"tile = {tile} is under {MIN_TILE} rows; smaller batches change the last bits."
            )
        if dtype not in ("float32", "bfloat16"):
            raise UsageError(f"dtype = {dtype!r} is not one of float32, bfloat16.")
        self.model = model
        self.tile = tile
        self.dtype = dtype

    @property
    def profile(self) -> dict[str, Any]:
        """The numerics profile of this runner."""
        return {**numerics_profile(self.model.device, self.dtype), "tile": self.tile}

    def _tiles(self, call: Any, *columns: Tensor) -> Tensor:
        n = columns[0].shape[0]
        if n == 0:
            raise UsageError("a model was called with no rows.")
        out = []
        with frozen(self.model), self._autocast():
            start = 0
            while start < n:
                stop = min(start + self.tile, n)
                rows = [_pad(c[start:stop], self.tile).to(self.model.device) for c in columns]
                try:
                    result = call(*rows)
                except torch.OutOfMemoryError:
                    if self.tile // 2 < MIN_TILE:
                        raise
                    # Half the batch, from here on: the profile of later records says so.
                    self.tile //= 2
                    continue
                out.append(result[: stop - start].float().cpu())
                start = stop
        return torch.cat(out)

    def _autocast(self) -> Any:
        if self.dtype == "bfloat16":
            return torch.autocast(self.model.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def encode(
        self, pixels: np.ndarray, *, finite: bool = True, **observation: np.ndarray
    ) -> Tensor:
        """uint8 [N, 3, H, W] and further observation keys -> latents [N, *shape] on the CPU.

        Raises:
            NotFinite: a latent is NaN or infinite; with finite=False the caller looks for itself.
        """
        keys = list(observation)
        columns = [torch.from_numpy(np.ascontiguousarray(pixels))] + [
            torch.from_numpy(np.ascontiguousarray(observation[k])) for k in keys
        ]

        def call(px: Tensor, *rest: Tensor) -> Tensor:
            given: Mapping[str, Tensor] = {"pixels": px, **dict(zip(keys, rest, strict=True))}
            return self.model.encode(given)

        latents = self._tiles(call, *columns)
        return self.checked(latents, "encode") if finite else latents

    def encode_levels(self, frames: Tensor, **observation: np.ndarray) -> Tensor:
        """Frames [N, 3, s, s] on the 0..255 scale, perhaps outside it -> latents [N, *shape].

        uint8 frames go the way of ``encode``. Others go unclipped into a model that offers
        ``encode_levels``; for the rest they are rounded and clipped to 8 bits (``takes_levels``
        says which).
        """
        if frames.dtype != torch.uint8 and self.takes_levels:
            offered: Any = self.model
            return self.checked(self._tiles(offered.encode_levels, frames), "encode_levels")
        if frames.dtype != torch.uint8:
            frames = frames.round().clamp(0, 255).to(torch.uint8)
        return self.encode(frames.numpy(), finite=True, **observation)

    @property
    def takes_levels(self) -> bool:
        """Whether perturbed frames reach the model unclipped."""
        only_pixels = tuple(self.model.conventions.observation_keys) == ("pixels",)
        return only_pixels and isinstance(self.model, EncodeLevels)

    def rollouts(
        self, histories: Sequence[Tensor], blocks: np.ndarray, *, finite: bool = True
    ) -> list[Tensor]:
        """Forecasts of several histories under the same actions, in the same tiles.

        Equal histories give equal bits. The actions are embedded once for all of them, and what a
        model derives from them alone is computed once where it offers ``rollouts``.

        Args:
            histories: each [B, h, *shape], oldest first.
            blocks: float32 [B, h - 1 + K, A], as in ``rollout``.

        Returns:
            One [B, K, *shape] for each history.
        """
        shared = torch.from_numpy(np.ascontiguousarray(blocks))

        def call(a: Tensor, *z: Tensor) -> Tensor:
            actions = self.model.embed_actions(a)
            # A length the model cannot carry on from is refused by ``open_loop``, in words.
            if isinstance(self.model, SharedRollouts) and z[0].shape[1] >= self.model.history_min:
                return torch.stack(self.model.rollouts(z, actions), dim=1)
            return torch.stack([open_loop(self.model, h, actions) for h in z], dim=1)

        futures = self._tiles(call, shared, *histories)
        return list((self.checked(futures, "predict") if finite else futures).unbind(dim=1))

    def rollout(
        self,
        latents: Tensor,
        blocks: np.ndarray,
        *,
        row_seeds: Sequence[int] | None = None,
        finite: bool = True,
    ) -> Tensor:
        """Open-loop forecast.

        Args:
            latents: [B, h, *shape], the observed history, oldest first.
            blocks: float32 [B, h - 1 + K, A]; blocks[:, i] leaves latent i.

        Returns:
            [B, K, *shape]: the latents after the last observed one.
        """
        actions = torch.from_numpy(np.ascontiguousarray(blocks))

        def call(z: Tensor, a: Tensor) -> Tensor:
            return open_loop(self.model, z, self.model.embed_actions(a), row_seeds=row_seeds)

        futures = self._tiles(call, latents, actions)
        return self.checked(futures, "predict") if finite else futures

    def checked(self, values: Tensor, what: str) -> Tensor:
        """The values themselves, if all are finite.

        Raises:
            NotFinite: a row is not, named.
        """
        if not torch.isfinite(values).all():
            rows = (~torch.isfinite(values.flatten(1)).all(dim=1)).nonzero().flatten().tolist()
            raise NotFinite(
                f"{type(self.model).__name__}.{what} returned NaN or infinity in "
                f"{len(rows)} of {len(values)} rows (first: row {rows[0]}). Likely causes: "
                "actions in the wrong units, weights that did not load, an overflow in a lower "
                "precision. Check one row with `dreamcheck inspect`."
            )
        return values


def open_loop(
    model: WorldModel,
    latents: Tensor,
    actions: Tensor,
    *,
    row_seeds: Sequence[int] | None = None,
    generic: bool = False,
) -> Tensor:
    """K predictions, each joining the window and the oldest entry leaving it.

    Args:
        latents: [B, h, *shape] observed, history_min <= h.
        actions: [B, h - 1 + K, E] embedded blocks; actions[:, i] leaves latent i.
        generic: use ``predict`` even where the model has a faster ``rollout``.

    Returns:
        [B, K, *shape].

    Source: spec/consistency.md section 1.
    """
    h = latents.shape[1]
    k = actions.shape[1] - h + 1
    if h < model.history_min:
        raise UsageError(
            f"the history holds {h} latent(s) but this model needs at least {model.history_min}."
        )
    if k < 1:
        raise UsageError(
            f"{actions.shape[1]} action blocks cannot carry {h} observed latents one step on; "
            "give the block leaving each observed latent, then those of the future."
        )
    if isinstance(model, Rollout) and not generic and row_seeds is None:
        return model.rollout(latents, actions)
    window = latents[:, -model.history_max :]
    first = h - window.shape[1]
    out = []
    for _ in range(k):
        n = window.shape[1]
        end = first + n
        acts = actions[:, first:end]
        nxt = (
            model.predict(window, acts)
            if row_seeds is None
            else model.predict(window, acts, row_seeds=row_seeds)
        )
        out.append(nxt)
        window = torch.cat([window, nxt.unsqueeze(1)], dim=1)
        if window.shape[1] > model.history_max:
            window = window[:, 1:]
            first += 1
    return torch.stack(out, dim=1)
