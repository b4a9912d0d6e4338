"""Prediction risk of inputs, with everything that must stand beside it.

Beside every loss: the frozen-world loss of the same row, the environment's own sensitivity, the
readout's error and disagreement, the environment's jumps, and the distance from training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.digest import Value
from dreamcheck.errors import Abstention
from dreamcheck.imagination.futures import Futures, Horizons, collect, replay
from dreamcheck.imagination.runner import Runner
from dreamcheck.imagination.support import Support
from dreamcheck.imagination.targets import (
    Discrepancy,
    StateTarget,
    StepRule,
    Target,
    reduce_steps,
    step_losses,
)
from dreamcheck.models.protocol import Readout
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Policy, Restartable, Task

ALGORITHM = "risk-1"
"""Version of this file's arithmetic; part of every measurement's key."""


@dataclass(frozen=True)
class Row:
    """One input on one environment seed. Losses in the interface's unit.

    loss, steps: as the interface says; steps has one number per forecast step.
    frozen, frozen_steps: the same for the forecast "nothing changes".
    floor: discrepancy between the recorded future and futures from starts moved by the
        readout's error; None with ``floor_reason`` where it cannot be measured.
    readout_error: mean |probe(encoded real future) - true state|; None without a state readout.
    true_steps: mean |probe(imagined) - true state| per step; None likewise.
    disagreement: mean |probe A - probe B| on imagined latents; None likewise, and with one probe.
    discontinuity: sum over the forecast of the environment's jumps, in the task's unit.
    contact, path, progress: sums over the forecast of the task's measures, in its units.
    support_state, support_latent: percentiles at the last observed frame; None without a
        reference.
    support_imagined: percentile of every imagined latent; empty without a reference.
    nearest: index of the reference frame nearest to each imagined latent; empty likewise.
    failure: None, or what kept the loss from existing ("nan: ...", "crash: ...").
    """

    loss: float | None
    steps: tuple[float, ...]
    frozen: float | None
    frozen_steps: tuple[float, ...]
    floor: float | None
    floor_reason: str | None
    readout_error: float | None
    true_steps: tuple[float, ...] | None
    disagreement: float | None
    discontinuity: float
    contact: float
    path: float
    progress: float
    support_state: float | None
    support_latent: float | None
    support_imagined: tuple[float, ...]
    nearest: tuple[int, ...]
    failure: str | None

    def payload(self) -> dict[str, Any]:
        """Plain builtins, for a measurement record."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def failed(cls, reason: str) -> Row:
        """A row without a loss: neither a risk nor a gap."""
        return cls(
            loss=None, steps=(), frozen=None, frozen_steps=(), floor=None, floor_reason=reason,
            readout_error=None, true_steps=None, disagreement=None, discontinuity=0.0,
            contact=0.0, path=0.0, progress=0.0, support_state=None, support_latent=None,
            support_imagined=(), nearest=(), failure=reason,
        )  # fmt: skip


@dataclass(frozen=True)
class Imagined:
    """Both sides of a batch, kept for film strips: latents [B, ...] and the recorded futures."""

    futures: Futures
    real: Tensor
    imagined: Tensor


@dataclass(frozen=True)
class RiskProbe:
    """Everything that turns (input, seed) into a loss.

    floor_samples: perturbed starts per row for the sensitivity floor; 0 skips it.
    """

    runner: Runner
    task: Task
    policy: Policy
    target: Target
    horizons: Horizons
    discrepancy: Discrepancy = "mae"
    step_rule: StepRule = "mean"
    support: Support | None = None
    readout: Readout | None = None
    root_seed: int = 0
    floor_samples: int = 4

    def imagine(
        self, inputs: Sequence[Mapping[str, Value]] | None, seeds: Sequence[int]
    ) -> Imagined:
        """Matched futures of a batch: real frames encoded, and the open-loop forecast."""
        conventions = self.runner.model.conventions
        futures = collect(
            self.task,
            self.policy,
            inputs,
            seeds,
            horizons=self.horizons,
            root_seed=self.root_seed,
            image_size=self.render_size(),
        )
        assert futures.frames is not None
        b, n = futures.frames.shape[:2]
        flat = futures.frames.reshape(b * n, *futures.frames.shape[2:])
        real = self.runner.encode(flat, finite=False)
        real = real.reshape(b, n, *real.shape[1:])
        blocks = conventions.blocks(futures.actions)
        imagined = self.runner.rollout(real[:, : self.horizons.history], blocks, finite=False)
        return Imagined(futures=futures, real=real, imagined=imagined)

    def render_size(self) -> int:
        """The model's own size where the task renders it, else the task's largest."""
        size = self.runner.model.conventions.image_size
        return size if size in self.task.sizes else max(self.task.sizes)

    def rows(self, inputs: Sequence[Mapping[str, Value]] | None, seeds: Sequence[int]) -> list[Row]:
        """One Row per (input, seed) pair, in order."""
        return self.rows_of(self.imagine(inputs, seeds), inputs, seeds)

    def rows_of(
        self,
        batch: Imagined,
        inputs: Sequence[Mapping[str, Value]] | None,
        seeds: Sequence[int],
    ) -> list[Row]:
        """Rows of a batch that was already imagined."""
        h = self.horizons
        futures, real, imagined = batch.futures, batch.real, batch.imagined
        n = len(seeds)
        good = (
            torch.isfinite(real.flatten(1)).all(dim=1)
            & torch.isfinite(imagined.flatten(1)).all(dim=1)
        ).numpy()
        # Rows that are not finite are read as zeros and reported as failures; they touch nobody.
        mask = torch.from_numpy(good).reshape(n, *([1] * (real.ndim - 1)))
        real = torch.where(mask, real, torch.zeros(()))
        imagined = torch.where(mask, imagined, torch.zeros(()))
        future = real[:, h.history :]
        last = real[:, h.history - 1 : h.history].expand_as(future)
        reference = self.target.reference(future, futures)
        steps = self._steps(self.target.read(imagined), reference)
        frozen = self._steps(self._frozen(last, futures), reference)
        loss, frozen_loss = self._reduce(steps), self._reduce(frozen)
        floor, floor_reason = self._floor(futures, seeds)
        readout = self.readings(imagined, future, futures)
        support = self._support(real, imagined, futures, inputs)
        out = []
        for i in range(n):
            if not good[i]:
                out.append(Row.failed("nan: the model returned NaN or infinity"))
                continue
            out.append(
                Row(
                    loss=float(loss[i]),
                    steps=tuple(map(float, steps[i])),
                    frozen=float(frozen_loss[i]),
                    frozen_steps=tuple(map(float, frozen[i])),
                    floor=None if floor is None else float(floor[i]),
                    floor_reason=floor_reason,
                    discontinuity=float(futures.forecast_sum("discontinuity")[i]),
                    contact=float(futures.forecast_sum("contact")[i]),
                    path=float(futures.forecast_sum("path")[i]),
                    progress=float(futures.forecast_sum("progress")[i]),
                    failure=None,
                    **{name: values[i] for name, values in readout.items()},
                    **{name: values[i] for name, values in support.items()},
                )
            )
        return out

    def _steps(self, predicted: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return step_losses(predicted, reference, discrepancy=self.discrepancy)

    def _reduce(self, steps: np.ndarray) -> np.ndarray:
        return reduce_steps(steps, rule=self.step_rule)

    def _frozen(self, last: Tensor, futures: Futures) -> np.ndarray:
        if self.target.name == "pixels":
            assert futures.frames is not None
            h = self.horizons
            frame = futures.frames[:, h.history - 1].reshape(len(futures.frames), 1, -1) / 255.0
            return np.repeat(frame, h.forecast, axis=1)
        return self.target.read(last)

    def _floor(
        self, futures: Futures, seeds: Sequence[int]
    ) -> tuple[np.ndarray | None, str | None]:
        """Mean discrepancy to futures from starts moved by the readout's error."""
        h = self.horizons
        if self.floor_samples == 0:
            return None, "switched off"
        if self.readout is None:
            return None, "no state readout says how far to move the start"
        truth = self.target.of_states(futures.frame_states[:, h.history :])
        if truth is None:
            return None, f"a {self.target.name} target of moved starts needs new frames"
        if not isinstance(self.task, Restartable):
            return None, f"{self.task.name} cannot be restarted from a given state exactly"
        n, p = len(seeds), self.floor_samples
        start = futures.states[:, h.observed_steps]
        sigma = np.asarray(self.readout.heldout_rmse)
        moves = np.stack(
            [
                stream(self.root_seed, "floor", int(s)).standard_normal((p, len(sigma)))
                for s in seeds
            ]
        )
        index = np.repeat(np.arange(n), p)
        branched = self.task.branch(futures.at_history, index)
        moved = self.task.with_state(branched, (start[:, None] + moves * sigma).reshape(n * p, -1))
        actions = np.repeat(futures.actions[:, h.observed_steps :], p, axis=0)
        again = replay(self.task, moved, actions)[:, h.frameskip :: h.frameskip]
        read = self.target.of_states(again)
        assert read is not None
        steps = self._steps(read, np.repeat(truth, p, axis=0))
        return self._reduce(steps).reshape(n, p).mean(axis=1), None

    def readings(
        self, imagined: Tensor, future: Tensor, futures: Futures
    ) -> dict[str, Sequence[Any]]:
        """What the readout says of both sides, per row: Row's fields of these names."""
        n, h = len(imagined), self.horizons
        if self.readout is None:
            none = [None] * n
            return {"readout_error": none, "true_steps": none, "disagreement": none}
        target = self.target if isinstance(self.target, StateTarget) else StateTarget(self.readout)
        truth = target.of_states(futures.frame_states[:, h.history :])
        own = np.abs(target.read(future) - truth).mean(axis=(1, 2))
        true_steps = np.abs(target.read(imagined) - truth).mean(axis=2)
        flat = imagined.reshape(-1, *imagined.shape[2:])
        try:
            apart = self.readout.disagreement(flat).reshape(n, -1).mean(axis=1).tolist()
        except Abstention:  # a single probe has nothing to disagree with
            apart = [None] * n
        return {
            "readout_error": [float(v) for v in own],
            "true_steps": [tuple(map(float, v)) for v in true_steps],
            "disagreement": apart,
        }

    def _support(
        self,
        real: Tensor,
        imagined: Tensor,
        futures: Futures,
        inputs: Sequence[Mapping[str, Value]] | None,
    ) -> dict[str, Sequence[Any]]:
        n, h = len(real), self.horizons
        if self.support is None:
            return {
                "support_state": [None] * n,
                "support_latent": [None] * n,
                "support_imagined": [()] * n,
                "nearest": [()] * n,
            }
        state = self.support.state_space.percentile(futures.states[:, h.observed_steps])
        for i, values in enumerate(inputs or ()):
            if self.support.changed_constants(values):
                state[i] = 100.0
        latent = self.support.latent_space.percentile(real[:, h.history - 1].flatten(1).numpy())
        share, index = self.support.latent_space.query(imagined.reshape(n * h.forecast, -1).numpy())
        return {
            "support_state": [float(v) for v in state],
            "support_latent": [float(v) for v in latent],
            "support_imagined": [tuple(map(float, v)) for v in share.reshape(n, -1)],
            "nearest": [tuple(map(int, v)) for v in index.reshape(n, -1)],
        }
