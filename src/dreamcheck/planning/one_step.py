"""One-step prediction error on episodes that planning uses, over that of a frozen world (C7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dreamcheck.data.windows import Windows
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import WorldModel
from dreamcheck.planning.recorded import Recorded
from dreamcheck.tasks.protocol import Task
from dreamcheck.training.measures import Forecasts, Ratio, draw_windows, step_ratios


@dataclass(frozen=True)
class OneStep:
    """The ratio, and how it was measured: only ratios of one encoding are comparable.

    ratio: mean L2 error of the next latent over the mean L2 change of the latent.
    """

    ratio: Ratio
    encoding: str
    data_digest: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def one_step_error(
    model: WorldModel, task: Task, held: Recorded, *, windows: int = 400, seed: int = 0
) -> OneStep:
    """The error of one predicted block from the model's full history, on placed frames.

    Args:
        held: episodes with states and actions; frames are rendered by the task from the states.

    Raises:
        Abstention: the latent hardly moves, or is not finite.
    """
    c = model.conventions
    history = model.history_max
    clips = Windows(held.episodes, num_frames=history + 1, frameskip=c.frameskip)
    index = draw_windows(clips, windows, seed=seed, role="one-step")
    taken = clips.take(index, pixels=False)
    runner = Runner(model)
    b, n, width = taken.states.shape
    latents = _seen(runner, task, taken.states.reshape(b * n, width)).unflatten(0, (b, n))
    imagined = runner.rollout(latents[:, :history], c.blocks(taken.actions))
    ratios = step_ratios(
        Forecasts(
            imagined=imagined.flatten(2),
            real=latents[:, history:].flatten(2),
            last=latents[:, history - 1].flatten(1),
            states=taken.states[:, history:],
            last_states=taken.states[:, history - 1],
            episodes=taken.episodes,
        ),
        seed=seed,
    )
    return OneStep(
        ratios[0],
        f"latent L2 over a frozen world's, {history} observed frames, {c.frameskip} steps",
        held.digest,
    )


def _seen(runner: Runner, task: Task, states: np.ndarray) -> Tensor:
    import torch

    side = runner.model.conventions.image_size
    keys: Sequence[str] = [k for k in runner.model.conventions.observation_keys if k != "pixels"]
    out = []
    for first in range(0, len(states), 512):
        some = states[first : first + 512]
        placed = task.with_state(task.reset(None, [0] * len(some)), some)  # type: ignore[attr-defined]
        seen = task.observe(
            placed, ("pixels", *keys), image_size=side if side in task.sizes else None
        )
        out.append(runner.encode(seen["pixels"], finite=True, **{k: seen[k] for k in keys}))
    return torch.cat(out)
