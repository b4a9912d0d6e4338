"""The training loop: plain torch, resumable to the bit, every random number keyed by its step."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dreamcheck.data.windows import Clips, Windows
from dreamcheck.errors import EvidenceError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMNet
from dreamcheck.models.lewm_model import LeWM, normalise_frames
from dreamcheck.streams import stream
from dreamcheck.training.augment import noisy
from dreamcheck.training.losses import prediction_loss, sigreg, unit_directions, visreg
from dreamcheck.training.progress import Progress, Silent
from dreamcheck.training.recipe import ObjectiveRecipe, OptimiserRecipe, Recipe


@dataclass(frozen=True)
class Batch:
    """Model-ready clips: frames float32 [B, n, 3, s, s], blocks float32 [B, n - 1, A]."""

    frames: Tensor
    blocks: Tensor


def to_batch(
    clips: Clips, conventions: Conventions, *, device: torch.device | str = "cpu"
) -> Batch:
    """Clips normalised by the conventions; their frames must already have the model's side."""
    assert clips.pixels is not None
    frames = normalise_frames(torch.from_numpy(clips.pixels).to(device), conventions)
    return Batch(frames, torch.from_numpy(conventions.blocks(clips.actions)).to(device))


@dataclass(frozen=True)
class Losses:
    """One batch's loss and its two parts, scalars."""

    loss: Tensor
    prediction: Tensor
    regulariser: Tensor


def batch_losses(
    net: LeWMNet, batch: Batch, objective: ObjectiveRecipe, directions: Tensor
) -> Losses:
    """Teacher-forced prediction loss + weight x regulariser over all frames.

    Source: spec/viscore.md section 15.
    """
    latents = net.encode(batch.frames)
    predicted = net(latents[:, :-1], net.embed_actions(batch.blocks))
    with torch.autocast(latents.device.type, enabled=False):
        prediction = prediction_loss(predicted, latents)
        time_first = latents.transpose(0, 1)
        if objective.regulariser == "sigreg":
            regulariser = sigreg(time_first, directions, knots=objective.knots)
        else:
            regulariser = visreg(time_first, directions).loss
    return Losses(prediction + objective.weight * regulariser, prediction, regulariser)


def draw_directions(width: int, count: int, *, seed: int, role: str, identity: int) -> Tensor:
    """Random unit directions [width, count], the same for one seed, role and identity."""
    raw = stream(seed, role, identity).standard_normal((width, count)).astype(np.float32)
    return unit_directions(torch.from_numpy(raw))


def cosine_rate(step: int, *, steps: int, peak: float, warmup: float) -> float:
    """Rate of 0-based step: linear up over the warm-up's share, cosine to 0 at the end."""
    warm = max(1, round(warmup * steps))
    if step < warm:
        return peak * (step + 1) / warm
    along = (step + 1 - warm) / max(1, steps - warm)
    return peak * 0.5 * (1 + math.cos(math.pi * along))


def learning_rate(step: int, recipe: OptimiserRecipe) -> float:
    """The recipe's rate at a 0-based step."""
    return cosine_rate(step, steps=recipe.steps, peak=recipe.learning_rate, warmup=recipe.warmup)


def autocast_dtype(precision: str, device: torch.device | str = "cpu") -> torch.dtype | None:
    """bfloat16 where asked for, or where "auto" finds it native; None is float32."""
    if precision == "float32":
        return None
    if precision == "bfloat16":
        return torch.bfloat16
    if torch.device(device).type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if native_bfloat16() else None


def native_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself (AVX512-BF16 or AMX)."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def autocast(dtype: torch.dtype | None, device: torch.device) -> Any:
    """Autocast to the dtype; nothing when it is None."""
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def torch_seed(seed: int, role: str, identity: int) -> int:
    """A seed for torch's generator, keyed like every other stream."""
    return int(stream(seed, role, identity).integers(2**62))


def new_network(recipe: Recipe) -> LeWMNet:
    """The recipe's network with its seed's initial weights; torch's own state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(recipe.seed, "initial weights", 0))
        return LeWMNet(recipe.model)


class BatchOrder:
    """Clip numbers of any step: epochs of keyed permutations, the last partial batch dropped."""

    def __init__(self, num_clips: int, batch: int, *, seed: int) -> None:
        if num_clips < batch:
            raise ValueError(f"{num_clips} clips do not fill one batch of {batch}.")
        self._num, self._batch, self._seed = num_clips, batch, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in one epoch."""
        return self._num // self._batch

    def __call__(self, step: int) -> np.ndarray:
        """int64 [batch]."""
        epoch, position = divmod(step, self._num // self._batch)
        if epoch != self._epoch:
            self._order = stream(self._seed, "batch order", epoch).permutation(self._num)
            self._epoch = epoch
        return self._order[position * self._batch : (position + 1) * self._batch]


class Training:
    """A network, its optimiser and where they are in the data.

    Args:
        windows: clips of history + 1 frames from the training episodes.
        state_path: where to save; None saves nothing.
        fingerprint: of recipe and data; a state of another one is refused.
    """

    def __init__(
        self,
        recipe: Recipe,
        windows: Windows,
        conventions: Conventions,
        *,
        state_path: Path | None = None,
        fingerprint: str = "",
        device: torch.device | str = "cpu",
    ) -> None:
        self.recipe = recipe
        self.windows = windows
        self.conventions = conventions
        self.device = torch.device(device)
        self.net = new_network(recipe).to(self.device)
        optimiser = recipe.optimiser
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(),
            lr=optimiser.learning_rate,
            betas=optimiser.betas,
            weight_decay=optimiser.weight_decay,
        )
        self.dtype = autocast_dtype(optimiser.precision, self.device)
        self.order = BatchOrder(len(windows), optimiser.batch, seed=recipe.seed)
        self.state_path = state_path
        self.fingerprint = fingerprint
        self.step = 0
        # The losses of the epoch so far: saved, so that a resumed run reports the same mean.
        self.epoch_loss = 0.0
        self.wall_s = 0.0
        self.cpu_s = 0.0

    @property
    def model(self) -> LeWM:
        """The network as a world model, in evaluation mode until the next step."""
        return LeWM(self.net, self.conventions, device=self.device)

    def training_batch(self, index: np.ndarray, *, role: str, identity: int) -> Batch:
        """The clips as training sees them, the recipe's augmentation included.

        Args:
            index: clip numbers, int64 [B].
            role, identity: of the augmentation's random stream.
        """
        batch = to_batch(self.windows.take(index), self.conventions, device=self.device)
        if self.recipe.augment is None:
            return batch
        frames = noisy(
            batch.frames,
            self.conventions,
            sigma_max=self.recipe.augment.sigma_max,
            seed=self.recipe.seed,
            role=role,
            identity=identity,
        )
        return Batch(frames, batch.blocks)

    def one_step(self) -> Losses:
        """Forward, backward, clip, update; the step number moves on."""
        recipe = self.recipe
        batch = self.training_batch(self.order(self.step), role="augmentation", identity=self.step)
        directions = draw_directions(
            recipe.model.latent_width,
            recipe.objective.directions,
            seed=recipe.seed,
            role="directions",
            identity=self.step,
        ).to(self.device)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, recipe.optimiser)
        self.net.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(recipe.seed, "dropout", self.step))
            with autocast(self.dtype, self.device):
                losses = batch_losses(self.net, batch, recipe.objective, directions)
            self.optimiser.zero_grad(set_to_none=True)
            losses.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), recipe.optimiser.clip_norm)
        self.optimiser.step()
        self.step += 1
        return losses

    def run(
        self,
        *,
        until: int | None = None,
        progress: Progress | None = None,
        on_step: Callable[[int, Losses], None] | None = None,
        on_epoch: Callable[[LeWM, int, float], object] | None = None,
        stop_at: float | None = None,
    ) -> None:
        """Steps up to ``until`` (default: the recipe's number), saving as it goes.

        Args:
            on_step: told the number of finished steps and the last batch's losses.
            on_epoch: at the end of every full epoch told the model, the epoch (from 1) and its
                mean training loss, e.g. a ``ScoreCallback``. The model is lent: it reads the
                weights as they are now, and its running statistics are those of training.
            stop_at: a time.monotonic() after which the next save is the last.
        """
        progress = progress or Silent()
        total = self.recipe.optimiser.steps
        until = total if until is None else until
        progress.start("training", total, self.step)
        began = time.monotonic(), time.process_time()
        while self.step < until:
            losses = self.one_step()
            loss = float(losses.loss.detach())
            if not math.isfinite(loss):
                raise EvidenceError(
                    f"the training loss became {loss} at step {self.step}. Lower "
                    "optimiser.learning_rate, or train in float32."
                )
            self.epoch_loss += loss
            if on_step is not None:
                on_step(self.step, losses)
            epoch, inside = divmod(self.step, self.order.steps_per_epoch)
            if inside == 0:
                mean, self.epoch_loss = self.epoch_loss / self.order.steps_per_epoch, 0.0
                if on_epoch is not None:
                    on_epoch(self.model, epoch, mean)
            progress.advance(
                self.step,
                f"loss {loss:.4f} (prediction {float(losses.prediction.detach()):.4f}, "
                f"regulariser {float(losses.regulariser.detach()):.3f})",
            )
            if self.step % self.recipe.optimiser.save_every == 0 or self.step == until:
                now = time.monotonic(), time.process_time()
                self.wall_s += now[0] - began[0]
                self.cpu_s += now[1] - began[1]
                began = now
                self.save()
                if stop_at is not None and now[0] >= stop_at:
                    break
        progress.finish()

    def save(self) -> None:
        """Weights, buffers, optimiser and position, in one file replaced at once."""
        if self.state_path is None:
            return
        tensors = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        names = {id(p): n for n, p in self.net.named_parameters()}
        for parameter, values in self.optimiser.state.items():
            for key, value in values.items():
                tensors[f"optimiser.{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
        meta = {
            "fingerprint": self.fingerprint,
            "step": self.step,
            "epoch_loss": self.epoch_loss,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
        }
        self.state_path.parent.mkdir(parents=True, exist_ok=True)
        new = self.state_path.with_suffix(".new")
        save_file(
            {k: v.detach().contiguous().cpu() for k, v in tensors.items()},
            new,
            metadata={"dreamcheck": json.dumps(meta)},
        )
        os.replace(new, self.state_path)

    def load(self) -> bool:
        """Take up a saved state; False where there is none.

        Raises:
            EvidenceError: the state is unreadable or of another recipe or data.
        """
        if self.state_path is None or not self.state_path.exists():
            return False
        way_out = f"Delete {self.state_path} to train from the start, or give another --out."
        try:
            with safe_open(self.state_path, framework="pt") as f:
                meta: dict[str, Any] = json.loads(f.metadata()["dreamcheck"])
                tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise EvidenceError(
                f"the training state {self.state_path} cannot be read ({error}). {way_out}"
            ) from error
        if meta["fingerprint"] != self.fingerprint:
            raise EvidenceError(
                f"the training state {self.state_path} belongs to another recipe, data or torch "
                f"version: continuing it would give a model that no recipe describes. {way_out}"
            )
        self.net.load_state_dict(
            {k[4:]: v for k, v in tensors.items() if k.startswith("net.")}, strict=True
        )
        for name, parameter in self.net.named_parameters():
            prefix = f"optimiser.{name}."
            values = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
            # A longer name can start with the same words; its key then holds a dot.
            values = {k: v for k, v in values.items() if "." not in k}
            if values:
                self.optimiser.state[parameter] = {
                    k: v.to(self.device) if k != "step" else v for k, v in values.items()
                }
        self.step = int(meta["step"])
        self.epoch_loss = float(meta.get("epoch_loss", 0.0))
        self.wall_s, self.cpu_s = float(meta["wall_s"]), float(meta["cpu_s"])
        return True
