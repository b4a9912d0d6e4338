"""Errors against a frozen world: ratios, intervals, forecasts aligned with what followed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.data.windows import Windows
from dreamcheck.errors import Abstention
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column
from dreamcheck.training.card import check_floors
from dreamcheck.training.measures import (
    draw_frames,
    draw_windows,
    effective_rank,
    encode_frames,
    forecast,
    ratio_of_means,
    step_ratios,
)
from dreamcheck.training.recipe import Floors


class Counter:
    """Its latent is the frame's grey level; its prediction adds the block's sum, times ``gain``."""

    history_min, history_max = 1, 2
    latent = LatentSpec(shape=(1,))
    identity = "counter" * 4
    device = torch.device("cpu")
    conventions = Conventions(
        image_size=2, frameskip=2, action_dim=1, action_mean=(0,), action_std=(1,), history=2
    )

    def __init__(self, gain=1.0):
        self.gain = gain

    def encode(self, observation: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return observation["pixels"][:, 0, 0, 0].float()[:, None]

    def embed_actions(self, blocks):
        return blocks

    def predict(self, latents, actions, *, row_seeds=None):
        return latents[:, -1] + self.gain * actions[:, -1].sum(dim=1, keepdim=True)


def moving(num=3, length=20):
    """Grey level = state = running sum of integer actions."""
    rng = np.random.default_rng(0)
    actions = rng.integers(1, 4, (num, length, 1)).astype(float)
    state = np.concatenate([np.zeros((num, 1, 1)), actions[:, :-1].cumsum(axis=1)], axis=1)
    actions[:, -1] = np.nan
    pixels = np.broadcast_to(state.astype(np.uint8)[..., None, None], (num, length, 3, 2, 2))
    return ArrayEpisodes(
        lengths=np.full(num, length),
        actions=actions.reshape(-1, 1),
        pixels=pixels.reshape(-1, 3, 2, 2),
        state=state.reshape(-1, 1),
        columns=(Column("s", "px"),),
    )


def forecasts(gain, steps=3):
    windows = Windows(moving(), num_frames=2 + steps, frameskip=2)
    return forecast(Runner(Counter(gain)), windows, np.arange(len(windows)), history=2)


def test_a_model_that_adds_up_its_actions_makes_no_error_at_any_step():
    # One block too early or too late would leave an error: the integer steps differ.
    made = forecasts(1.0)
    torch.testing.assert_close(made.imagined, made.real)
    np.testing.assert_array_equal(made.states, made.real.numpy())
    assert all(r.ratio == 0 for r in step_ratios(made))


def test_a_frozen_model_has_ratio_one_and_half_the_motion_half():
    assert [r.ratio for r in step_ratios(forecasts(0.0))] == pytest.approx([1, 1, 1])
    assert [r.ratio for r in step_ratios(forecasts(0.5))] == pytest.approx([0.5, 0.5, 0.5])


def test_the_ratio_is_of_means_and_its_interval_resamples_episodes():
    errors, baselines = np.array([1.0, 3.0, 2.0, 2.0]), np.array([1.0, 9.0, 5.0, 5.0])
    # (1 + 3 + 2 + 2) / (1 + 9 + 5 + 5) = 0.4; the mean of ratios would be 0.53.
    one = ratio_of_means(errors, baselines, np.array([0, 0, 1, 1]))
    assert one.ratio == pytest.approx(0.4) and one.episodes == 2
    # Each episode alone has ratio 4/10: resampling episodes cannot move it, resampling rows would.
    assert (one.low, one.high) == pytest.approx((0.4, 0.4))
    rows = ratio_of_means(errors, baselines, np.arange(4))
    assert rows.low < 0.4 < rows.high


def test_a_world_that_does_not_move_gives_no_ratio():
    with pytest.raises(Abstention, match="frozen world means nothing"):
        ratio_of_means(np.ones(3), np.full(3, 0.01), np.arange(3))
    with pytest.raises(Abstention):
        ratio_of_means(np.array([np.nan, 1.0]), np.ones(2), np.arange(2))


def test_draws_are_distinct_keyed_and_inside_the_subset():
    windows = Windows(moving(), num_frames=3, frameskip=2)
    index = draw_windows(windows, 10, seed=1, role="x")
    assert len(set(index.tolist())) == 10
    np.testing.assert_array_equal(index, draw_windows(windows, 10, seed=1, role="x"))
    assert len(draw_windows(windows, 10**6, seed=1, role="x")) == len(windows)
    where, frames = draw_frames(moving(), np.array([2, 0]), 30, seed=1, role="x")
    assert set(where.tolist()) == {0, 2} and frames.max() < 20
    assert len({(e, t) for e, t in zip(where, frames, strict=True)}) == 30


def test_encoded_frames_come_with_the_states_of_the_same_frames():
    where, frames = draw_frames(moving(), np.arange(3), 50, seed=0, role="y")
    latents, states = encode_frames(Runner(Counter()), moving(), where, frames)
    np.testing.assert_array_equal(latents.numpy(), states)


def test_effective_rank_counts_equal_directions():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20000, 4, generator=g)
    assert effective_rank(x) == pytest.approx(4, abs=0.02)
    # Variances 1 and 9: (1 + 9)^2 / (1 + 81) = 1.2195.
    assert effective_rank(x[:, :2] * torch.tensor([1.0, 3.0])) == pytest.approx(1.2195, abs=0.02)


def test_floors_are_checked_on_both_sides():
    def met(**values):
        given = {"probe_r2": 0.999, "one_step_ratio": 0.04, "mode_gap": 1.1, "size_mb": 7.0}
        return [c.met for c in check_floors(Floors(), **{**given, **values})]

    assert met() == [True] * 4
    assert met(probe_r2=0.9949) == [False, True, True, True]
    assert met(one_step_ratio=0.0501) == [True, False, True, True]
    assert met(mode_gap=1.21) == met(mode_gap=1 / 1.21) == [True, True, False, True]
    assert met(mode_gap=1 / 1.19) == [True] * 4
    assert met(size_mb=8.01) == [True, True, True, False]
