"""What is compared: a target read from imagined and from real latents, and a discrepancy.

An interface is target x discrepancy x step rule. Risks of different interfaces never meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from dreamcheck.digest import digest
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.futures import Futures
from dreamcheck.models.protocol import Decode, Readout, WorldModel, plan_space

Discrepancy = Literal["mae", "mse"]
StepRule = Literal["mean", "final"]


class Target(Protocol):
    """Something readable from latents, with a unit.

    identity names everything that the numbers depend on beside the forecast itself: a latent
    target carries its encoder, a probe target its probe, so that risks of two encoders or two
    probes are different interfaces (law 7).
    """

    name: str
    unit: str
    identity: str

    def read(self, latents: Tensor) -> np.ndarray:
        """[B, K, *shape] -> float64 [B, K, M]."""
        ...

    def reference(self, latents: Tensor, futures: Futures) -> np.ndarray:
        """The real future, from its encoded frames or its pixels, [B, K, M]."""
        ...

    def of_states(self, states: np.ndarray) -> np.ndarray | None:
        """The same target straight from simulator states [B, K, S], where that makes sense."""
        ...


def _flat(latents: Tensor) -> Tensor:
    return latents.reshape(latents.shape[0] * latents.shape[1], *latents.shape[2:])


class StateTarget:
    """State read by a probe, on both sides: the probe's own bias cancels where it is constant."""

    name = "state_probe"

    def __init__(self, readout: Readout) -> None:
        self.readout = readout
        units = {c.unit for c in readout.columns}
        if len(units) != 1:
            raise UsageError(
                f"the readout mixes units {sorted(units)}: a mean over them has no unit. "
                "Choose the columns of one unit."
            )
        self.unit = units.pop()
        self.identity = digest({"target": self.name, "readout": readout.identity})

    def read(self, latents: Tensor) -> np.ndarray:
        """[B, K, *shape] -> [B, K, S] in the readout's unit."""
        out = self.readout.predict(_flat(latents))
        return out.reshape(latents.shape[0], latents.shape[1], -1)

    def reference(self, latents: Tensor, futures: Futures) -> np.ndarray:
        """The probe on the encoded real frames."""
        return self.read(latents)

    def of_states(self, states: np.ndarray) -> np.ndarray:
        """The true state itself, in the readout's own unit."""
        scaled = getattr(self.readout, "of_states", None)
        return states if scaled is None else scaled(states)


class LatentTarget:
    """The planner's own space; carries the encoder's identity."""

    name = "latent"
    unit = "latent units"

    def __init__(self, model: WorldModel) -> None:
        self.model = model
        self.identity = digest({"target": self.name, "encoder": model.identity})

    def read(self, latents: Tensor) -> np.ndarray:
        """[B, K, *shape] -> [B, K, P]."""
        with torch.no_grad():
            out = plan_space(self.model, _flat(latents))
        return out.double().numpy().reshape(latents.shape[0], latents.shape[1], -1)

    def reference(self, latents: Tensor, futures: Futures) -> np.ndarray:
        """The encoded real frames."""
        return self.read(latents)

    def of_states(self, states: np.ndarray) -> None:
        """No state has a latent without being rendered and encoded."""
        return None


class PixelTarget:
    """Decoded frames against real ones, on [0, 1]."""

    name = "pixels"
    unit = "grey levels / 255"

    def __init__(self, model: WorldModel) -> None:
        if not isinstance(model, Decode):
            raise Abstention(
                f"{type(model).__name__} has no `decode`: a pixel target needs decoded frames. "
                "Use the state_probe or latent target, or add `decode` to the model."
            )
        self.model = model
        self.identity = digest({"target": self.name, "size": model.conventions.image_size})

    def read(self, latents: Tensor) -> np.ndarray:
        """[B, K, *shape] -> [B, K, 3 * H * W] in [0, 1]."""
        assert isinstance(self.model, Decode)
        with torch.no_grad():
            frames = self.model.decode(_flat(latents))
        return (frames.double().numpy() / 255.0).reshape(latents.shape[0], latents.shape[1], -1)

    def reference(self, latents: Tensor, futures: Futures) -> np.ndarray:
        """The real frames themselves."""
        assert futures.frames is not None
        future = futures.frames[:, futures.horizons.history :]
        return future.reshape(*future.shape[:2], -1).astype(np.float64) / 255.0

    def of_states(self, states: np.ndarray) -> None:
        """No state has pixels without being rendered."""
        return None


def step_losses(
    predicted: np.ndarray, reference: np.ndarray, *, discrepancy: Discrepancy
) -> np.ndarray:
    """Loss of every forecast step: mean over the target's numbers of |error| or error squared.

    Args:
        predicted, reference: [B, K, M].

    Returns:
        [B, K], in the target's unit ("mae") or its square ("mse").
    """
    error = predicted - reference
    per_number = np.abs(error) if discrepancy == "mae" else error**2
    return per_number.mean(axis=2)


_REDUCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda steps: steps.mean(axis=1),
    "final": lambda steps: steps[:, -1],
}


def reduce_steps(steps: np.ndarray, *, rule: StepRule) -> np.ndarray:
    """[B, K] -> [B]: the mean over the forecast, or its final step."""
    return _REDUCE[rule](steps)


def loss_unit(unit: str, discrepancy: Discrepancy) -> str:
    """Unit of a loss, spelled out."""
    return unit if discrepancy == "mae" else f"({unit})²"
