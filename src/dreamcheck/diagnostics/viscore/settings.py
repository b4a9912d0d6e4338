"""How to score: what is kept, which search, how wide a latent may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from dreamcheck.diagnostics.viscore import influence as inf
from dreamcheck.diagnostics.viscore.record import CALIBRATED_AT
from dreamcheck.diagnostics.viscore.search import Noise, ProbeName
from dreamcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """How to score.

    include, exclude: the factor set (names, initials, or a string of initials).
    tau: nats at which influence saturates; another value is another scale.
    search: the sobriety probe; see PROBE_OF_PLANNER.
    noise: "numpy" (keyed by the cell id, the same on every device), "torch" (reproduction of the
        released code on the model's device), or a Noise.
    reference: apply the released rule at any latent width, labelled as such.
    projection: 192 to measure wider latents through a fixed random projection, labelled as such.
    baselines: measure the baselines too.
    batch_rows: predictor rows per call.
    fast: search under bfloat16 and check it; the plans that decide the signs are scored in float32.
    generic: never use the model's own ``rollout``.
    memory_bytes: bound on the low-rank form for latents wider than 4096.
    """

    include: str | tuple[str, ...] | None = None
    exclude: str | tuple[str, ...] | None = None
    tau: float = inf.TAU_NATS
    search: ProbeName = "mini-cem"
    noise: Literal["numpy", "torch"] | Noise = "numpy"
    reference: bool = False
    projection: int | None = None
    baselines: bool = True
    batch_rows: int = 1024
    fast: bool = False
    generic: bool = False
    memory_bytes: int = inf.MEMORY_BYTES


def fixed_projection(width: int, target: int = CALIBRATED_AT) -> torch.Tensor:
    """Orthonormal columns [width, target] of a fixed Gaussian draw: the same for every model.

    Raises:
        UsageError: the latent is not wider than the target.
    """
    if width <= target:
        raise UsageError(
            f"latents of {width} numbers cannot be projected to {target}: a projection only "
            "narrows. Leave influence out (exclude='I'), or use the reference rule."
        )
    draw = np.random.default_rng([0, width, target]).standard_normal((width, target))
    q, r = np.linalg.qr(draw)
    # The sign of a QR column depends on the LAPACK build; the diagonal of R fixes it.
    return torch.from_numpy((q * np.sign(np.diag(r))).astype(np.float32))
