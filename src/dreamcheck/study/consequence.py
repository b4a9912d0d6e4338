"""What a bad forecast costs: seed-matched MPC with model-ranked, oracle-ranked and random choice.

All three controllers meet the same observed prefix, the same proposal seeds and the same
state-conditioned proposal generator (the weak policy); they differ in who ranks the proposals.
Source: spec/discovery.md section 4 (consequence); the seed's appendix H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import Readout
from dreamcheck.stats import sign_test
from dreamcheck.streams import RowStreams, stream
from dreamcheck.tasks.protocol import Policy, Task

Controller = Literal["model", "oracle", "random"]
CONTROLLERS: tuple[Controller, ...] = ("model", "oracle", "random")


@dataclass(frozen=True, slots=True)
class MPC:
    """Sizes of the protocol, in environment steps."""

    prefix: int = 15
    control: int = 40
    replan: int = 10
    horizon: int = 30
    proposal_seeds: tuple[int, ...] = tuple(range(100, 116))
    fall: float = 2.0
    near: float = 90.0
    motion: float = 8.0


def utility(agent: np.ndarray, block: np.ndarray, goal: np.ndarray, *, mpc: MPC) -> np.ndarray:
    """U = -g + 0.8 p + 0.3 m + 0.2 u + 0.2 c of trajectories.

    Args:
        agent, block: [N, t + 1, 2], the start included. goal: [N, 2], block position, px.

    Returns:
        [N]. g final / initial block-goal distance, p = 1 - g, m the share of steps on which the
        distance falls by at least 2 px, u the share with the agent within 90 px of a block that
        moves at least 8 px, c the share with both.
    """
    distance = np.linalg.norm(block - goal[:, None], axis=2)
    g = distance[:, -1] / np.maximum(distance[:, 0], 1e-9)
    falls = distance[:, :-1] - distance[:, 1:] >= mpc.fall
    moves = np.linalg.norm(np.diff(block, axis=1), axis=2) >= mpc.motion
    near = np.linalg.norm(agent[:, 1:] - block[:, 1:], axis=2) <= mpc.near
    useful = near & moves
    m, u, c = (x.mean(axis=1) for x in (falls, useful, falls & useful))
    return -g + 0.8 * (1 - g) + 0.3 * m + 0.2 * u + 0.2 * c


def run_case(
    task: Task,
    policy: Policy,
    runner: Runner,
    readout: Readout,
    values: Mapping[str, Value] | None,
    seed: int,
    *,
    mpc: MPC | None = None,
    root_seed: int = 0,
) -> dict[str, float]:
    """Realised block-goal progress 1 - g over the control steps, by controller."""
    mpc = mpc or MPC()
    conventions = runner.model.conventions
    skip, history = conventions.frameskip, runner.model.history_max
    size = conventions.image_size
    start = task.reset(None if values is None else [dict(values)], [seed])
    rngs = RowStreams.of(root_seed, "policy", [seed])
    actions: list[np.ndarray] = []
    frames = [task.observe(start, ("pixels",), image_size=size)["pixels"]]
    for t in range(mpc.prefix):
        seen = task.observe(start, ("state", "goal", "geometry"))
        chosen = policy.act(seen, rngs)
        start = task.step(start, chosen)
        actions.append(np.asarray(chosen, np.float64))
        if (t + 1) % skip == 0:
            frames.append(task.observe(start, ("pixels",), image_size=size)["pixels"])
    out: dict[str, float] = {}
    for controller in CONTROLLERS:
        out[controller] = _control(
            controller, task, policy, runner, readout, start, list(frames), list(actions),
            seed=seed, mpc=mpc, root_seed=root_seed, history=history,
        )  # fmt: skip
    return out


def _control(
    controller: Controller, task: Task, policy: Policy, runner: Runner, readout: Readout,
    state: Any, frames: list[np.ndarray], actions: list[np.ndarray], *, seed: int, mpc: MPC,
    root_seed: int, history: int,
) -> float:  # fmt: skip
    conventions = runner.model.conventions
    skip, n = conventions.frameskip, len(mpc.proposal_seeds)
    goal = np.asarray(task.observe(state, ("goal",))["goal"], np.float64)[:, 2:4]
    first = _positions(task, state)[1]
    for replan in range(mpc.control // mpc.replan):
        names = [f"{seed}:{s}:{replan}" for s in mpc.proposal_seeds]
        rngs = RowStreams.of(root_seed, "proposal", names)
        rows = task.branch(state, np.zeros(n, np.int64))
        plans, agents, blocks = [], [], []
        for t in range(mpc.horizon + 1):
            agent, block = _positions(task, rows)
            agents.append(agent)
            blocks.append(block)
            if t < mpc.horizon:
                plan = policy.act(task.observe(rows, ("state", "goal", "geometry")), rngs)
                plans.append(np.asarray(plan, np.float64))
                rows = task.step(rows, plan)
        proposals = np.stack(plans, axis=1)  # [n, horizon, 2]
        goals = np.repeat(goal, n, axis=0)
        if controller == "oracle":
            scores = utility(np.stack(agents, 1), np.stack(blocks, 1), goals, mpc=mpc)
            best = int(np.argmax(scores))
        elif controller == "model":
            seen = np.concatenate(frames[-history:])
            latents = runner.encode(seen)[None].expand(n, *([-1] * 2))
            past = np.stack(actions[-(history - 1) * skip :], axis=1)  # [1, (h - 1) skip, 2]
            whole = np.concatenate([np.repeat(past, n, axis=0), proposals], axis=1)
            imagined = runner.rollout(latents.contiguous(), conventions.blocks(whole))
            real = readout.predict(latents[:, -1].contiguous())
            states = np.concatenate(
                [
                    real[:, None],
                    readout.predict(imagined.flatten(0, 1)).reshape(n, -1, real.shape[1]),
                ],
                axis=1,
            )
            scores = utility(states[..., :2], states[..., 2:4], goals, mpc=mpc)
            best = int(np.argmax(scores))
        else:
            best = int(stream(root_seed, "random choice", f"{seed}:{replan}").integers(n))
        for t in range(mpc.replan):
            action = proposals[best, t][None]
            state = task.step(state, action)
            actions.append(action)
            if (t + 1) % skip == 0:
                size = conventions.image_size
                frames.append(task.observe(state, ("pixels",), image_size=size)["pixels"])
    last = _positions(task, state)[1]
    return float(
        1
        - np.linalg.norm(last - goal, axis=1)[0]
        / max(np.linalg.norm(first - goal, axis=1)[0], 1e-9)
    )


def _positions(task: Task, state: Any) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(task.observe(state, ("state",))["state"], np.float64)
    return values[:, :2], values[:, 2:4]


def consequence_table(cases: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Means per controller, and the oracle against the model: W/L/T, exact one-sided sign test."""
    means = {c: float(np.mean([case[c] for case in cases])) for c in CONTROLLERS}
    gaps = np.array([case["oracle"] - case["model"] for case in cases])
    reversals = sum(case["model"] < 0 < case["oracle"] for case in cases)
    return {
        "cases": len(cases),
        "mean_progress": means,
        "gap": float(gaps.mean()),
        "oracle_against_model": asdict(sign_test(gaps, alternative="greater")),
        "sign_reversals": int(reversals),
    }
