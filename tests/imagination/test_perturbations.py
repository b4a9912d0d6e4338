"""Perturbations: identities are exact, formulas by hand, randomness by identity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import KINDS, Perturbation, blur_kernel, draw_seed
from dreamcheck.models.conventions import IMAGENET_STD
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM, normalise_frames
from dreamcheck.streams import stream

FRAMES = torch.from_numpy(
    stream(0, "perturbed-frames").integers(0, 256, size=(4, 3, 28, 28)).astype(np.uint8)
)
WHO = {"scenes": ["7:0", "7:0", "8:5", "8:5"], "moments": ["0", "1", "0", "1"]}


@pytest.mark.parametrize("name", KINDS)
def test_the_identity_severity_gives_the_frames_themselves(name):
    assert Perturbation(name, KINDS[name].identity).apply(FRAMES, **WHO) is FRAMES


@pytest.mark.parametrize("name", KINDS)
def test_every_step_of_a_sweep_changes_the_frames_and_repeats_exactly(name):
    for severity in KINDS[name].steps:
        p = Perturbation(name, severity)
        once = p.apply(FRAMES, **WHO)
        assert once.dtype == torch.float32 and once.shape == FRAMES.shape
        assert not torch.equal(once, FRAMES.float())
        assert torch.equal(once, p.apply(FRAMES, **WHO))


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_does_not_depend_on_its_batch_mates(name):
    p = Perturbation(name, KINDS[name].steps[-1])
    alone = p.apply(FRAMES[2:3], scenes=["8:5"], moments=["0"])
    assert torch.allclose(alone[0], p.apply(FRAMES, **WHO)[2], atol=1e-4)


def test_gaussian_noise_has_its_standard_deviation_and_is_not_clipped():
    black = torch.zeros(8, 3, 56, 56, dtype=torch.uint8)
    who = {"scenes": [str(i) for i in range(8)], "moments": ["0"] * 8}
    noise = Perturbation("gaussian", 0.08).apply(black, **who) / 255
    # 75,264 numbers: the standard error of their deviation is 0.08 / sqrt(2 n) = 2e-4.
    assert noise.std().item() == pytest.approx(0.08, abs=8e-4) and noise.min() < -0.2
    half = Perturbation("gaussian", 0.04).apply(black, **who) / 255
    assert torch.allclose(2 * half, noise, atol=1e-6)  # a sweep scales one and the same noise


def test_noise_on_display_pixels_is_sigma_over_the_channels_deviation_when_normalised():
    model = toy_lewm()
    noisy = Perturbation("gaussian", 0.05).apply(FRAMES, **WHO)
    apart = normalise_frames(noisy, model.conventions) - normalise_frames(FRAMES, model.conventions)
    noise = (noisy - FRAMES) / 255
    for c, deviation in enumerate(IMAGENET_STD):
        assert torch.allclose(apart[:, c], noise[:, c] / deviation, atol=1e-5)


def test_gaussian_noise_is_fresh_for_every_frame_and_draw_and_dirt_stays_on_the_lens():
    grey = torch.full((4, 3, 28, 28), 100, dtype=torch.uint8)
    noisy = Perturbation("gaussian", 0.1).apply(grey, **WHO)
    assert not torch.equal(noisy[0], noisy[1])
    other = Perturbation("gaussian", 0.1, draw=1).apply(grey, **WHO)
    assert not torch.equal(noisy[0], other[0])
    for name in ("occlusion", "colour"):
        seen = Perturbation(name, 0.3).apply(grey, **WHO)
        assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


def test_draw_seeds_are_the_released_ones():
    assert [draw_seed(m) for m in range(3)] == [10110, 18029, 25948]


def test_the_blur_kernel_of_fifteen_has_a_spread_of_two_point_six():
    k, spread, weights = blur_kernel(15)
    assert (k, spread) == (15, pytest.approx(2.6)) and blur_kernel(14)[0] == 15
    assert weights.sum().item() == pytest.approx(1)
    assert (weights[8] / weights[7]).item() == pytest.approx(math.exp(-0.5 / 2.6**2))


def test_blur_and_resize_leave_a_plain_frame_as_it_is():
    plain = torch.full((1, 3, 28, 28), 77, dtype=torch.uint8)
    for name, severity in (("blur", 15), ("resize", 0.25)):
        seen = Perturbation(name, severity).apply(plain, scenes=["a"], moments=["0"])
        assert torch.allclose(seen, plain.float(), atol=1e-3)


def test_resizing_by_a_half_takes_means_of_four_pixels():
    # Half-pixel centres without antialiasing: at exactly one half, bilinear is the 2 x 2 mean.
    frame = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4).expand(1, 3, 4, 4).contiguous()
    small = torch.tensor([[2.5, 4.5], [10.5, 12.5]])
    seen = Perturbation("resize", 0.5).apply(frame, scenes=["a"], moments=["0"])
    corners = seen[0, 0][[0, 0, 3, 3], [0, 3, 0, 3]]
    assert torch.equal(corners, small.flatten())


def test_brightness_contrast_and_occlusion_by_hand():
    frame = torch.full((1, 3, 10, 10), 102, dtype=torch.uint8)
    who = {"scenes": ["a"], "moments": ["0"]}
    assert (Perturbation("brightness", 0.2).apply(frame, **who) == 153).all()
    assert (Perturbation("brightness", 0.9).apply(frame, **who) == 255).all()
    # (102 - 127.5) / 2 + 127.5
    assert (Perturbation("contrast", 0.5).apply(frame, **who) == 114.75).all()
    hidden = Perturbation("occlusion", 0.3).apply(frame, **who) == 127.5
    assert hidden.sum() == 3 * 3 * 3


def test_a_colour_cast_moves_no_grey_level_and_reaches_its_size():
    frame = torch.full((1, 3, 4, 4), 100, dtype=torch.uint8)
    cast = Perturbation("colour", 0.1).apply(frame, scenes=["a"], moments=["0"])[0, :, 0, 0] - 100
    assert cast.sum().item() == pytest.approx(0, abs=1e-3)
    assert cast.abs().max().item() == pytest.approx(25.5, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "severity", "on", "says"),
    [
        ("snow", 1.0, "history", "no perturbation 'snow'"),
        ("gaussian", -0.1, "history", r"outside \[0, 1\]"),
        ("gaussian", math.nan, "history", "severity nan"),
        ("resize", 0.0, "history", r"outside \[0.05, 1\]"),
        ("gaussian", 0.1, "goal", "neither on history nor camera"),
    ],
)
def test_what_makes_no_sense_is_refused(name, severity, on, says):
    with pytest.raises(UsageError, match=says):
        Perturbation(name, severity, on)


def test_a_blur_wider_than_the_frame_is_refused():
    with pytest.raises(UsageError, match="cannot reflect"):
        Perturbation("blur", 61).apply(FRAMES, **WHO)


def toy_lewm() -> LeWM:
    from dreamcheck.models.conventions import Conventions

    torch.manual_seed(0)
    config = LeWMConfig(
        image_size=28, patch_size=14, encoder_width=32, encoder_depth=1, encoder_heads=2,
        latent_width=8, predictor_width=16, predictor_depth=1, predictor_heads=2,
        predictor_head_width=8, predictor_mlp=32, head_hidden=16, action_width=10, history=3,
    )  # fmt: skip
    conventions = Conventions(
        image_size=28, frameskip=5, action_dim=2, action_mean=(0, 0), action_std=(1, 1), history=3
    )
    return LeWM(LeWMNet(config), conventions)


def test_whole_levels_are_encoded_as_the_bytes_they_are():
    model = toy_lewm()
    with torch.no_grad():
        assert torch.equal(model.encode_levels(FRAMES.float()), model.encode({"pixels": FRAMES}))
        with pytest.raises(UsageError, match="0..255"):
            model.encode_levels(FRAMES)
