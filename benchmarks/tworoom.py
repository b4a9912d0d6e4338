"""TwoRoom: environment steps and frames per second, the original against ours, in one run.

    python benchmarks/tworoom.py [--seconds 2] [--batch 4096] [--json]

Run it with a Python that has stable-worldmodel, else the original's half is skipped with a
sentence. Both sides get one thread: the original draws with torch, and several threads on a busy
machine make its resets slower, not faster. The original is called without Gymnasium's wrappers,
which favours it; a step gives positions and success and no picture on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from dreamcheck.tasks.tworoom import TwoRoom


def per_second(work: Callable[[], int], seconds: float) -> float:
    """Median rate over five windows of a fifth of the time; work returns how much it did."""
    work()
    rates = []
    for _ in range(5):
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds / 5 or not done:
            done += work()
        rates.append(done / spent)
    return float(np.median(rates))


def ours(batch: int, seconds: float) -> dict[str, float]:
    """Rates of the batched simulator: one policy-free rollout, default resets."""
    task = TwoRoom()
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (64, batch, 2)).astype(np.float32)
    start = task.reset(None, list(range(batch)))

    def steps() -> int:
        state = start
        for chosen in actions:
            state = task.step(state, chosen)
            task.succeeded(state)
        return batch * len(actions)

    few = task.branch(start, np.arange(min(batch, 512)))
    rates = {"steps": per_second(steps, seconds)}
    for size in (224, 56):

        def frames(size: int = size) -> int:
            return len(task.observe(few, ("pixels",), image_size=size)["pixels"])

        rates[f"frames {size} px"] = per_second(frames, seconds)
    return rates


def original(seconds: float) -> dict[str, float]:
    """Rates of stable-worldmodel's environment; 56 px by the same area average of its frame."""
    from stable_worldmodel.envs.two_room.env import TwoRoomEnv

    from dreamcheck.tasks.tworoom.render import area_average

    env = TwoRoomEnv()
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32)

    def steps() -> int:
        for chosen in actions:
            env.step(chosen)
        return len(actions)

    def full() -> int:
        env.render()
        return 1

    def small() -> int:
        area_average(env.render().transpose(2, 0, 1), 56)
        return 1

    return {
        "steps": per_second(steps, seconds),
        "frames 224 px": per_second(full, seconds),
        "frames 56 px": per_second(small, seconds),
    }


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="time per rate")
    parser.add_argument("--batch", type=int, default=4096, help="episodes stepped at once")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        theirs = original(given.seconds)
    except ImportError as error:
        theirs = {}
        missing = f"stable-worldmodel is not installed here ({error}): ours alone, no ratio."
    mine = ours(given.batch, given.seconds)
    if given.json:
        print(json.dumps({"batch": given.batch, "original": theirs, "ours": mine}))
        return
    print(f"TwoRoom, one thread, batch {given.batch}, torch {torch.__version__}")
    print(f"{'per second':16}{'original':>12}{'ours':>14}{'ratio':>9}")
    for name, rate in mine.items():
        if theirs:
            print(f"{name:16}{theirs[name]:12,.0f}{rate:14,.0f}{rate / theirs[name]:8.0f}x")
        else:
            print(f"{name:16}{'-':>12}{rate:14,.0f}{'-':>9}")
    if not theirs:
        print(missing)


if __name__ == "__main__":
    main()
