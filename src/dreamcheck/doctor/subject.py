"""What is examined: whatever is there of a model, data, task, protocol and results.

Expensive things that many checks look at (a sample of windows, its latents) are made once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.windows import Windows
from dreamcheck.doctor.thresholds import Thresholds
from dreamcheck.errors import UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import HasModule, Readout, WorldModel
from dreamcheck.models.reference import SupportReference
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Restartable, Task

NEEDS = {
    "model": "a checkpoint",
    "module": "a model with a torch module (`module`)",
    "episodes": "recorded episodes (--data)",
    "frames": "recorded episodes with frames (--data)",
    "state": "recorded episodes with state columns (--data)",
    "train": "the training episodes (--training-data)",
    "task": "a simulator (--task)",
    "restartable": "a simulator whose state can be set (--task)",
    "protocol": "a planning protocol (--protocol)",
    "results": "evaluation results (--results)",
    "support": "the checkpoint's training reference (support.json beside it)",
}
"""What a check may need, and how a user brings it."""


@dataclass(frozen=True)
class Sample:
    """B windows of n model frames with everything measured about them once.

    pixels: uint8 [B, n, 3, s, s]. latents: [B, n, *shape] of those frames.
    actions: raw [B, (n - 1) * frameskip, A]. states: [B, n, S].
    episodes, bases: int64 [B], where the windows were cut.
    """

    pixels: np.ndarray
    latents: Tensor
    actions: np.ndarray
    states: np.ndarray
    episodes: np.ndarray
    bases: np.ndarray

    @property
    def flat(self) -> Tensor:
        """Latents [B, n, D]."""
        return self.latents.flatten(2)


class Subject:
    """What there is to examine; every part may be missing.

    Args:
        episodes: held-out episodes. train: episodes the model was trained on.
        protocol: a ``dreamcheck.planning.protocol.Protocol``.
        results: a ``dreamcheck.doctor.results.ResultSet``.
        readout: state probe of the model. support: the training reference beside the checkpoint.
        provenance: the checkpoint's own training record (config.json, "training").
        episodes_from: in words, where the episodes come from.
        seconds: time budget; checks that begin after it are skipped. None: no limit.
        windows: windows in the sample. seed: of every draw.
    """

    def __init__(
        self,
        *,
        model: WorldModel | None = None,
        task: Task | None = None,
        episodes: Episodes | None = None,
        train: Episodes | None = None,
        protocol: Any = None,
        results: Any = None,
        readout: Readout | None = None,
        support: SupportReference | None = None,
        provenance: Mapping[str, Any] | None = None,
        episodes_from: str = "recorded",
        thresholds: Thresholds | None = None,
        seconds: float | None = None,
        windows: int = 128,
        seed: int = 0,
    ) -> None:
        self.model, self.task, self.episodes, self.train = model, task, episodes, train
        self.protocol, self.results = protocol, results
        self.readout, self.support = readout, support
        self.provenance = dict(provenance or {})
        self.episodes_from = episodes_from
        self.thresholds = thresholds or Thresholds()
        self.seconds, self.windows, self.seed = seconds, windows, seed
        self.started = time.monotonic()

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is spent."""
        return self.seconds is not None and time.monotonic() - self.started > self.seconds

    def has(self, need: str) -> bool:
        """Whether one of NEEDS is there.

        Raises:
            KeyError: an unknown need: a mistake in the check.
        """
        if need not in NEEDS:
            raise KeyError(need)
        if need == "module":
            return isinstance(self.model, HasModule)
        if need == "frames":
            return self.episodes is not None and getattr(self.episodes, "has_pixels", True)
        if need == "state":
            return self.episodes is not None and len(self.episodes.columns) > 0
        if need == "restartable":
            return isinstance(self.task, Restartable)
        return getattr(self, need) is not None

    def missing(self, needs: tuple[str, ...]) -> str:
        """What of ``needs`` is not there, in words; empty when all is."""
        return "; ".join(NEEDS[n] for n in needs if not self.has(n))

    def rng(self, role: str) -> np.random.Generator:
        """The stream of one role, keyed by the subject's seed."""
        return stream(self.seed, "doctor", role)

    @cached_property
    def runner(self) -> Runner:
        """The model in canonical tiles, evaluation mode."""
        assert self.model is not None
        return Runner(self.model)

    def draw(
        self, *, frames: int, count: int | None = None, episodes: Episodes | None = None,
        frameskip: int | None = None, pixels: bool = True, role: str = "sample",
    ) -> Any:  # fmt: skip
        """Clips (``data.windows.Clips``) of random windows of the held-out episodes.

        Raises:
            UsageError: no episode is long enough.
        """
        episodes = episodes if episodes is not None else self.episodes
        if episodes is None:
            raise UsageError("there are no episodes to draw windows from.")
        skip = frameskip or (self.model.conventions.frameskip if self.model is not None else 1)
        windows = Windows(episodes, num_frames=frames, frameskip=skip)
        n = len(windows)
        rows = self.rng(role).choice(n, size=min(count or self.windows, n), replace=False)
        return windows.take(np.sort(rows), pixels=pixels)

    def encode(self, pixels: np.ndarray) -> Tensor:
        """uint8 [..., 3, s, s] -> latents [..., *shape]; not finite ones are left for the check."""
        flat = pixels.reshape(-1, *pixels.shape[-3:])
        out = self.runner.encode(flat, finite=False)
        return out.reshape(*pixels.shape[:-3], *out.shape[1:])

    def noise_frames(self, rows: int) -> np.ndarray:
        """Random frames in the model's size, uint8 [rows, 3, s, s]: where no data are given."""
        assert self.model is not None
        size = self.model.conventions.image_size
        return self.rng("noise").integers(0, 256, (rows, 3, size, size)).astype(np.uint8)

    @cached_property
    def sample(self) -> Sample:
        """The shared sample: windows of history_max + 1 frames of the held-out episodes."""
        assert self.model is not None
        clips = self.draw(frames=self.model.history_max + 1)
        return self._sampled(clips)

    @cached_property
    def train_sample(self) -> Sample:
        """The same of the training episodes."""
        assert self.model is not None
        return self._sampled(
            self.draw(frames=self.model.history_max + 1, episodes=self.train, role="train")
        )

    def _sampled(self, clips: Any) -> Sample:
        return Sample(
            pixels=clips.pixels,
            latents=self.encode(clips.pixels),
            actions=clips.actions,
            states=clips.states,
            episodes=clips.episodes,
            bases=clips.bases,
        )
