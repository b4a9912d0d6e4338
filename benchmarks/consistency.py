"""Paired rollouts against two independent ones, in one run on one machine.

Reference, written plainly here: for every pair the clean and the perturbed history are encoded and
imagined on by themselves, through the same runner. Ours: ``PairedRollouts.roll``, and the clean side
encoded once for all severities and draws: it embeds the actions once for all histories of a tile,
computes what they alone decide once, and imagines the clean side once.

    python benchmarks/consistency.py              # the shipped model
    python benchmarks/consistency.py --standard   # LeWM of standard size at 224 px: minutes

Prints pairs per second and the ratio, with and without the encoder, in processor seconds (others may
use the machine), and whether every distance is the same bits. Not a test: run it by hand.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.consistency.anchors import Anchors
from dreamcheck.diagnostics.consistency.pairwise import acpc
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models import load_model

SEVERITIES = (0.02, 0.05, 0.08)


def standard_model() -> Any:
    """A LeWM of standard size with random weights, its gates opened so that actions matter."""
    from viscore import make_model

    return make_model(0)


def random_anchors(model: Any, count: int, horizon: int) -> Anchors:
    """Windows of noise: what they show changes no time."""
    c, rng = model.conventions, np.random.default_rng(0)
    t = model.history_max
    size = (count, t + horizon, 3, c.image_size, c.image_size)
    return Anchors(
        frames=torch.from_numpy(rng.integers(0, 256, size=size, dtype=np.uint8)),
        actions=rng.uniform(-1, 1, size=(count, (t + horizon - 1) * c.frameskip, c.action_dim)),
        states=np.zeros((count, t + horizon, 2)),
        columns=("x", "y"),
        scenes=tuple(f"{i}:0" for i in range(count)),
        history=t,
        horizon=horizon,
        frameskip=c.frameskip,
        state_mean=np.zeros(2),
        state_std=np.ones(2),
        nan_rows=0,
        data_digest="random",
        num_windows=count,
    )


def encoded(r: PairedRollouts, frames: Tensor) -> Tensor:
    """Latents [N, T, D] of [N, T, 3, s, s]."""
    return r.runner.encode_levels(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])


def independent(r: PairedRollouts, histories: list[Tensor], clean: Tensor) -> np.ndarray:
    """Distances [pairs, N], every history imagined on by itself."""

    def imagined(history: Tensor) -> np.ndarray:
        return r.points(r.runner.rollout(history, r.blocks))

    return np.stack([acpc(imagined(clean), imagined(h)) for h in histories])


def paired(r: PairedRollouts, histories: list[Tensor], clean: Tensor) -> np.ndarray:
    """The same distances, sharing what the histories share."""
    first, *others = r.roll([clean, *histories])
    return np.stack([acpc(first, other) for other in others])


def independent_from_frames(r: PairedRollouts, seen: list[Tensor], clean: Tensor) -> np.ndarray:
    """Distances from pixels on, every pair by itself."""
    return np.concatenate([independent(r, [encoded(r, f)], encoded(r, clean)) for f in seen])


def paired_from_frames(r: PairedRollouts, seen: list[Tensor], clean: Tensor) -> np.ndarray:
    """The same, the clean frames encoded once."""
    return paired(r, [encoded(r, f) for f in seen], encoded(r, clean))


def clock(run: Callable[[], np.ndarray], times: list[float]) -> np.ndarray:
    """One timed call, in processor seconds."""
    began = time.process_time()
    out = run()
    times.append(time.process_time() - began)
    return out


def main() -> None:
    """Both, turn by turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--standard", action="store_true")
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = standard_model() if args.standard else load_model("tworoom-small")
    anchors = random_anchors(model, args.windows, args.horizon)
    r = PairedRollouts(model, anchors)
    made = [Perturbation("gaussian", s, draw=m) for s in SEVERITIES for m in range(args.draws)]
    frames = [r.perturbed_frames(p) for p in made]
    histories = [encoded(r, f) for f in frames]
    clean = anchors.frames[:, : anchors.history]
    runs: dict[str, tuple[Callable[[], np.ndarray], Callable[[], np.ndarray]]] = {
        "rollouts": (
            lambda: independent(r, histories, r.history),
            lambda: paired(r, histories, r.history),
        ),
        "with the encoder": (
            lambda: independent_from_frames(r, frames, clean),
            lambda: paired_from_frames(r, frames, clean),
        ),
    }
    pairs = len(made) * args.windows
    print(
        f"{pairs} pairs ({args.windows} windows, {len(made)} perturbations), {args.horizon} steps, "
        f"{args.threads} thread(s), {args.repeats} repeats, processor seconds"
    )
    for name, (reference, shared) in runs.items():
        slow: list[float] = []
        fast: list[float] = []
        for _ in range(args.repeats):
            first, second = clock(reference, slow), clock(shared, fast)
        same = np.array_equal(first, second)
        print(
            f"{name}: two independent {pairs / min(slow):.0f} pairs/s, paired "
            f"{pairs / min(fast):.0f} pairs/s, ratio {min(slow) / min(fast):.2f}x "
            f"(medians {np.median(slow) / np.median(fast):.2f}x); distances the same bits: {same}"
        )


if __name__ == "__main__":
    main()
