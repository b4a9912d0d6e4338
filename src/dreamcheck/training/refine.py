"""Second phase: the predictor alone, against the frozen encoder's evaluation-mode latents.

In the first phase every target carries the noise of its batch's statistics. Once the encoder stands
still its latents can be computed once, exactly as they will be used, and the predictor, a tenth of
the work, learns what the noise hid. The encoder, and with it every latent, is left as it was.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from dreamcheck.data.windows import Windows
from dreamcheck.errors import EvidenceError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.training.loop import BatchOrder, cosine_rate, torch_seed
from dreamcheck.training.progress import Progress, Silent
from dreamcheck.training.recipe import RefinementRecipe


def predictor_parts(net: LeWMNet) -> tuple[nn.Module, ...]:
    """What the second phase trains."""
    return net.action_embedder, net.predictor, net.prediction_head


def rollout_loss(net: LeWMNet, latents: Tensor, blocks: Tensor, *, history: int) -> Tensor:
    """Teacher-forced error over the history, then the error of each step fed on own predictions.

    Every forecast step weighs the same; with no step beyond the history this is the prediction
    loss itself.

    Args:
        latents: [B, history + K, D], K >= 1. blocks: [B, history + K - 1, A].
    """
    steps = latents.shape[1] - history
    actions = net.embed_actions(blocks)
    predicted = net(latents[:, :history], actions[:, :history])
    total = (predicted - latents[:, 1 : history + 1]).square().mean()
    window = torch.cat([latents[:, 1:history], predicted[:, -1:]], dim=1)
    for k in range(1, steps):
        nxt = net(window, actions[:, k : k + history])[:, -1:]
        total = total + (nxt[:, 0] - latents[:, history + k]).square().mean()
        window = torch.cat([window[:, 1:], nxt], dim=1)
    return total / steps


def encode_training_episodes(
    runner: Runner, windows: Windows, *, progress: Progress | None = None
) -> dict[int, Tensor]:
    """Evaluation-mode latents [L, D] of every frame of the windows' episodes, by episode."""
    progress = progress or Silent()
    out = {}
    progress.start("encoding training frames", len(windows.episodes))
    for done, e in enumerate(windows.episodes.tolist()):
        frames = windows.data.frames(e, np.arange(int(windows.data.lengths[e])))
        out[e] = runner.encode(frames).flatten(1)
        progress.advance(done + 1)
    progress.finish()
    return out


def refine_predictor(
    net: LeWMNet,
    windows: Windows,
    conventions: Conventions,
    recipe: RefinementRecipe,
    *,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Train the predictor in place; encoder and projector keep every number they have.

    Args:
        windows: clips of history + recipe.forecast frames from training episodes.

    Raises:
        EvidenceError: the loss is no longer finite.
    """
    progress = progress or Silent()
    runner = Runner(LeWM(net, conventions), tile=128)
    latents = encode_training_episodes(runner, windows, progress=progress)
    history = net.config.history
    parts = predictor_parts(net)
    parameters = [p for part in parts for p in part.parameters()]
    optimiser = torch.optim.AdamW(
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    order = BatchOrder(len(windows), recipe.batch, seed=seed)
    progress.start("refining the predictor", recipe.steps)
    net.eval()
    for part in parts:
        part.train()
    for step in range(recipe.steps):
        clips = windows.take(order(step), pixels=False)
        span = conventions.frameskip * np.arange(windows.num_frames)
        z = torch.stack(
            [
                latents[e][b + span]
                for e, b in zip(clips.episodes.tolist(), clips.bases.tolist(), strict=True)
            ]
        )
        blocks = torch.from_numpy(conventions.blocks(clips.actions))
        for group in optimiser.param_groups:
            group["lr"] = cosine_rate(
                step, steps=recipe.steps, peak=recipe.learning_rate, warmup=recipe.warmup
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "refinement dropout", step))
            loss = rollout_loss(net, z, blocks, history=history)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe.clip_norm)
        optimiser.step()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise EvidenceError(
                f"the refinement loss became {value} at step {step}; lower "
                "refinement.learning_rate."
            )
        progress.advance(step + 1, f"loss {value:.5f}")
    net.eval()
    progress.finish()
