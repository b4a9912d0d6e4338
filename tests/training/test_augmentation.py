"""Augmented training: the noise's law, its streams, its place in recipe, state and card."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from test_training_loop import MICRO, state_of
from typer.testing import CliRunner

from dreamcheck.cli.main import app
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.training.augment import noisy
from dreamcheck.training.pipeline import prepare, start_training, train_preset
from dreamcheck.training.progress import Silent
from dreamcheck.training.recipe import load_recipe

SIGMA = 0.08
AUGMENTED = {**MICRO, "augment.sigma_max": SIGMA}


@pytest.fixture(scope="module")
def conventions() -> Conventions:
    recipe = load_recipe("tworoom-small", **MICRO)
    return prepare(recipe, progress=Silent()).conventions


def draw(conventions, *, sigma_max=SIGMA, identity=0, frames=None):
    frames = torch.zeros(64, 4, 3, 32, 32) if frames is None else frames
    return noisy(
        frames, conventions, sigma_max=sigma_max, seed=0, role="augmentation", identity=identity
    )


def test_every_frame_has_a_sigma_of_its_own_uniform_up_to_the_largest(conventions):
    std = torch.tensor(conventions.pixel_std)[:, None, None]
    # Back to display units: 3 * 32 * 32 numbers estimate a frame's sigma to about 1.3 %.
    sigma = (draw(conventions) * std).flatten(2).std(dim=2).numpy().ravel()
    assert sigma.max() < SIGMA * 1.06
    # Mean and quarters of U(0, s) over 256 frames: four standard errors.
    assert abs(sigma.mean() - SIGMA / 2) < 4 * SIGMA / np.sqrt(12 * 256)
    shares = np.histogram(sigma, bins=4, range=(0, SIGMA * 1.06))[0] / 256
    assert np.abs(shares - 0.25).max() < 0.11
    within = sigma.reshape(64, 4)
    assert np.ptp(within, axis=1).min() > 0  # frames of one clip differ


def test_the_noise_has_the_display_size_in_every_channel(conventions):
    noise = draw(conventions, frames=torch.zeros(256, 4, 3, 16, 16))
    size = noise.pow(2).mean(dim=(0, 1, 3, 4)).sqrt() * torch.tensor(conventions.pixel_std)
    # E sigma^2 of U(0, s) is s^2 / 3.
    assert size.numpy() == pytest.approx([SIGMA / np.sqrt(3)] * 3, rel=0.06)


def test_no_clipping(conventions):
    white = torch.full((8, 2, 3, 8, 8), 50.0)
    assert float((draw(conventions, frames=white) - white).max()) > 0


def test_zero_is_the_identity_to_the_bit(conventions):
    frames = torch.randn(2, 4, 3, 8, 8)
    assert draw(conventions, sigma_max=0.0, frames=frames) is frames


def test_a_step_has_its_noise_and_another_step_another(conventions):
    assert torch.equal(draw(conventions, identity=3), draw(conventions, identity=3))
    assert not torch.equal(draw(conventions, identity=3), draw(conventions, identity=4))


def test_off_leaves_the_recipe_what_it_was():
    plain = load_recipe("tworoom-small")
    assert "augment" not in plain.values()
    off = load_recipe("tworoom-small", **{"augment.sigma_max": 0.0})
    assert off.digest != plain.digest  # said, hence recorded
    assert load_recipe("tworoom-small", **{"augment.sigma_max": 0.01}).digest != off.digest


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan"), "much"])
def test_a_sigma_that_makes_no_sense_is_named(bad):
    with pytest.raises(UsageError, match="augment.sigma_max"):
        load_recipe("tworoom-small", **{"augment.sigma_max": bad})


def test_resumed_equals_unbroken_and_sigma_zero_equals_none(tmp_path):
    recipe = load_recipe("tworoom-small", **AUGMENTED)
    prepared = prepare(recipe, progress=Silent())

    def trained(recipe, folder, *untils):
        for until in untils:
            training = start_training(recipe, prepared, tmp_path / folder)
            training.load()
            training.run(until=until)
        return state_of(training)

    whole, parts = trained(recipe, "whole", 6), trained(recipe, "parts", 3, 6)
    assert all(torch.equal(whole[k], parts[k]) for k in whole)
    plain = trained(load_recipe("tworoom-small", **MICRO), "plain", 6)
    zero = trained(load_recipe("tworoom-small", **{**MICRO, "augment.sigma_max": 0.0}), "zero", 6)
    assert all(torch.equal(plain[k], zero[k]) for k in plain)
    assert any(not torch.equal(plain[k], whole[k]) for k in plain)


def test_another_sigma_does_not_continue_the_state(tmp_path):
    train_preset("tworoom-small", tmp_path, threads=1, progress=Silent(), **AUGMENTED)
    with pytest.raises(EvidenceError, match="another recipe"):
        train_preset(
            "tworoom-small", tmp_path, threads=1, progress=Silent(),
            **{**MICRO, "augment.sigma_max": 0.01},
        )  # fmt: skip
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["training"]["augment"] == {"kind": "gaussian", "sigma_max": SIGMA}
    words = (tmp_path / "card.md").read_text()
    assert "sigma ~ U(0, 0.08)" in words and "the mode gap included, saw clean frames" in words
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["training"]["recipe"]["augment"]["sigma_max"] == SIGMA


@pytest.mark.parametrize("lonely", [["--augment", "gaussian"], ["--sigma-max", "0.05"]])
def test_half_an_augmentation_is_refused_before_anything_runs(tmp_path, lonely):
    out = tmp_path / "model"
    result = CliRunner().invoke(
        app, ["train", "--preset", "tworoom-small", "--out", str(out), *lonely]
    )
    assert result.exit_code != 0
    assert not out.exists()
