"""Make tests/tasks/data/tworoom.npz from stable-worldmodel's TwoRoom.

    python tests/tasks/make_reference.py     (with a Python that has stable-worldmodel 0.1.1)

Sixteen variation rows of 240 steps, the positions of default resets, one full frame per variation
row and more frames of it in every eighth pixel row.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import stable_worldmodel
import torch
from stable_worldmodel.envs.two_room.env import TwoRoomEnv

OUT = Path(__file__).parent / "data" / "tworoom.npz"
ROWS, STEPS, FRAMES, RESETS = 16, 240, 6, 400
PIXEL_ROWS = np.arange(3, 224, 8)


def variation(rng: np.random.Generator, row: int) -> dict[str, Any]:
    """One row of typed inputs; the first three keep what the shipped model trains on."""
    x, y = rng.uniform(14, 209, 2)
    goal_x, goal_y = rng.uniform(14, 209, 2)
    values: dict[str, Any] = {"start_x": x, "start_y": y, "goal_x": goal_x, "goal_y": goal_y}
    if row < 3:
        return values
    radius = float(np.float32(rng.uniform(7, 14)))

    def colour() -> str:
        return "#" + bytes(rng.integers(0, 256, 3).tolist()).hex()

    return values | {
        "agent.radius": radius,
        "agent.speed": float(np.float32(rng.uniform(1.75, 10.5))),
        "target.radius": float(np.float32(rng.uniform(7, 14))),
        "door.number": 1 + row % 3,
        "door.position": int(rng.integers(224)),
        "door.position.1": int(rng.integers(224)),
        "door.position.2": int(rng.integers(224)),
        # The original refuses doors that do not fit the agent.
        "door.size": int(rng.integers(int(np.ceil(1.1 * radius)), 22)),
        "wall.thickness": int(rng.integers(7, 42)),
        "wall.axis": row % 2,
        "rendering.render_target": int(row % 4 == 0),
        "agent.color": "red" if row % 2 else colour(),
        "target.color": colour(),
        "door.color": colour(),
        "wall.color": "black" if row % 2 else colour(),
        "wall.border_color": colour(),
        "background.color": "white" if row % 2 else colour(),
    }


def options(values: dict[str, Any]) -> dict[str, Any]:
    """The original's reset options for one row of typed inputs."""
    named = {"red": "#ff0000", "black": "#000000", "white": "#ffffff"}
    # The initial start may be inside a varied wall, which the original refuses; "state" overrules.
    chosen: dict[str, Any] = {"agent.position": np.array([40, 40], np.float32)}
    for name, value in values.items():
        if name.endswith("color"):
            chosen[name] = np.frombuffer(bytes.fromhex(named.get(value, value)[1:]), np.uint8)
        elif name in ("agent.radius", "agent.speed", "target.radius"):
            chosen[name] = np.array([value], np.float32)
        elif name == "door.size":
            chosen[name] = np.array([value] * 3)
        elif name == "door.position":
            others = [values["door.position.1"], values["door.position.2"]]
            chosen[name] = np.array([value, *others])
        elif "." in name and not name.startswith("door.position."):
            chosen[name] = value
    return {
        "variation": (),
        "variation_values": chosen,
        "state": np.array([values["start_x"], values["start_y"]], np.float32),
        "target_state": np.array([values["goal_x"], values["goal_y"]], np.float32),
    }


def main() -> None:
    """Write the arrays."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(2)
    env = TwoRoomEnv()
    inputs = [variation(rng, row) for row in range(ROWS)]
    # Held for some steps, so that walls, borders and doors are met; some beyond the action box.
    held = np.repeat(rng.uniform(-1.3, 1.3, (ROWS, STEPS // 12, 2)), 12, axis=1)
    actions = (held + 0.2 * rng.normal(size=held.shape)).astype(np.float32)
    positions = np.empty((ROWS, STEPS + 1, 2), np.float32)
    distances = np.empty((ROWS, STEPS), np.float32)
    terminated = np.empty((ROWS, STEPS), bool)
    full, sampled = [], []
    every = STEPS // FRAMES
    for row, values in enumerate(inputs):
        env.reset(seed=0, options=options(values))
        positions[row, 0] = env.agent_position.numpy()
        for t in range(STEPS):
            if t % every == 0:
                frame = env.render()
                (full if t == 0 else sampled).append(frame if t == 0 else frame[PIXEL_ROWS])
            _, _, terminated[row, t], _, info = env.step(actions[row, t])
            distances[row, t] = info["distance_to_target"]
            positions[row, t + 1] = env.agent_position.numpy()
    starts, goals = np.empty((RESETS, 2), np.float32), np.empty((RESETS, 2), np.float32)
    for seed in range(RESETS):
        env.reset(seed=seed)
        starts[seed], goals[seed] = env.agent_position.numpy(), env.target_position.numpy()
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        OUT,
        source=np.array(f"stable-worldmodel 0.1.1, torch {torch.__version__}"),
        inputs=np.array([json.dumps(v) for v in inputs]),
        actions=actions,
        positions=positions,
        distances=distances,
        terminated=terminated,
        full=np.stack(full),
        sampled=np.stack(sampled).reshape(ROWS, FRAMES - 1, len(PIXEL_ROWS), 224, 3),
        pixel_rows=PIXEL_ROWS,
        frame_steps=np.arange(0, STEPS, every),
        starts=starts,
        goals=goals,
    )
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes; {stable_worldmodel.__name__}")


if __name__ == "__main__":
    main()
