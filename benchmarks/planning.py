"""One CEM plan on a standard-size LeWM against stable-worldmodel's solver, in one run.

Same weights (random), same candidates, iterations and horizon. Where stable-worldmodel is not
installed, the reference is its pattern written plainly here: full windows of 1, 2, 3, 3, 3 tokens,
every token through every layer and both heads.

    python benchmarks/planning.py                        # needs the [swm] extra for the real thing
    python benchmarks/planning.py --iterations 3 --threads 2
    python benchmarks/planning.py --model tworoom-small  # fast mode's elite agreement when trained

Prints wall and processor seconds per plan, their ratios, the largest relative cost error of the
exact mode, the fast mode's elite agreement, and the share of the machine's measured matrix rate.
Not a test: run it by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.imagination.runner import frozen
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.registry import load_model
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.noise import EpisodeNoise
from dreamcheck.planning.objectives import GoalLatent
from dreamcheck.planning.screening import ScreenedCost, ScreeningReport
from dreamcheck.planning.solvers import CEM
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.tasks.protocol import ActionBox

HORIZON, BLOCK = 5, 10


def random_model(seed: int) -> LeWM:
    """Standard size, random weights, gates opened so that actions matter."""
    torch.manual_seed(seed)
    net = LeWMNet(LeWMConfig()).eval()
    with torch.no_grad():
        for layer in net.predictor.layers:
            layer.modulation.weight.normal_(std=0.02)
            layer.modulation.bias.normal_(std=0.2)
    conventions = Conventions(
        image_size=224,
        frameskip=5,
        action_dim=2,
        action_mean=(0.0, 0.0),
        action_std=(0.87, 0.87),
        history=3,
    )
    return LeWM(net, conventions)


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Best wall and processor seconds of some repeats, and the last result."""
    best = (float("inf"), float("inf"))
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
        best = (min(best[0], spent[0]), min(best[1], spent[1]))
    return *best, result


class TheirModel:
    """stable-worldmodel's LeWM on given latents: encoding is left out on both sides."""

    def __init__(self, net: Any, start: Tensor, goal: Tensor) -> None:
        self.net, self.start, self.goal = net, start, goal

    def parameters(self) -> Any:
        return self.net.parameters()

    def get_cost(self, info: dict[str, Any], candidates: Tensor) -> Tensor:
        b, s = candidates.shape[:2]
        info["emb"] = self.start[:, None, None].expand(b, s, 1, -1)
        info["goal_emb"] = self.goal[:, None, None].expand(b, s, 1, -1)
        return self.net.get_cost(info, candidates)


def stable_worldmodel_plan(model: LeWM, contexts: Contexts, solver: CEM) -> Callable[[], Any]:
    """Their CEM and their LeWM with our weights."""
    import importlib

    import gymnasium as gym

    from dreamcheck.models.importing.layouts import to_theirs

    parts = importlib.import_module("stable_worldmodel.wm.lewm.module")
    home = importlib.import_module("stable_worldmodel.wm.lewm.lewm")
    vit = importlib.import_module("stable_pretraining.backbone.utils").vit_hf
    norm = torch.nn.BatchNorm1d
    net = home.LeWM(
        encoder=vit("tiny", patch_size=14, image_size=224, pretrained=False, use_mask_token=False),
        predictor=parts.Predictor(
            num_frames=3, depth=6, heads=16, mlp_dim=2048, dim_head=64, dropout=0.1,
            input_dim=192, hidden_dim=192, output_dim=192,
        ),
        action_encoder=parts.Embedder(input_dim=BLOCK, emb_dim=192),
        projector=parts.MLP(192, 2048, 192, norm_fn=norm),
        pred_proj=parts.MLP(192, 2048, 192, norm_fn=norm),
    )  # fmt: skip
    net.load_state_dict(to_theirs(model.module.state_dict(), model.module.config))
    net.eval()
    their = TheirModel(net, contexts.latents[:, 0], contexts.goals)
    cem = importlib.import_module("stable_worldmodel.solver.cem").CEMSolver(
        model=their,
        num_samples=solver.num_samples,
        n_steps=solver.iterations,
        topk=solver.num_elites,
    )
    policy = importlib.import_module("stable_worldmodel.policy")
    config = policy.PlanConfig(horizon=HORIZON, receding_horizon=HORIZON, action_block=5)
    space = gym.spaces.Box(-1.0, 1.0, (1, 2), np.float32)
    cem.configure(action_space=space, n_envs=1, config=config)
    pixels = torch.zeros(1, 1, 3, 1, 1)

    def call() -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return cem.solve({"pixels": pixels, "goal": pixels, "action": torch.zeros(1, 1, 2)})

    return call


def plain_plan(model: LeWM, contexts: Contexts, solver: CEM) -> Callable[[], Any]:
    """The same pattern written plainly: every token of every window through everything."""
    net = model.module

    def cost(candidates: Tensor) -> Tensor:
        b, k = candidates.shape[:2]
        actions = net.embed_actions(candidates.flatten(0, 1))
        track = [contexts.latents[:, 0].repeat_interleave(k, dim=0)]
        for step in range(HORIZON):
            low = max(0, step + 1 - 3)
            window = torch.stack(track[low:], dim=1)
            track.append(net(window, actions[:, low : step + 1])[:, -1])
        goal = contexts.goals.repeat_interleave(k, dim=0)
        return (track[-1] - goal).pow(2).sum(dim=1).view(b, k)

    def call() -> Any:
        with frozen(model):
            return our_plan(solver, cost)

    return call


def our_plan(solver: CEM, cost: Any) -> Any:
    """One plan of one episode."""
    return solver.solve(cost, rows=1, horizon=HORIZON, width=BLOCK, noise=EpisodeNoise(0, ["a"]))


def matrix_rate(repeats: int = 5) -> tuple[float, float]:
    """Billions of multiply-adds per second, per wall and per processor second, float32."""
    x, w = torch.randn(900, 192), torch.randn(3072, 192)
    big = torch.randn(1024, 1024)
    rates = []
    for a, b in ((x, w.T), (big, big)):
        a @ b
        wall, cpu, _ = timed(lambda a=a, b=b: [a @ b for _ in range(10)], repeats)
        work = 10 * a.shape[0] * a.shape[1] * b.shape[1] / 1e9
        rates.append((work / wall, work / cpu))
    return max(r[0] for r in rates), max(r[1] for r in rates)


def multiply_adds(config: LeWMConfig, candidates: int) -> float:
    """Billions of multiply-adds of one iteration in exact mode (horizon 5, one context frame)."""
    w, inner = config.predictor_width, config.predictor_heads * config.predictor_head_width
    token = 4 * w * inner + 2 * w * config.predictor_mlp
    first = token - w * inner
    depth = config.predictor_depth
    growing = depth * (first + 2 * token)
    window = (depth - 1) * (first + 2 * token) + token + 2 * 2 * w * inner
    modulation = HORIZON * depth * 6 * w * w
    head = HORIZON * 2 * w * config.head_hidden
    actions = HORIZON * (config.action_hidden * (config.action_smoothed + w))
    return candidates * (growing + 2 * window + modulation + head + actions) / 1e9


def agreement(model: LeWM, contexts: Contexts, solver: CEM, space: PlannerSpace) -> dict[str, Any]:
    """How often the fast mode keeps the exact mode's elites along the exact mode's own search."""
    score = GoalLatent(model)
    exact = ModelCost(model, contexts, score, space)
    fast = ModelCost(model, contexts, score, space, path="bfloat16")
    report = ScreeningReport()
    screened = ScreenedCost(fast, exact, num_elites=solver.num_elites, report=report)
    made = solver.solve(
        exact, rows=1, horizon=HORIZON, width=BLOCK, noise=EpisodeNoise(0, ["a"]), trace=True
    )
    same = []
    for step in made.trace:
        order = screened(torch.from_numpy(step.candidates))[0].argsort(stable=True)
        kept = set(order[: solver.num_elites].tolist())
        same.append(len(kept & set(step.elites[0].tolist())) / solver.num_elites)
    return {"mean_elite_agreement": float(np.mean(same)), "worst": min(same), **report.to_dict()}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", help="a trained checkpoint: report the fast mode on it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    solver = CEM(num_samples=args.samples, iterations=args.iterations)
    box = ActionBox((-1.0, -1.0), (1.0, 1.0))
    if args.model:
        trained: Any = load_model(args.model)
        with torch.no_grad():
            noise = torch.randint(
                0,
                256,
                (
                    2,
                    3,
                    trained.conventions.image_size,
                )
                * 1
                + (trained.conventions.image_size,),
                dtype=torch.uint8,
            )
            seen = trained.encode({"pixels": noise})
        given = Contexts(seen[:1, None], np.zeros((1, 0, BLOCK), np.float32), seen[1:])
        space = PlannerSpace("dense_normalised", trained.conventions, box)
        report(trained, given, solver, space, args.repeats, reference=None)
        return
    model = random_model(0)
    g = torch.Generator().manual_seed(1)
    given = Contexts(
        torch.randn(1, 1, 192, generator=g),
        np.zeros((1, 0, BLOCK), np.float32),
        torch.randn(1, 192, generator=g),
    )
    space = PlannerSpace("dense_normalised", model.conventions, box)
    if importlib.util.find_spec("stable_worldmodel") is not None:
        reference = ("stable-worldmodel's CEM", stable_worldmodel_plan(model, given, solver))
    else:
        reference = ("the same pattern, plainly", plain_plan(model, given, solver))
    report(model, given, solver, space, args.repeats, reference=reference)


def report(
    model: LeWM,
    given: Contexts,
    solver: CEM,
    space: PlannerSpace,
    repeats: int,
    *,
    reference: tuple[str, Callable[[], Any]] | None,
) -> None:
    """Time the modes and print the table."""
    score = GoalLatent(model)
    exact = ModelCost(model, given, score, space)
    generic = ModelCost(model, given, score, space, path="generic")
    fast = ModelCost(model, given, score, space, path="bfloat16")
    screened = ScreenedCost(fast, exact, num_elites=solver.num_elites, report=ScreeningReport())
    probe = torch.randn(1, 300, HORIZON, BLOCK, generator=torch.Generator().manual_seed(2))
    slow, quick = generic(probe), exact(probe)
    rows = []
    if reference is not None:
        rows.append((reference[0], *timed(reference[1], repeats)[:2]))
    rows.append(("generic path", *timed(lambda: our_plan(solver, generic), repeats)[:2]))
    rows.append(("exact mode", *timed(lambda: our_plan(solver, exact), repeats)[:2]))
    rows.append(("fast mode (checked)", *timed(lambda: our_plan(solver, screened), repeats)[:2]))
    base = rows[0]
    print(
        f"one plan: {solver.num_samples} candidates, {solver.iterations} iterations, horizon "
        f"{HORIZON}, {torch.get_num_threads()} thread(s), {torch.backends.cpu.get_cpu_capability()}"
    )
    print(f"{'':28}{'wall s':>9}{'cpu s':>9}{'ratio wall':>12}{'ratio cpu':>11}")
    for name, wall, cpu in rows:
        print(f"{name:28}{wall:9.2f}{cpu:9.2f}{base[1] / wall:12.2f}{base[2] / cpu:11.2f}")
    work = multiply_adds(model.module.config, solver.num_samples) * solver.iterations
    wall_rate, cpu_rate = matrix_rate()
    exact_row = next(r for r in rows if r[0] == "exact mode")
    print(
        f"exact mode: {work:.1f} G multiply-adds, {work / exact_row[1]:.1f} G/s of "
        f"{wall_rate:.1f} measured ({work / exact_row[1] / wall_rate:.0%} by wall, "
        f"{work / exact_row[2] / cpu_rate:.0%} by processor time)"
    )
    print(
        f"largest relative cost error, exact against generic: "
        f"{float(((quick - slow).abs() / slow.abs()).max()):.1e}"
    )
    print(
        "fast mode:",
        {
            k: v if v is None else round(v, 5)
            for k, v in agreement(model, given, solver, space).items()
        },
    )


if __name__ == "__main__":
    main()
