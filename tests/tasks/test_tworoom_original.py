"""TwoRoom against stable-worldmodel itself, wherever it is installed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from dreamcheck.tasks.tworoom import TwoRoom

pytestmark = pytest.mark.swm


@pytest.fixture(scope="module")
def original():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(
            "stable_worldmodel.envs.two_room.env",
            reason="stable-worldmodel (the [swm] extra) is not installed",
            exc_type=ImportError,
        )
    torch.set_num_threads(1)
    return module.TwoRoomEnv()


def typed(env) -> dict:
    """The environment's present episode as our typed input; door sizes apart."""
    value = env.variation_space.value

    def colour(part, name="color"):
        return "#" + bytes(value[part][name].tolist()).hex()

    position = value["door"]["position"]
    return {
        "start_x": float(env.agent_position[0]),
        "start_y": float(env.agent_position[1]),
        "goal_x": float(env.target_position[0]),
        "goal_y": float(env.target_position[1]),
        "door.number": int(value["door"]["number"]),
        "door.position": int(position[0]),
        "door.position.1": int(position[1]),
        "door.position.2": int(position[2]),
        "door.size": int(value["door"]["size"][0]),
        "wall.thickness": int(value["wall"]["thickness"]),
        "wall.axis": int(value["wall"]["axis"]),
        "agent.speed": float(value["agent"]["speed"][0]),
        "agent.radius": float(value["agent"]["radius"][0]),
        "target.radius": float(value["target"]["radius"][0]),
        "rendering.render_target": int(value["rendering"]["render_target"]),
        "agent.color": colour("agent"),
        "target.color": colour("target"),
        "door.color": colour("door"),
        "wall.color": colour("wall"),
        "wall.border_color": colour("wall", "border_color"),
        "background.color": colour("background"),
    }


def varied(env, seed: int) -> dict:
    """Reset the environment to a random variation whose doors have one size, as ours do."""
    env.reset(seed=seed, options={"variation": ["all"]})
    sizes = env.variation_space.value["door"]["size"]
    env.variation_space["door"]["size"].set_value(np.full(3, sizes.max()))
    env._cache_params()
    return typed(env)


def test_default_resets_are_the_originals_bit_for_bit(original):
    ours = TwoRoom().reset(None, [*range(200), 2**31 - 1, 10**12])
    for i, seed in enumerate([*range(200), 2**31 - 1, 10**12]):
        original.reset(seed=seed)
        np.testing.assert_array_equal(ours.agent[i], original.agent_position.numpy())
        np.testing.assert_array_equal(ours.target[i], original.target_position.numpy())


def test_positions_distance_and_success_are_the_originals_over_random_variations(original):
    task, rng = TwoRoom(), np.random.default_rng(4)
    blocked = succeeded = 0
    for seed in range(30):
        state = task.reset([varied(original, seed)], [0])
        for t in range(120):
            if t % 40 == 0:
                # From anywhere, walls and borders included.
                point = rng.uniform(14, 209, 2).astype(np.float32)
                original._set_state(point)
                state = task.with_state(state, point[None])
            if t % 15 == 0:
                held = rng.uniform(-1.5, 1.5, 2)
            action = held + 0.3 * rng.normal(size=2)  # float64: rounded to float32 by both
            _, _, terminated, _, info = original.step(action)
            after = task.step(state, action[None])
            blocked += int(task.measure(state, action[None], after)["contact"][0])
            state = after
            np.testing.assert_array_equal(state.agent[0], info["state"])
            assert task.distance(state)[0] == info["distance_to_target"]
            assert bool(task.succeeded(state)[0]) == terminated
            succeeded += terminated
    assert blocked > 300 and succeeded > 20


def test_pixels_are_the_originals_over_random_variations(original):
    task, rng = TwoRoom(), np.random.default_rng(6)
    off = seen = 0
    for seed in range(30):
        state = task.reset([varied(original, seed)] * 2, [0, 0])
        points = rng.uniform(14, 209, (2, 2)).astype(np.float32)
        ours = task.observe(task.with_state(state, points), ("pixels",))["pixels"]
        for point, frame in zip(points, ours, strict=True):
            original._set_state(point)
            gap = np.abs(original.render().transpose(2, 0, 1).astype(int) - frame)
            assert gap.max() <= 1
            off, seen = off + int((gap > 0).sum()), seen + gap.size
    # Both call the same torch exponential here, so not one value may differ.
    assert off == 0, f"{off} of {seen} values differ"


def test_the_goal_image_is_the_originals(original):
    task = TwoRoom()
    state = task.reset([varied(original, 3)], [0])
    original.reset(seed=3)
    state = task.reset([typed(original)], [0])
    goal = task.goal_observation(state)["pixels"][0]
    np.testing.assert_array_equal(goal, original._target_img.numpy())
