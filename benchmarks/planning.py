"""One CEM plan on a standard-size LeWM against stable-worldmodel's solver, in one run.

Same weights (random), same candidates, iterations and horizon. Where stable-worldmodel is not
installed, the reference is its pattern written plainly here: full windows of 1, 2, 3, 3, 3 tokens,
every token through every layer and both heads.

    python benchmarks/planning.py                        # needs the [swm] extra for the real thing
    python benchmarks/planning.py --iterations 3 --threads 2
    python benchmarks/planning.py --trained 8            # also: elite agreement, shipped model
    python benchmarks/planning.py --only-trained --trained 8 --json agreement.json

Prints wall and processor seconds per plan, their ratios, the largest relative cost error of the
exact mode, the fast mode's elite agreement, and the share of the machine's measured matrix rate.
With --trained, the agreement is also measured on a shipped model: real frames of TwoRoom episodes
generated now, every iteration of every replan, the candidates those of the exact search. Not a
test: run it by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dreamcheck.imagination.runner import frozen, numerics_profile
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.registry import load_model
from dreamcheck.planning.admission import rule_of
from dreamcheck.planning.control import run_planner
from dreamcheck.planning.costs import Contexts, ModelCost
from dreamcheck.planning.evaluate import prepare, setup_of
from dreamcheck.planning.execution import Rows
from dreamcheck.planning.noise import EpisodeNoise
from dreamcheck.planning.objectives import GoalLatent
from dreamcheck.planning.protocol import load_protocol
from dreamcheck.planning.screening import Compared, ScreenedCost, ScreeningReport
from dreamcheck.planning.solvers import CEM
from dreamcheck.planning.space import PlannerSpace
from dreamcheck.tasks.protocol import ActionBox
from dreamcheck.tasks.registry import get_task

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


def timed(modes: dict[str, Callable[[], Any]], repeats: int) -> list[tuple[str, float, float]]:
    """Name, best wall and best processor seconds of each, taken in turns so that all meet the
    same load."""
    best = {name: (float("inf"), float("inf")) for name in modes}
    for _ in range(repeats):
        for name, call in modes.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            spent = (time.perf_counter() - wall, time.process_time() - cpu)
            best[name] = (min(best[name][0], spent[0]), min(best[name][1], spent[1]))
    return [(name, *both) for name, both in best.items()]


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
        [(_, wall, cpu)] = timed({"product": lambda a=a, b=b: [a @ b for _ in range(10)]}, repeats)
        work = 10 * a.shape[0] * a.shape[1] * b.shape[1] / 1e9
        rates.append((work / wall, work / cpu))
    return max(r[0] for r in rates), max(r[1] for r in rates)


def multiply_adds(config: LeWMConfig, candidates: int) -> float:
    """Billions of multiply-adds of one iteration in exact mode (horizon 5, one context frame)."""
    w, inner = config.predictor_width, config.predictor_heads * config.predictor_head_width
    token = 4 * w * inner + 2 * w * config.predictor_mlp
    first = token - 2 * w * inner + w * w  # no query, and value and output in one product
    depth = config.predictor_depth
    growing = depth * (first + 2 * token)
    window = (depth - 1) * (first + 2 * token) + token + 2 * 2 * w * inner
    modulation = HORIZON * depth * 6 * w * w
    head = HORIZON * 2 * w * config.head_hidden
    actions = HORIZON * (config.action_hidden * (config.action_smoothed + w))
    return candidates * (growing + 2 * window + modulation + head + actions) / 1e9


def compared(
    model: Any, contexts: Contexts, space: PlannerSpace, num_elites: int, report: ScreeningReport
) -> Compared:
    """The exact cost, with the fast one beside it."""
    score = GoalLatent(model)
    exact = ModelCost(model, contexts, score, space)
    fast = ModelCost(model, contexts, score, space, path="bfloat16")
    return Compared(exact, ScreenedCost(fast, exact, num_elites=num_elites, report=report))


def agreement(made: list[Compared], report: ScreeningReport) -> dict[str, Any]:
    """How often the fast mode keeps the exact mode's elites along the exact mode's own search."""
    same = [share for one in made for share in one.agreement]
    return {
        "mean_elite_agreement": float(np.mean(same)),
        "worst": min(same),
        "iterations_with_other_elites": sum(x < 1 for x in same),
        **report.to_dict(),
    }


class ComparedCosts:
    """``Compared`` for every replan of the control loop."""

    needs_latents = True

    def __init__(self, model: Any, space: PlannerSpace, num_elites: int) -> None:
        self.model, self.space, self.num_elites = model, space, num_elites
        self.report, self.made = ScreeningReport(), []

    def __call__(self, contexts: Contexts | None, state: Any, goals: np.ndarray) -> Compared:
        assert contexts is not None
        one = compared(self.model, contexts, self.space, self.num_elites, self.report)
        self.made.append(one)
        return one


def trained_agreement(name: str, num_episodes: int) -> dict[str, Any]:
    """Elite agreement of a trained TwoRoom model over the replans of some episodes."""
    model: Any = load_model(name)
    protocol = load_protocol("fresh-25-50").replace(num_eval=num_episodes, streams=1)
    task, criteria, held, _, selection = prepare(protocol, get_task("tworoom"))
    rows = Rows.of(selection.cases, 1)
    setup = setup_of(
        model,
        task,
        protocol,
        rule_of(protocol, criteria),
        held,
        rows,
        progress=lambda i, n, what: print(f"{name}: replan {i + 1} of at most {n}", flush=True),
    )
    solver: Any = protocol.solver.build()
    costs = ComparedCosts(model, setup.space, solver.num_elites)
    run_planner(setup, costs, solver)
    return {"model": name, "episodes": num_episodes, **agreement(costs.made, costs.report)}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--trained", type=int, default=0, metavar="N", help="elite agreement over N real episodes"
    )
    parser.add_argument("--only-trained", action="store_true", help="leave the timing out")
    parser.add_argument("--model", default="tworoom-small", help="the model for --trained")
    parser.add_argument("--json", type=Path, help="write what is printed there too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: dict[str, Any] = {}
    if not args.only_trained:
        results["random_weights"] = timing(args)
    if args.trained:
        results["trained"] = trained_agreement(args.model, args.trained)
        print("fast mode, trained:", _rounded(results["trained"]))
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


def timing(args: argparse.Namespace) -> dict[str, Any]:
    """One plan with random weights in every mode, against the reference."""
    solver = CEM(num_samples=args.samples, iterations=args.iterations)
    box = ActionBox((-1.0, -1.0), (1.0, 1.0))
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
    return report(model, given, solver, space, args.repeats, reference=reference)


def report(
    model: LeWM,
    given: Contexts,
    solver: CEM,
    space: PlannerSpace,
    repeats: int,
    *,
    reference: tuple[str, Callable[[], Any]],
) -> dict[str, Any]:
    """Time the modes and print the table."""
    score = GoalLatent(model)
    exact = ModelCost(model, given, score, space)
    generic = ModelCost(model, given, score, space, path="generic")
    fast = ModelCost(model, given, score, space, path="bfloat16")
    screened = ScreenedCost(fast, exact, num_elites=solver.num_elites, report=ScreeningReport())
    probe = torch.randn(1, 300, HORIZON, BLOCK, generator=torch.Generator().manual_seed(2))
    slow, quick = generic(probe), exact(probe)
    modes: dict[str, Callable[[], Any]] = {
        reference[0]: reference[1],
        "generic path": lambda: our_plan(solver, generic),
        "exact mode": lambda: our_plan(solver, exact),
        "fast mode (checked)": lambda: our_plan(solver, screened),
    }
    rows = timed(modes, repeats)
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
    error = float(((quick - slow).abs() / slow.abs()).max())
    print(f"largest relative cost error, exact against generic: {error:.1e}")
    checked = ScreeningReport()
    both = compared(model, given, space, solver.num_elites, checked)
    our_plan(solver, both)
    fast_mode = agreement([both], checked)
    print("fast mode, random weights:", _rounded(fast_mode))
    return {
        "plan": {
            "candidates": solver.num_samples,
            "iterations": solver.iterations,
            "horizon": HORIZON,
        },
        "machine": numerics_profile(),
        "modes": [
            {
                "name": name,
                "wall_s": wall,
                "cpu_s": cpu,
                "ratio_wall": base[1] / wall,
                "ratio_cpu": base[2] / cpu,
            }
            for name, wall, cpu in rows
        ],
        "exact_multiply_adds_g": work,
        "matrix_rate_g_per_s": {"wall": wall_rate, "cpu": cpu_rate},
        "exact_share_of_rate": {
            "wall": work / exact_row[1] / wall_rate,
            "cpu": work / exact_row[2] / cpu_rate,
        },
        "exact_largest_relative_error": error,
        "fast": fast_mode,
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}


if __name__ == "__main__":
    main()
