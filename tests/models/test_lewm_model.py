"""LeWM as a world model: the conformance suite, conventions on pixels, rollouts, identity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.errors import CheckpointError, UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import (
    LeWM,
    fit_action_statistics,
    normalise_frames,
    resize_frames,
)
from dreamcheck.testing import check_world_model

CONFIG = LeWMConfig(
    image_size=16, patch_size=8, encoder_width=24, encoder_depth=2, encoder_heads=3,
    encoder_mlp=32, head_hidden=20, latent_width=6, action_width=4, action_smoothed=5,
    action_hidden=16, predictor_width=24, predictor_depth=2, predictor_heads=2,
    predictor_head_width=8, predictor_mlp=32, history=3,
)  # fmt: skip
CONVENTIONS = Conventions(
    image_size=16, frameskip=2, action_dim=2, action_mean=(0.0, 0.1), action_std=(1.0, 0.5),
    history=3,
)  # fmt: skip


def small_model(*, seed: int = 0) -> LeWM:
    """Gates opened: at the initial zero gates no action would matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = LeWMNet(CONFIG)
        for layer in net.predictor.layers:
            torch.nn.init.normal_(layer.modulation.weight, std=0.2)
    return LeWM(net, CONVENTIONS)


def test_lewm_keeps_every_promise_of_a_world_model():
    check_world_model(small_model())


def test_a_rollout_feeds_on_its_own_predictions_and_slides_its_window():
    model = small_model()
    with torch.no_grad():
        z = torch.randn(32, 2, 6)
        a = model.embed_actions(torch.randn(32, 5, 4))  # 1 observed step + 4 forecast steps
        out = model.rollout(z, a)
        first = model.predict(z, a[:, :2])
        second = model.predict(torch.cat([z, first[:, None]], 1), a[:, :3])
        third = model.predict(torch.stack([z[:, 1], first, second], 1), a[:, 1:4])
        fourth = model.predict(torch.stack([first, second, third], 1), a[:, 2:5])
    torch.testing.assert_close(out, torch.stack([first, second, third, fourth], 1))


def test_a_larger_frame_is_averaged_to_the_trained_size():
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.integers(0, 256, (3, 3, 32, 32)).astype(np.uint8))
    small = resize_frames(frames, size=16, rule="area")
    by_hand = np.round(frames.numpy().reshape(3, 3, 16, 2, 16, 2).astype(float).mean((3, 5)))
    np.testing.assert_array_equal(small.numpy(), by_hand)
    model = small_model()
    with torch.no_grad():
        assert torch.equal(model.encode({"pixels": frames}), model.encode({"pixels": small}))


def test_a_tworoom_frame_gives_one_latent_at_224_and_at_its_trained_size():
    from dreamcheck.tasks.tworoom import TwoRoom

    task = TwoRoom()
    state = task.reset(None, range(4))
    large = task.observe(state, ("pixels",))["pixels"]
    small = task.observe(state, ("pixels",), image_size=56)["pixels"]
    np.testing.assert_array_equal(
        resize_frames(torch.from_numpy(large), size=56, rule="area").numpy(), small
    )


def test_pixels_are_scaled_then_standardised_by_the_imagenet_constants():
    # (128 / 255 - 0.485) / 0.229 = 0.074065, (128/255 - 0.456)/0.224 = 0.205182, ... 0.426319
    grey = torch.full((1, 3, 2, 2), 128, dtype=torch.uint8)
    values = normalise_frames(grey, CONVENTIONS)[0, :, 0, 0]
    torch.testing.assert_close(
        values, torch.tensor([0.074065, 0.205182, 0.426492]), atol=2e-4, rtol=0
    )


def test_frames_that_cannot_be_fed_are_refused_by_size_and_by_type():
    model = small_model()
    with pytest.raises(UsageError, match="24 x 24"):
        model.encode({"pixels": torch.zeros(2, 3, 24, 24, dtype=torch.uint8)})
    with pytest.raises(UsageError, match="float32"):
        model.encode({"pixels": torch.zeros(2, 3, 16, 16)})
    with pytest.raises(UsageError, match="action blocks"):
        model.embed_actions(torch.zeros(2, 3, 5))
    with pytest.raises(UsageError, match="1 to 3 latents"):
        model.predict(torch.zeros(2, 4, 6), torch.zeros(2, 4, 24))


def test_conventions_of_another_model_are_refused():
    net = LeWMNet(CONFIG)
    with pytest.raises(CheckpointError, match="history is 3"):
        LeWM(net, CONVENTIONS.model_copy(update={"history": 2}))


def test_identity_covers_weights_buffers_architecture_and_conventions():
    model, same, other = small_model(), small_model(), small_model(seed=1)
    assert model.identity == same.identity != other.identity
    with torch.no_grad():
        same.module.projector.norm.running_mean.add_(1e-3)
    assert same.identity != model.identity
    scaled = CONVENTIONS.model_copy(update={"action_std": (1.0, 0.6)})
    assert LeWM(model.module, scaled).identity != model.identity


def test_action_statistics_leave_nan_rows_out_and_count_them():
    a = np.array([[0.0, 1.0], [2.0, 1.0], [np.nan, np.nan]])
    mean, std, missing = fit_action_statistics([a, a[::-1]])
    assert mean == (1.0, 1.0) and missing == 2
    # Population deviation of 0, 2, 2, 0; the constant column gets 1.
    assert std == (1.0, 1.0)
    mean, std, _ = fit_action_statistics([np.array([[0.0], [6.0]])])
    assert mean == (3.0,) and std == (3.0,)
