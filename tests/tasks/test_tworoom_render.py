"""TwoRoom's frames: a plain whole-frame drawing, the area-average law, and hand-worked pixels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from dreamcheck.errors import UsageError
from dreamcheck.tasks.tworoom import TwoRoom
from dreamcheck.tasks.tworoom.render import area_average, still_picture


@pytest.fixture
def task():
    return TwoRoom()


def whole_frame(state, row, *, target: bool) -> np.ndarray:
    """Every pixel of the blend, no patch: what the fast drawing must equal."""
    layout = state.layout
    frame = torch.from_numpy(still_picture(layout, row))
    y, x = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
    dots = [(state.agent[row], layout.agent_radius[row], layout.agent_colour[row])]
    if target:
        dots.insert(0, (state.target[row], layout.target_radius[row], layout.target_colour[row]))
    for centre, radius, colour in dots:
        squared = (x - float(centre[0])) ** 2 + (y - float(centre[1])) ** 2
        dot = torch.exp(-squared / (2.0 * float(radius) ** 2))
        dot = dot / dot.max()
        rgb = torch.tensor(colour.tolist(), dtype=torch.float32)[:, None, None]
        frame = (frame.float() * (1.0 - dot) + rgb * dot).to(torch.uint8)
    return frame.numpy()


@pytest.mark.parametrize("drawn", [0, 1])
def test_patches_equal_the_whole_frame_at_every_size(task, random_inputs, drawn):
    inputs = [row | {"rendering.render_target": drawn} for row in random_inputs(10, seed=drawn)]
    inputs += [
        {"start_x": x, "start_y": y, "agent.radius": r, "rendering.render_target": drawn}
        for x, y, r in [(14, 14, 7.0), (209, 209, 14.0), (111.5, 48.5, 7.0), (14, 209, 10.3)]
    ]
    state = task.reset(inputs, [0] * len(inputs))
    expected = np.stack([whole_frame(state, i, target=bool(drawn)) for i in range(len(inputs))])
    np.testing.assert_array_equal(task.observe(state, ("pixels",))["pixels"], expected)
    for size in (112, 56, 32, 28, 16, 8, 7, 4, 2, 1):
        frames = task.observe(state, ("pixels",), image_size=size)["pixels"]
        np.testing.assert_array_equal(frames, area_average(expected, size))


def test_far_dots_leave_tails_where_the_agent_s_own_channel_is_saturated(task):
    # White times (1 - a) plus red's 255 a: float32 rounds some sums to just under 255.
    frame = task.observe(task.reset([{"start_x": 60.3, "start_y": 112.7}], [0]), ("pixels",))
    red = frame["pixels"][0, 0, 90:140, 30:90]
    assert set(np.unique(red)) == {254, 255}


def test_the_still_picture_is_where_the_original_puts_it(task):
    picture = still_picture(task.reset(None, [0]).layout, 0)
    assert picture[:, 120, 107].tolist() == [0, 0, 0]  # the wall spans x 107 to 117
    assert picture[:, 120, 106].tolist() == [255, 255, 255]
    assert picture[:, 120, 117].tolist() == [0, 0, 0]
    assert picture[:, 35, 112].tolist() == [255, 255, 255]  # the door spans y 35 to 63
    assert picture[:, 34, 112].tolist() == [0, 0, 0]
    assert picture[:, 10, 50].tolist() == [0, 0, 0]  # border lines 10-13 and 210-213
    assert picture[:, 14, 50].tolist() == [255, 255, 255]
    assert picture[:, 213, 50].tolist() == [0, 0, 0]
    assert picture[:, 214, 50].tolist() == [255, 255, 255]


@pytest.mark.parametrize("size", [112, 56, 32, 28, 16, 1])
def test_small_frames_are_exact_means_rounded_half_to_even(size):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (1, 3, 224, 224)).astype(np.uint8)
    frames[0, 1] = rng.integers(0, 2, (224, 224))  # many ties
    k = 224 // size
    means = area_average(frames, size)
    for channel, i, j in [(c, i, j) for c in (0, 1) for i in range(size) for j in range(size)][
        :400
    ]:
        block = frames[0, channel, i * k : i * k + k, j * k : j * k + k]
        # Python rounds fractions half to even.
        assert means[0, channel, i, j] == round(Fraction(int(block.sum()), k * k))


@pytest.mark.parametrize(("total", "mean"), [(98, 0), (294, 2), (490, 2), (491, 3)])
def test_ties_of_blocks_that_are_no_power_of_two_go_to_the_even_neighbour(total, mean):
    # Size 16 averages 14 x 14 = 196 values: 98 is half, 294 one and a half, 490 two and a half.
    block = np.zeros(196, np.uint8)
    block[:100] = total // 100
    block[: total % 100] += 1
    assert int(block.sum()) == total
    frame = np.zeros((224, 224), np.uint8)
    frame[:14, :14] = block.reshape(14, 14)
    assert area_average(frame, 16)[0, 0] == mean


@pytest.mark.parametrize(
    "change",
    [
        {"door.color": "blue"},
        {"wall.color": "blue"},
        {"background.color": "blue"},
        {"door.number": 2, "door.position.1": 150},
        {"door.position": 150},
        {"door.size": 20},
        {"wall.thickness": 30},
        {"wall.axis": 0},
    ],
)
def test_rows_that_differ_in_one_factor_have_different_still_pictures(task, change):
    state = task.reset([{}, change, {}], [0, 0, 0])
    for size in (224, 56):
        frames = task.observe(state, ("pixels",), image_size=size)["pixels"]
        np.testing.assert_array_equal(frames[0], frames[2])
        assert not np.array_equal(frames[0], frames[1])


def test_the_target_is_drawn_only_when_asked(task):
    plain, drawn = (
        task.observe(task.reset([{"rendering.render_target": flag}], [0]), ("pixels",))["pixels"]
        for flag in (0, 1)
    )
    assert plain[0, :, 112, 164].tolist() == [255, 255, 255]
    assert drawn[0, :, 112, 164].tolist() == [0, 255, 0]


def test_the_goal_observation_shows_the_agent_on_the_target(task):
    goal = task.goal_observation(task.reset([{}], [0]), image_size=56)
    assert goal["pixels"].shape == (1, 3, 56, 56)
    assert goal["state"].tolist() == goal["goal"].tolist() == [[164.0, 112.0]]
    full = task.goal_observation(task.reset([{}], [0]))["pixels"]
    assert full[0, :, 112, 164].tolist() == [255, 0, 0]


def test_a_size_that_does_not_divide_224_is_refused(task):
    with pytest.raises(UsageError, match="64 does not divide 224"):
        task.observe(task.reset(None, [0]), ("pixels",), image_size=64)
