"""A LeWM network driven by its conventions: what the rest of Dreamcheck calls a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import CheckpointError, UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMNet
from dreamcheck.models.protocol import LatentSpec


def resize_frames(pixels: Tensor, *, size: int, rule: str) -> Tensor:
    """uint8 frames [N, 3, H, W] at the side a model was trained on, uint8 [N, 3, size, size].

    "area" averages whole squares of source pixels and rounds half to even, so that a frame drawn
    at ``size`` and the same frame drawn larger become the same input.

    Raises:
        UsageError: the frame is not square, or the rule cannot bring it to ``size``.
    """
    height, width = pixels.shape[-2:]
    if height == width == size:
        return pixels
    if rule == "area":
        if height != width or height % size:
            raise UsageError(
                f"frames are {height} x {width} px but this model reads {size} px frames made by "
                f"area average, which needs a whole multiple of {size}. Give square frames of "
                f"{size} px or a multiple."
            )
        return F.avg_pool2d(pixels.float(), height // size).round().to(torch.uint8)
    if rule == "bilinear":
        resized = F.interpolate(
            pixels.float(), size=(size, size), mode="bilinear", antialias=True, align_corners=False
        )
        return resized.round().clamp(0, 255).to(torch.uint8)
    raise UsageError(
        f"frames are {height} x {width} px but this model reads exactly {size} x {size} px "
        "(its conventions say resize = none). Resize the frames as in its training."
    )


def normalise_frames(pixels: Tensor, conventions: Conventions) -> Tensor:
    """uint8 [..., 3, s, s] -> float32 (pixel * scale - mean) / std per channel."""
    mean = torch.tensor(conventions.pixel_mean, device=pixels.device)[:, None, None]
    std = torch.tensor(conventions.pixel_std, device=pixels.device)[:, None, None]
    # One multiply and one add per pixel; the constants are folded.
    return pixels.float() * (conventions.pixel_scale / std) - mean / std


def module_digest(module: torch.nn.Module) -> str:
    """SHA-256 over every parameter and buffer: name, dtype, shape, bytes."""
    arrays = {}
    for name, tensor in module.state_dict().items():
        value = tensor.detach().cpu()
        arrays[name] = value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    return digest_arrays(arrays)


class LeWM:
    """A frozen LeWM under test; satisfies ``WorldModel``, ``Rollout`` and ``HasModule``.

    Args:
        module: the network; put into evaluation mode here.
        conventions: how data become its inputs; sizes must agree with the network's.
        device: where it runs.
    """

    history_min = 1

    def __init__(
        self,
        module: LeWMNet,
        conventions: Conventions,
        *,
        family: str = "lewm",
        device: torch.device | str = "cpu",
    ) -> None:
        config = module.config
        for what, in_network, declared in (
            ("image_size", config.image_size, conventions.image_size),
            ("action width", config.action_width, conventions.action_width),
            ("history", config.history, conventions.history),
        ):
            if in_network != declared:
                raise CheckpointError(
                    f"the network's {what} is {in_network} but its conventions say {declared}. "
                    "One of them belongs to another model; conventions travel with the weights."
                )
        self.device = torch.device(device)
        self.module = module.to(self.device).eval()
        self.conventions = conventions
        self.family = family
        self.latent = LatentSpec(shape=(config.latent_width,))
        self.history_max = config.history
        self._identity: tuple[tuple[int, ...], str] | None = None

    @property
    def identity(self) -> str:
        """Digest of parameters, buffers, architecture and conventions.

        Computed again whenever torch counts a change to any tensor (edits through ``.data`` are
        invisible to it: call ``forget_identity`` after those).
        """
        versions = tuple(
            number
            for tensor in (*self.module.parameters(), *self.module.buffers())
            for number in (tensor.data_ptr(), tensor._version)
        )
        if self._identity is None or self._identity[0] != versions:
            value = digest(
                {
                    "family": self.family,
                    "architecture": self.module.config.model_dump(),
                    "conventions": self.conventions.digest,
                    "tensors": module_digest(self.module),
                }
            )
            self._identity = (versions, value)
        return self._identity[1]

    def forget_identity(self) -> None:
        """Compute the identity afresh when it is next asked for."""
        self._identity = None

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """{"pixels": uint8 [N, 3, H, W] RGB} -> float32 [N, latent width]."""
        pixels = observation["pixels"]
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
            raise UsageError(
                f"pixels are {pixels.dtype} {tuple(pixels.shape)}; expected uint8 [N, 3, H, W] in "
                "RGB. Already normalised frames are refused: the model normalises by its own rule."
            )
        pixels = resize_frames(
            pixels, size=self.conventions.image_size, rule=self.conventions.resize
        )
        return self.module.encode(normalise_frames(pixels, self.conventions)).float()

    def encode_levels(self, frames: Tensor) -> Tensor:
        """float32 [N, 3, s, s] RGB on the 0..255 scale, not clipped -> [N, latent width]."""
        side = self.conventions.image_size
        if not frames.is_floating_point() or frames.shape[1:] != (3, side, side):
            raise UsageError(
                f"levels are {frames.dtype} {tuple(frames.shape)}; expected float "
                f"[N, 3, {side}, {side}] on the 0..255 scale."
            )
        return self.module.encode(normalise_frames(frames, self.conventions)).float()

    def embed_actions(self, blocks: Tensor) -> Tensor:
        """[B, T, A] model-ready blocks -> [B, T, E]."""
        if blocks.ndim != 3 or blocks.shape[2] != self.conventions.action_width:
            raise UsageError(
                f"action blocks have shape {tuple(blocks.shape)}; this model reads "
                f"[B, T, {self.conventions.action_width}]. Make them with "
                "`conventions.blocks(raw_actions)`."
            )
        return self.module.embed_actions(blocks)

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        """[B, h, D], [B, h, E], actions[:, i] leaving latent i -> the next latent [B, D].

        Deterministic: row_seeds change nothing.
        """
        h = latents.shape[1]
        if not self.history_min <= h <= self.history_max or actions.shape[1] != h:
            raise UsageError(
                f"{h} latents came with {actions.shape[1]} action blocks; this model reads "
                f"{self.history_min} to {self.history_max} latents and one block for each."
            )
        return self.module.predict_last(latents, actions).float()

    def rollout(self, latents: Tensor, actions: Tensor) -> Tensor:
        """[B, h, D], [B, h - 1 + K, E] -> K predicted latents [B, K, D].

        Every block's modulation is computed once instead of at each step it is in the window.
        """
        return self.rollouts([latents], actions)[0]

    def rollouts(self, histories: Sequence[Tensor], actions: Tensor) -> list[Tensor]:
        """``rollout`` of histories of one length under the same actions, each [B, K, D].

        The modulations, which actions alone decide, are computed once for all of them.
        """
        h, total = histories[0].shape[1], actions.shape[1]
        k = total - h + 1
        if h < 1 or k < 1:
            raise UsageError(
                f"{total} action blocks cannot carry {h} observed latents one step on; give the "
                "block leaving each observed latent, then those of the future."
            )
        modulations = self.module.predictor.modulations(actions)
        out = []
        for latents in histories:
            track = latents.new_empty(latents.shape[0], h + k, latents.shape[2])
            track[:, :h] = latents
            for step in range(k):
                end = h + step
                start = max(0, end - self.history_max)
                track[:, end] = self.module.predict_last(
                    track[:, start:end], modulations=[m[:, start:end] for m in modulations]
                )
            out.append(track[:, h:].float())
        return out


def fit_action_statistics(
    actions: Sequence[np.ndarray],
) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Mean, population deviation per raw dimension, and how many NaN rows were left out.

    A deviation under 1e-8 becomes 1, so that a constant dimension is only centred.

    Args:
        actions: raw actions [L, A], one array per episode.

    Source: spec/protocol.md section 3.1.
    """
    rows = np.concatenate([np.asarray(a, dtype=np.float64) for a in actions])
    usable = ~np.isnan(rows).any(axis=1)
    if not usable.any():
        raise UsageError("every action row holds a NaN; there is nothing to standardise with.")
    mean = rows[usable].mean(axis=0)
    std = rows[usable].std(axis=0)
    std = np.where(std < 1e-8, 1.0, std)
    return tuple(mean.tolist()), tuple(std.tolist()), int((~usable).sum())
