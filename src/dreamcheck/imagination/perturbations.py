"""Visual perturbations of what a model sees: one kind, one severity, draws by identity.

Frames are on the 0..255 display scale at the side the model reads, that is after resizing.
Severities of intensities are in units of [0, 1] pixels. At the identity severity the frames come
back untouched, the same bits.

Source: consistency.md section 4 (Gaussian, blur, resize); the others are what a camera does.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.streams import stream

On = Literal["history", "camera"]
"""What is perturbed: the observed history, or every image, the goal's included."""

FIRST_DRAW = 9101 + 1009
DRAW_STEP = 7919
MID_GREY = 127.5


def draw_seed(draw: int) -> int:
    """Seed of draw m, as released: 9101 + 1009 + 7919 m."""
    return FIRST_DRAW + DRAW_STEP * draw


Rows = Sequence[np.random.Generator]
Apply = Callable[[Tensor, float, Rows], Tensor]
"""(levels float32 [N, 3, s, s], severity, one generator per frame) -> float32 [N, 3, s, s]."""


@dataclass(frozen=True)
class Kind:
    """One kind of perturbation.

    severity: what the number means, with its unit. identity: the severity that changes nothing.
    low, high: severities that make sense, both included. steps: the severities of a default sweep.
    randomness: "frame" draws anew for every frame, "scene" once for all frames of one scene (dirt
        on a lens stays where it is), "none" draws nothing, so that all draws are alike.
    """

    name: str
    severity: str
    identity: float
    low: float
    high: float
    steps: tuple[float, ...]
    randomness: Literal["frame", "scene", "none"]
    apply: Apply

    def checked(self, severity: float) -> float:
        """The severity, if it makes sense.

        Raises:
            UsageError: not finite, or out of range.
        """
        if not (math.isfinite(severity) and self.low <= severity <= self.high):
            raise UsageError(
                f"severity {severity:g} of {self.name!r} is outside [{self.low:g}, {self.high:g}]: "
                f"it is {self.severity}, and {self.identity:g} changes nothing."
            )
        return float(severity)


def _gaussian(levels: Tensor, sigma: float, rows: Rows) -> Tensor:
    noise = np.stack([r.standard_normal(levels.shape[1:], dtype=np.float32) for r in rows])
    # No clipping: the noise stays N(0, sigma^2) at black and at white.
    return levels + 255.0 * sigma * torch.from_numpy(noise)


def blur_kernel(size: int) -> tuple[int, float, Tensor]:
    """Odd kernel size, its spread in px, and the normalised weights [size].

    An even size becomes the next odd one; spread 0.3((k - 1)/2 - 1) + 0.8.
    """
    k = size if size % 2 else size + 1
    spread = 0.3 * ((k - 1) / 2 - 1) + 0.8
    at = torch.arange(k, dtype=torch.float64) - (k - 1) / 2
    weights = torch.exp(-0.5 * (at / spread) ** 2)
    return k, spread, (weights / weights.sum()).float()


def _blur(levels: Tensor, size: float, rows: Rows) -> Tensor:
    k, _, weights = blur_kernel(round(size))
    reach = k // 2
    if reach >= levels.shape[-1]:
        raise UsageError(
            f"a blur of {k} px needs a border of {reach} px, which a frame of "
            f"{levels.shape[-1]} px cannot reflect; use a smaller kernel."
        )
    channels = levels.shape[1]
    padded = F.pad(levels, (reach,) * 4, mode="reflect")
    across = F.conv2d(padded, weights.expand(channels, 1, 1, k), groups=channels)
    return F.conv2d(across, weights.view(k, 1).expand(channels, 1, k, 1), groups=channels)


def _resize(levels: Tensor, ratio: float, rows: Rows) -> Tensor:
    height, width = levels.shape[-2:]
    small = max(1, round(ratio * height)), max(1, round(ratio * width))
    down = F.interpolate(levels, size=small, mode="bilinear", align_corners=False, antialias=False)
    return F.interpolate(
        down, size=(height, width), mode="bilinear", align_corners=False, antialias=False
    )


def _brightness(levels: Tensor, shift: float, rows: Rows) -> Tensor:
    return (levels + 255.0 * shift).clamp(0, 255)


def _contrast(levels: Tensor, factor: float, rows: Rows) -> Tensor:
    return ((levels - MID_GREY) * factor + MID_GREY).clamp(0, 255)


def _colour(levels: Tensor, size: float, rows: Rows) -> Tensor:
    casts = []
    for r in rows:
        cast = r.standard_normal(3)
        cast -= cast.mean()
        casts.append(cast / max(np.abs(cast).max(), 1e-12))
    offsets = torch.from_numpy(np.stack(casts).astype(np.float32))
    return (levels + 255.0 * size * offsets[:, :, None, None]).clamp(0, 255)


def _occlusion(levels: Tensor, share: float, rows: Rows) -> Tensor:
    side = levels.shape[-1]
    width = round(share * side)
    out = levels.clone()
    for i, r in enumerate(rows):
        top, left = r.integers(0, side - width + 1, size=2)
        out[i, :, top : top + width, left : left + width] = MID_GREY
    return out


def _jpeg(levels: Tensor, quality: float, rows: Rows) -> Tensor:
    from PIL import Image

    out = []
    for frame in levels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy():
        held = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(frame)).save(held, "JPEG", quality=round(quality))
        out.append(np.asarray(Image.open(held).convert("RGB")))
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2).float()


KINDS: Mapping[str, Kind] = {
    k.name: k
    for k in (
        Kind("gaussian", "the noise's standard deviation on [0, 1] pixels, not clipped",
             0.0, 0.0, 1.0, (0.02, 0.05, 0.08), "frame", _gaussian),
        Kind("blur", "the Gaussian kernel's width in px of the model's frame",
             1.0, 1.0, 101.0, (3.0, 7.0, 15.0), "none", _blur),
        Kind("resize", "the side kept when scaled down and back up, as a share",
             1.0, 0.05, 1.0, (0.75, 0.5, 0.25), "none", _resize),
        Kind("brightness", "what is added to [0, 1] pixels, then clipped",
             0.0, -1.0, 1.0, (0.05, 0.1, 0.2), "none", _brightness),
        Kind("contrast", "the factor on differences from mid-grey, then clipped",
             1.0, 0.0, 4.0, (0.9, 0.75, 0.5), "none", _contrast),
        Kind("colour", "the largest channel's offset of a random colour cast on [0, 1] pixels",
             0.0, 0.0, 1.0, (0.05, 0.1, 0.2), "scene", _colour),
        Kind("occlusion", "the side of a grey square at a random place, as a share of the frame's",
             0.0, 0.0, 1.0, (0.1, 0.2, 0.3), "scene", _occlusion),
        Kind("jpeg", "the JPEG quality; 100 stands for frames left alone",
             100.0, 1.0, 100.0, (75.0, 50.0, 25.0), "none", _jpeg),
    )
}  # fmt: skip
"""The kinds there are, by name."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """One kind at one severity.

    on: "history" perturbs what a model has observed and leaves the goal image clean, as in the
        paper; "camera" perturbs the goal image too.
    draw: which of the independent draws, from 0.
    """

    name: str
    severity: float
    on: On = "history"
    draw: int = 0

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise UsageError(
                f"there is no perturbation {self.name!r}; there are {', '.join(KINDS)}."
            )
        if self.on not in ("history", "camera"):
            raise UsageError(f"a perturbation on {self.on!r} is neither on history nor camera.")
        if self.draw < 0:
            raise UsageError(f"draw {self.draw} of a perturbation: draws count from 0.")
        self.kind.checked(self.severity)

    @property
    def kind(self) -> Kind:
        """What it does."""
        return KINDS[self.name]

    @property
    def is_identity(self) -> bool:
        """Whether it leaves every frame as it is."""
        return self.severity == self.kind.identity

    @property
    def label(self) -> str:
        """Name, severity and what it acts on, for tables."""
        where = "history" if self.on == "history" else "history and goal"
        return f"{self.name} {self.severity:g} on {where}"

    def apply(self, frames: Tensor, *, scenes: Sequence[str], moments: Sequence[str]) -> Tensor:
        """The perturbed frames, float32 [N, 3, s, s] on the 0..255 scale, possibly outside it.

        The identity severity gives back ``frames`` themselves. A frame's random numbers belong to
        its draw, scene and moment: neither to its batch-mates nor to the severity, so that a sweep
        scales one and the same noise.

        Args:
            frames: uint8 [N, 3, s, s] at the side the model reads.
            scenes: what each frame shows, e.g. "episode:base".
            moments: which moment of its scene each frame is.
        """
        if self.is_identity:
            return frames
        n = len(frames)
        if frames.ndim != 4 or frames.shape[1] != 3:
            raise UsageError(
                f"frames of shape {tuple(frames.shape)} cannot be perturbed: [N, 3, height, width], "
                "RGB, is needed."
            )
        if len(scenes) != n or len(moments) != n:
            raise UsageError(
                f"{n} frames came with {len(scenes)} scenes and {len(moments)} moments; each frame "
                "needs one of both, for its random numbers."
            )
        seed = draw_seed(self.draw)
        fresh = self.kind.randomness == "frame"
        rows = [
            stream(seed, f"perturbation/{self.name}", f"{s}/{m}" if fresh else s)
            for s, m in zip(scenes, moments, strict=True)
        ]
        return self.kind.apply(frames.float(), self.severity, rows)
