"""VIScore at LeWM size against the released pattern, in one run on one machine.

Reference, written plainly here: full windows at every step (1, 2, 3, 3, 3 tokens), influence in
perturbation batches of 32, sobriety batched over anchors x 128, no gradients, the same threads.
Ours: the public stages of ``score`` in exact mode, and the checked fast mode.

    python benchmarks/viscore.py                  # full size: minutes on two cores
    python benchmarks/viscore.py --anchors 8      # an eighth of the sobriety search

Prints wall and processor seconds per stage, their ratios, the anchors whose gap changes sign, the
share of the measured matrix rate, and the peak memory. Not a test: run it by hand.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.viscore import influence as inf
from dreamcheck.diagnostics.viscore import sobriety as sob
from dreamcheck.diagnostics.viscore import veracity as ver
from dreamcheck.diagnostics.viscore.bank import LatentBank, bank_from_latents
from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.diagnostics.viscore.rollouts import Forecaster, windows
from dreamcheck.diagnostics.viscore.search import NumpyNoise, mini_cem
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM

HORIZON, CURVE, BLOCK = 5, 15, 10


def make_model(seed: int) -> Any:
    """A LeWM of standard size with random weights, its gates opened so that actions matter."""
    torch.manual_seed(seed)
    net: Any = LeWMNet(LeWMConfig(action_width=BLOCK)).eval()
    with torch.no_grad():
        for layer in net.predictor.layers:
            # A fresh network's modulation is zero: actions would change nothing.
            layer.modulation.weight.normal_(std=0.02)
            layer.modulation.bias.normal_(std=0.2)
    return LeWM(
        net,
        Conventions(
            image_size=224,
            frameskip=5,
            action_dim=2,
            action_mean=(0.0, 0.0),
            action_std=(1.0, 1.0),
            history=3,
        ),
    )


def make_bank(model: Any, rows: int, seed: int) -> tuple[Probe, LatentBank]:
    """Episodes of 40 rows whose latents follow the model with noise."""
    rng = np.random.default_rng(seed)
    episodes = rows // 40
    blocks = rng.standard_normal((episodes, 40, BLOCK)).astype(np.float32)
    z = torch.from_numpy(rng.standard_normal((episodes, 1, 192)).astype(np.float32))
    with torch.no_grad():
        actions = model.embed_actions(torch.from_numpy(blocks))
        for t in range(39):
            lo = max(0, t - 2)
            step = model.predict(z[:, lo:], actions[:, lo : t + 1])
            noise = torch.from_numpy(rng.standard_normal(step.shape).astype(np.float32))
            z = torch.cat([z, (step + 0.1 * step.std() * noise)[:, None]], dim=1)
    flat = z.reshape(-1, 192).numpy()
    probe = Probe.from_arrays(
        act_blocks=blocks.reshape(-1, BLOCK),
        ep_ptr=np.arange(episodes + 1) * 40,
        state=flat[:, :4],
        columns=("a", "b", "c", "d"),
    )
    return probe, bank_from_latents(model, probe, flat)


class Released:
    """The released pattern: every window recomputed in full, every position projected."""

    def __init__(self, model: Any, bank: LatentBank, probe: Probe) -> None:
        self.model, self.bank, self.probe = model, bank, probe

    @torch.no_grad()
    def rollout(self, context: Tensor, blocks: Tensor) -> Tensor:
        """[B, h, D], [B, h - 1 + K, A] -> [B, K, D]."""
        net = self.model.module
        actions = net.embed_actions(blocks)
        h = context.shape[1]
        track = [context[:, i] for i in range(h)]
        for _ in range(blocks.shape[1] - h + 1):
            lo = max(0, len(track) - 3)
            out = net(torch.stack(track[lo:], dim=1), actions[:, lo : len(track)])
            track.append(out[:, -1])
        return torch.stack(track[h:], dim=1)

    def veracity(self) -> None:
        starts = ver.clip_starts(self.probe, history=3, curve=CURVE)[:512]
        context = self.bank.latents[torch.from_numpy(starts)[:, None] + torch.arange(3)]
        blocks = windows(self.probe.normalized_blocks, starts, CURVE + 2)
        for part in range(0, len(starts), 64):
            rows = slice(part, part + 64)
            self.rollout(context[rows], torch.from_numpy(blocks[rows]))

    def influence(self) -> None:
        rng = np.random.default_rng(0)
        anchors = inf.anchor_rows(self.probe, history=3, horizon=HORIZON, limit=32, rng=rng)
        shifts = inf.perturbations(self.probe, horizon=HORIZON, rng=rng)
        plan = windows(self.probe.normalized_blocks, anchors, HORIZON)
        first = self.bank.latents[torch.from_numpy(anchors)].unsqueeze(1)
        self.rollout(first, torch.from_numpy(plan))
        for shift in shifts:
            # One perturbation at a time, 32 anchors to a batch.
            self.rollout(first, torch.from_numpy(plan + shift))
        starts = inf.residual_windows(self.probe, history=3)
        for part in range(0, len(starts), 128):
            rows = starts[part : part + 128]
            context = self.bank.latents[torch.from_numpy(rows)[:, None] + torch.arange(3)]
            blocks = windows(self.probe.normalized_blocks, rows, 3)
            self.rollout(context, torch.from_numpy(blocks))

    def sobriety(self) -> np.ndarray:
        _, first, goals, recorded = sob.planning_problem(
            self.probe, self.bank, history=3, horizon=HORIZON
        )

        def cost(plans: Tensor) -> Tensor:
            a, n = plans.shape[:2]
            start = first.repeat_interleave(n, dim=0).unsqueeze(1)
            ends = self.rollout(start, plans.reshape(a * n, HORIZON, BLOCK))[:, -1]
            return ((ends.reshape(a, n, -1) - goals.unsqueeze(1)) ** 2).sum(dim=2)

        found = mini_cem(cost, recorded, NumpyNoise("benchmark"))
        both = cost(torch.stack([recorded, found.plans], dim=1))
        return (both[:, 0] - both[:, 1]).numpy()


def timed(name: str, call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, wall seconds and processor seconds, printed."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"  {name:34s} {wall:9.2f} s wall {cpu:9.2f} s processor", flush=True)
    return result, wall, cpu


def matrix_rate() -> float:
    """GFLOP per processor second: the best of the predictor's products at 1,024 rows, five times."""
    best = 0.0
    for wide, out in ((192, 2048), (2048, 192), (192, 1024), (1024, 192), (1024, 1024)):
        x, w = torch.randn(1024, wide), torch.randn(out, wide)
        for _ in range(5):
            start = time.process_time()
            for _ in range(8):
                torch.nn.functional.linear(x, w)
            best = max(best, 8 * 2 * 1024 * wide * out / (time.process_time() - start) / 1e9)
    return best


CONFIG = LeWMConfig(action_width=BLOCK)
INNER = CONFIG.predictor_heads * CONFIG.predictor_head_width
TOKEN = 4 * CONFIG.predictor_width * INNER + 2 * CONFIG.predictor_width * CONFIG.predictor_mlp
MODULATION = CONFIG.predictor_depth * 6 * CONFIG.predictor_width**2
HEAD = 2 * CONFIG.latent_width * CONFIG.head_hidden


def released_multiply_adds() -> float:
    """Of one plan: windows of 1, 2, 3, 3, 3 tokens, each token through everything, heads included."""
    return 12 * (CONFIG.predictor_depth * TOKEN + MODULATION + HEAD)


def our_multiply_adds() -> float:
    """Of one plan: tokens kept while the window grows, the last layer for the last token only."""
    width, depth = CONFIG.predictor_width, CONFIG.predictor_depth
    first = TOKEN - width * INNER
    growing = depth * (first + 2 * TOKEN)
    window = (depth - 1) * (first + 2 * TOKEN) + TOKEN + 2 * 2 * width * INNER
    return growing + 2 * window + HORIZON * (MODULATION + HEAD)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000, help="probe rows")
    parser.add_argument("--anchors", type=int, default=64, help="sobriety anchors (64 is full)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--skip-fast", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sob.NUM_ANCHORS = arguments.anchors
    model = make_model(0)
    probe, bank = make_bank(model, arguments.rows, 0)
    released = Released(model, bank, probe)
    exact = Forecaster(model, batch_rows=arguments.batch_rows)

    def ours_influence() -> None:
        inf.action_responses(probe, bank, exact, horizon=HORIZON)
        starts = inf.residual_windows(probe, history=3)
        inf.one_step_residuals(probe, bank, exact, starts)

    def ours_sobriety(screen: Forecaster | None = None) -> sob.Gaps:
        return sob.planning_gaps(
            probe, bank, exact, horizon=HORIZON, noise=NumpyNoise("benchmark"), screen=screen
        )

    print(f"LeWM size, {arguments.rows} rows, {arguments.anchors} sobriety anchors, ", end="")
    print(f"{arguments.threads} thread(s), torch {torch.__version__}")
    rate = matrix_rate()
    print(f"matrix rate {rate:.0f} GFLOP per processor second")
    print("released pattern")
    _, v_wall, v_cpu = timed("veracity", released.veracity)
    _, i_wall, i_cpu = timed("influence", released.influence)
    gaps, s_wall, s_cpu = timed("sobriety", released.sobriety)
    print("ours, exact")
    _, ov_wall, ov_cpu = timed(
        "veracity",
        lambda: ver.open_loop_error(probe, bank, exact, horizon=HORIZON, curve=CURVE),
    )
    _, oi_wall, oi_cpu = timed("influence", ours_influence)
    ours, os_wall, os_cpu = timed("sobriety", ours_sobriety)
    print(
        f"exact ratio: {(v_wall + i_wall + s_wall) / (ov_wall + oi_wall + os_wall):.2f} wall, "
        f"{(v_cpu + i_cpu + s_cpu) / (ov_cpu + oi_cpu + os_cpu):.2f} processor; sobriety alone "
        f"{s_wall / os_wall:.2f} wall, {s_cpu / os_cpu:.2f} processor"
    )
    _signs("exact", gaps, ours)
    plans = arguments.anchors * (4 * 128 + 2)
    full, done = 2 * plans * released_multiply_adds(), 2 * plans * our_multiply_adds()
    print(
        f"sobriety is {full / 1e12:.2f} TFLOP as released, {done / 1e12:.2f} with what is read and "
        f"not known: {full / 1e9 / s_cpu / rate:.0%} of the matrix rate as released, "
        f"{done / 1e9 / os_cpu / rate:.0%} in exact mode"
    )
    if not arguments.skip_fast:
        fast = Forecaster(model, batch_rows=arguments.batch_rows, bfloat16=True)
        quick, f_wall, f_cpu = timed("sobriety, checked fast", lambda: ours_sobriety(fast))
        print(
            f"fast ratio: {(v_wall + i_wall + s_wall) / (ov_wall + oi_wall + f_wall):.2f} wall, "
            f"{(v_cpu + i_cpu + s_cpu) / (ov_cpu + oi_cpu + f_cpu):.2f} processor; sobriety alone "
            f"{s_wall / f_wall:.2f} wall, {s_cpu / f_cpu:.2f} processor; {quick.precision}"
        )
        _signs("fast", gaps, quick)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


def _signs(mode: str, reference: np.ndarray, ours: sob.Gaps) -> None:
    """Anchors whose gap changes sign, with the gap and the search's resolution."""
    mine = np.asarray(ours.gaps)
    differ = np.flatnonzero((reference > 0) != (mine > 0))
    print(f"{mode}: {len(differ)} of {len(mine)} gaps change sign", end="")
    print(f", largest difference {np.abs(reference - mine).max():.3g}")
    for i in differ:
        tie = "listed as near-tie" if abs(mine[i]) < ours.near_tie_below else "NOT LISTED"
        print(
            f"    anchor row {ours.anchors[i]}: {reference[i]:.4g} and {mine[i]:.4g}, "
            f"near-ties are below {ours.near_tie_below:.4g}: {tie}"
        )


if __name__ == "__main__":
    main()
