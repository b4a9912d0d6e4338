"""The logged windows that every checkpoint is measured on, chosen once, without a model's say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.windows import Windows
from dreamcheck.diagnostics.consistency.labels import LabelRule
from dreamcheck.diagnostics.consistency.radius import Pairing, pair_anchors
from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm_model import resize_frames
from dreamcheck.models.protocol import WorldModel
from dreamcheck.tasks.protocol import Restartable, Task

SEED = 9101
NUM_ANCHORS = 100
HORIZON = 8
RENDERED_AT_ONCE = 512


@dataclass(frozen=True)
class Anchors:
    """N logged windows of T history and H later frames.

    frames: uint8 [N, T + H, 3, s, s], at the side the model reads.
    actions: raw [N, (T + H - 1) * frameskip, A]. states: float64 [N, T + H, S] in ``columns``.
    scenes: "episode:base" of each window; random numbers belong to it.
    state_mean, state_std: [S] over the whole data set (divisor n - 1); nan_rows were left out.
    """

    frames: Tensor
    actions: np.ndarray
    states: np.ndarray
    columns: tuple[str, ...]
    scenes: tuple[str, ...]
    history: int
    horizon: int
    frameskip: int
    state_mean: np.ndarray
    state_std: np.ndarray
    nan_rows: int
    data_digest: str
    num_windows: int
    seed: int = SEED

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def digest(self) -> str:
        """SHA-256 of which windows these are and of what they show."""
        return digest(
            {
                "scenes": list(self.scenes),
                "data": self.data_digest,
                "shape": [self.history, self.horizon, self.frameskip],
                "frames": digest_arrays({"frames": self.frames.numpy()}),
            }
        )

    def pairing(self, rule: LabelRule) -> Pairing:
        """Nearest differently labelled window of each, by the state H frames after the history.

        Raises:
            UsageError: the data lack a column the rule reads.

        Source: consistency.md section 6.1-6.4.
        """
        at = rule.columns_in(self.columns)
        # A coordinate that never changes is only centred.
        spread = np.where(self.state_std[at] > 0, self.state_std[at], 1.0)
        y = (self.states[:, -1, at] - self.state_mean[at]) / spread
        if not np.isfinite(y).all():
            bad = int(np.flatnonzero(~np.isfinite(y).all(axis=1))[0])
            raise UsageError(f"window {self.scenes[bad]} has a state that is not finite.")
        return pair_anchors(y, rule.labels(y))


def draw_anchors(
    episodes: Episodes,
    model: WorldModel,
    *,
    task: Task | None = None,
    count: int = NUM_ANCHORS,
    horizon: int = HORIZON,
    seed: int = SEED,
    distinct: bool = False,
) -> Anchors:
    """The first ``count`` of a random permutation of all windows long enough.

    The history's length, the frameskip and the frames' side are the model's; models that share
    them share the anchors.

    Args:
        task: renders the frames where the data hold states only.
        distinct: at most one window from each episode.

    Raises:
        UsageError: no window fits, or frames are neither recorded nor drawn by a task.
        Abstention: the model observes more than pixels.
    """
    c = model.conventions
    if horizon < 1 or count < 2:
        raise UsageError(f"horizon {horizon} and {count} windows: at least 1 and 2 are needed.")
    if tuple(c.observation_keys) != ("pixels",):
        raise Abstention(
            f"this model observes {', '.join(c.observation_keys)}: a perturbation of pixels alone "
            "would not say what it does to the rest."
        )
    history = model.history_max
    clips = Windows(episodes, num_frames=history + horizon, frameskip=c.frameskip)
    order = np.random.default_rng(seed).permutation(len(clips))
    if distinct:
        _, firsts = np.unique(clips.locate(order)[0], return_index=True)
        order = order[np.sort(firsts)]
    chosen = order[:count]
    if len(chosen) < 2:
        raise UsageError(f"the data hold {len(chosen)} window(s); at least 2 are needed.")
    recorded = bool(getattr(episodes, "has_pixels", True))
    taken = clips.take(chosen, pixels=recorded)
    if taken.pixels is not None:
        frames = _sized(taken.pixels, c)
    elif task is None or not isinstance(task, Restartable):
        raise UsageError(
            "these episodes hold no frames, and no simulator that can be placed at their states "
            "was named: give episodes with frames, or --task."
        )
    else:
        frames = _rendered(taken.states, task, c)
    mean, std, nan_rows = _state_statistics(episodes)
    return Anchors(
        frames=frames,
        actions=taken.actions,
        states=taken.states,
        columns=tuple(col.name for col in episodes.columns),
        scenes=tuple(
            f"{e}:{b}" for e, b in zip(taken.episodes.tolist(), taken.bases.tolist(), strict=True)
        ),
        history=history,
        horizon=horizon,
        frameskip=c.frameskip,
        state_mean=mean,
        state_std=std,
        nan_rows=nan_rows,
        data_digest=episodes.digest,
        num_windows=len(clips),
        seed=seed,
    )


def _sized(pixels: np.ndarray, c: Conventions) -> Tensor:
    n, k = pixels.shape[:2]
    if pixels.shape[2] != 3:
        raise UsageError(
            f"the episodes' frames have {pixels.shape[2]} channels (shape {pixels.shape[2:]}), but "
            "world models here read 3, RGB, channels first. Drop an alpha channel, repeat a grey "
            "one, or transpose [H, W, 3]."
        )
    flat = torch.from_numpy(np.ascontiguousarray(pixels.reshape(n * k, *pixels.shape[2:])))
    return resize_frames(flat, size=c.image_size, rule=c.resize).unflatten(0, (n, k))


def _rendered(states: np.ndarray, task: Task, c: Conventions) -> Tensor:
    n, k, width = states.shape
    flat = states.reshape(n * k, width)
    out = []
    side = c.image_size if c.image_size in task.sizes else None
    for first in range(0, len(flat), RENDERED_AT_ONCE):
        some = flat[first : first + RENDERED_AT_ONCE]
        placed = task.with_state(task.reset(None, [0] * len(some)), some)  # type: ignore[attr-defined]
        seen = task.observe(placed, ("pixels",), image_size=side)["pixels"]
        frames = torch.from_numpy(np.ascontiguousarray(seen))
        out.append(resize_frames(frames, size=c.image_size, rule=c.resize))
    return torch.cat(out).unflatten(0, (n, k))


def _state_statistics(episodes: Episodes) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean and deviation (n - 1) of every state row of the data set; rows with NaN are counted."""
    rows = np.concatenate(
        [np.asarray(episodes.state(e), np.float64) for e in range(len(episodes.lengths))]
    )
    usable = ~np.isnan(rows).any(axis=1)
    if usable.sum() < 2:
        raise UsageError(
            "fewer than two state rows are free of NaN: states cannot be standardised."
        )
    kept = rows[usable]
    return kept.mean(axis=0), kept.std(axis=0, ddof=1), int((~usable).sum())
