"""Scoring a LeWM network: its fast path, its checked bfloat16 mode, and mode restored afterwards."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dreamcheck.diagnostics.viscore import (
    Criterion,
    NumpyNoise,
    Probe,
    ScoreSettings,
    bank_from_latents,
    score,
    sobriety,
)
from dreamcheck.diagnostics.viscore.rollouts import Forecaster
from dreamcheck.diagnostics.viscore.sobriety import planning_gaps
from dreamcheck.errors import UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM

WIDTH, BLOCK = 16, 10


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    # An eighth of the search: what is compared here does not depend on the number of anchors.
    monkeypatch.setattr(sobriety, "NUM_ANCHORS", 8)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    net = LeWMNet(
        LeWMConfig(
            image_size=28,
            encoder_width=16,
            encoder_depth=1,
            encoder_heads=2,
            encoder_mlp=16,
            head_hidden=32,
            latent_width=WIDTH,
            action_width=BLOCK,
            action_hidden=16,
            predictor_width=16,
            predictor_depth=2,
            predictor_heads=2,
            predictor_head_width=8,
            predictor_mlp=32,
        )
    ).eval()
    with torch.no_grad():
        for layer in net.predictor.layers:
            layer.modulation.weight.normal_(std=0.3)
            layer.modulation.bias.normal_(std=0.3)
    conventions = Conventions(
        image_size=28,
        frameskip=5,
        action_dim=2,
        action_mean=(0.0, 0.0),
        action_std=(1.0, 1.0),
        history=3,
    )
    model = LeWM(net, conventions)
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((8 * 30, BLOCK)).astype(np.float32)
    z = rng.standard_normal((8 * 30, WIDTH)).astype(np.float32)
    probe = Probe.from_arrays(
        act_blocks=blocks, ep_ptr=np.arange(9) * 30, state=z[:, :2], columns=("x", "y")
    )
    return model, probe, bank_from_latents(model, probe, z)


CRITERION = Criterion(task="made", tolerance=1.0, unit="m", graded=("x", "y"), curve=8)


def test_the_fast_path_gives_the_generic_score(small):
    model, probe, bank = small
    both = [
        score(
            model,
            CRITERION,
            probe,
            bank=bank,
            cell_id="cell",
            settings=ScoreSettings(reference=True, generic=generic, baselines=False),
        )
        for generic in (False, True)
    ]
    fast, generic = both
    assert Forecaster(model)._path is not None and Forecaster(model, generic=True)._path is None
    for name in ("vis", "m_emp", "sigma_roll", "gap_resolution"):
        assert getattr(fast, name) == pytest.approx(getattr(generic, name), rel=1e-5), name
    np.testing.assert_allclose(fast.gaps, generic.gaps, rtol=1e-4, atol=1e-5)


def test_the_checked_bfloat16_search_keeps_the_signs_or_lists_near_ties(small):
    model, probe, bank = small
    exact, fast = (
        score(
            model,
            CRITERION,
            probe,
            bank=bank,
            cell_id="cell",
            settings=ScoreSettings(include="S", fast=fast, baselines=False),
        )
        for fast in (False, True)
    )
    a, b = np.asarray(exact.gaps), np.asarray(fast.gaps)
    differ = np.sign(a) != np.sign(b)
    assert set(np.asarray(fast.anchors)[differ]) <= set(fast.near_ties)
    assert fast.search_precision.startswith("bfloat16, 4 anchors checked")
    assert exact.search_precision == "float32"
    assert fast.near_tie_below >= fast.gap_resolution
    # The checked anchors hold the exact search's gaps: the same noise was searched again.
    checked = [0, 2, 5, 7]
    np.testing.assert_allclose(b[checked], a[checked], rtol=1e-4, atol=1e-6)
    assert "bfloat16" in fast.scale and "bfloat16" not in exact.scale


def test_a_cheap_search_that_changes_a_sign_is_run_again_in_full(small):
    model, probe, bank = small

    class Backward(Forecaster):
        """Seeks the worst plan: every gap of a biased model comes out negative."""

        def terminal(self, first, blocks):
            return -super().terminal(first, blocks)

    # The model is made to dream of its own future: every recorded plan is then beaten.
    shifted = dataclasses.replace(bank, points=bank.points + 3.0)
    exact = Forecaster(model)
    honest = planning_gaps(probe, shifted, exact, horizon=5, noise=NumpyNoise("cell"))
    assert max(honest.gaps) > 0
    saved = planning_gaps(
        probe, shifted, exact, horizon=5, noise=NumpyNoise("cell"), screen=Backward(model)
    )
    assert saved.precision == "float32, after bfloat16 failed on 4 checked anchors"
    np.testing.assert_allclose(saved.gaps, honest.gaps, rtol=1e-5)
    with pytest.raises(UsageError, match="mini-CEM only"):
        planning_gaps(
            probe, bank, exact, horizon=5, noise=NumpyNoise("c"), search="single-adamw",
            screen=exact,
        )  # fmt: skip


def test_scoring_leaves_the_networks_mode_and_weights(small):
    model, probe, bank = small
    model.module.train()
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    wants = [p.requires_grad for p in model.module.parameters()]
    score(
        model,
        CRITERION,
        probe,
        bank=bank,
        settings=ScoreSettings(include="S", search="single-adamw", baselines=False),
    )
    assert model.module.training
    assert wants == [p.requires_grad for p in model.module.parameters()]
    assert all(p.grad is None for p in model.module.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.module.state_dict().items())
    model.module.eval()
