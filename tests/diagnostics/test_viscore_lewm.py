"""Scoring a LeWM network: its fast path, its checked bfloat16 mode, and mode restored afterwards."""

from __future__ import annotations

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
from dreamcheck.diagnostics.viscore.search import mini_cem
from dreamcheck.diagnostics.viscore.sobriety import PlanCost, ScreenedCost, planning_problem
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


def test_the_checked_bfloat16_search_keeps_the_signs_of_the_gaps(small):
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
    # A sign may change only where the gap is below the search's own resolution.
    assert (np.abs(a[differ]) < exact.gap_resolution).all() and differ.mean() < 0.05
    assert "bfloat16" in fast.scale and "bfloat16" not in exact.scale


def test_screening_rescues_elites_that_the_cheap_cost_misplaces(small):
    model, probe, bank = small
    exact = Forecaster(model)
    _, first, goals, recorded = planning_problem(probe, bank, history=3, horizon=5)
    true_cost = PlanCost(exact, first, goals)
    generator = torch.Generator().manual_seed(0)

    class Sloppy:
        def __init__(self, size):
            self.size = size

        def __call__(self, plans):
            costs = true_cost(plans)
            return costs + self.size * (torch.rand(costs.shape, generator=generator) - 0.5)

    shape = (len(recorded), 128, *recorded.shape[1:])
    sampled = true_cost(recorded[:, None] + NumpyNoise("other").normal(shape))
    # An error of a few percent of what separates an anchor's plans.
    sloppy = Sloppy(0.03 * float(sampled.std(dim=1).median()))
    screened = ScreenedCost(sloppy, true_cost)
    want = mini_cem(true_cost, recorded, NumpyNoise("cell"))
    got = mini_cem(screened, recorded, NumpyNoise("cell"))
    loose = mini_cem(sloppy, recorded, NumpyNoise("cell"))
    assert torch.equal(got.plans, want.plans) and not torch.equal(loose.plans, want.plans)
    assert 0 < max(screened.rescored) < 1
    # Useless cheap costs: more than half are doubtful, so all are scored exactly.
    hopeless = ScreenedCost(Sloppy(1e6), true_cost)
    assert torch.equal(mini_cem(hopeless, recorded, NumpyNoise("cell")).plans, want.plans)
    assert hopeless.rescored == [1.0] * 4


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
