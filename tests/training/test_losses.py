"""Losses against worked values, the golden vectors, and what the specification says of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from dreamcheck.training.losses import prediction_loss, sigreg, unit_directions, visreg

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "data" / "viscore" / "golden"
CASES = ("gaussian", "shifted_mixed", "bimodal", "near_collapse", "constant")


@pytest.fixture(scope="module")
def golden():
    if not (GOLDEN / "losses.npz").exists():
        pytest.skip("golden loss vectors (../shared/data/viscore/golden) are not on this machine")
    return np.load(GOLDEN / "losses.npz"), json.loads((GOLDEN / "golden_losses.json").read_text())


def _value_and_gradient(loss, x):
    x = x.clone().requires_grad_()
    value = loss(x)
    value.backward()
    return value.item(), x.grad


@pytest.mark.parametrize("case", CASES)
def test_the_losses_reproduce_the_golden_values_and_gradients(golden, case):
    arrays, recorded = golden
    x = torch.from_numpy(arrays[f"in_{case}"])
    w = unit_directions(torch.from_numpy(arrays["raw_projection"]))
    losses = {
        "sigreg_17": lambda z: sigreg(z, w),
        "visreg_1_1_1": lambda z: visreg(z, w).loss,
        "visreg_center": lambda z: visreg(z, w).center,
        "visreg_scale": lambda z: visreg(z, w).scale,
        "visreg_shape": lambda z: visreg(z, w).shape,
        "visreg_0.5_0.5_2": lambda z: (
            visreg(z, w, center_weight=0.5, scale_weight=0.5, shape_weight=2.0).loss
        ),
    }
    assert set(recorded["values"][case]) == set(losses)
    for name, loss in losses.items():
        value, gradient = _value_and_gradient(loss, x)
        expected = recorded["values"][case][name]
        assert value == pytest.approx(expected["value"], rel=1e-4), name
        if case == "constant":  # every projection is tied: the sort decides the gradient
            continue
        assert gradient.norm().item() == pytest.approx(expected["grad_l2"], rel=1e-4), name
        if f"grad_{name}_{case}" in arrays:
            stored = arrays[f"grad_{name}_{case}"]
            np.testing.assert_allclose(
                gradient.numpy(), stored, rtol=1e-3, atol=1e-4 * np.abs(stored).max()
            )


def test_sigreg_of_two_opposite_points_is_the_hand_worked_sum():
    # One dimension, direction 1, points +1 and -1: mean cos = cos(t), mean sin = 0. With three
    # knots t = 0, 1.5, 3 (spacing 1.5) and B = 2:
    #   t = 0: cos - phi = 0.
    #   t = 1.5: weight 3 * exp(-1.125) = 0.973957, (0.0707372 - 0.3246525)^2 = 0.0644730
    #   t = 3: weight 1.5 * exp(-4.5) = 0.0166635, (-0.9899925 - 0.0111090)^2 = 1.0022042
    # 2 * (0.0627939 + 0.0167002) = 0.1589883
    x = torch.tensor([[[1.0], [-1.0]]])
    assert sigreg(x, torch.ones(1, 1), knots=3).item() == pytest.approx(0.1589883, abs=2e-6)


def test_visreg_of_three_points_is_the_hand_worked_sum():
    # Points 0, 1, 2: mean 1, sigma = sqrt(2/3) = 0.8164966, quantiles of 1/4, 1/2, 3/4:
    # -0.6744898, 0, 0.6744898. Standardised extremes -1.2247449 and 1.2247449:
    # shape = 2 * (1.2247449 - 0.6744898)^2 / 3 = 0.2018536
    terms = visreg(torch.tensor([[[0.0], [1.0], [2.0]]]), torch.ones(1, 1))
    assert terms.center.item() == pytest.approx(1.0)
    assert terms.scale.item() == pytest.approx((math.sqrt(2 / 3) - 1) ** 2, rel=1e-5)
    assert terms.shape.item() == pytest.approx(0.2018536, rel=1e-5)
    assert terms.loss.item() == pytest.approx(1.0 + 0.0336735 + 0.2018536, rel=1e-5)


def test_the_regularisers_see_each_time_index_on_its_own():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, 64, 4, generator=rng)
    w = unit_directions(torch.randn(4, 8, generator=rng))
    for loss in (sigreg, lambda z, d: visreg(z, d).loss):
        one_by_one = torch.stack([loss(x[i : i + 1], w) for i in range(2)]).mean()
        assert loss(x, w).item() == pytest.approx(one_by_one.item(), rel=1e-5)
    # Swapping time indices between rows would change statistics over the pooled batch only.
    shifted = x + torch.tensor([3.0, -3.0])[:, None, None]
    assert sigreg(shifted, w).item() > 10 * sigreg(x, w).item()


def test_near_collapse_the_shape_gradient_grows_like_one_over_sigma():
    rng = torch.Generator().manual_seed(1)
    base = torch.randn(1, 64, 4, generator=rng)
    w = unit_directions(torch.randn(4, 16, generator=rng))

    def norms(sigma):
        _, shape = _value_and_gradient(lambda z: visreg(z, w).shape, base * sigma)
        _, scale = _value_and_gradient(lambda z: visreg(z, w).scale, base * sigma)
        return shape.norm().item(), scale.norm().item()

    (shape_a, scale_a), (shape_b, scale_b) = norms(1e-2), norms(1e-3)
    assert shape_b / shape_a == pytest.approx(10, rel=0.01)
    assert scale_b / scale_a == pytest.approx(1, rel=0.02)


def test_the_shape_floor_of_gaussian_data_falls_with_the_batch():
    rng = torch.Generator().manual_seed(2)
    w = unit_directions(torch.randn(4, 64, generator=rng))
    floors = [
        visreg(torch.randn(8, b, 4, generator=rng), w).shape.item() for b in (16, 64, 256, 1024)
    ]
    assert floors == sorted(floors, reverse=True)


def test_the_prediction_loss_pairs_position_i_with_latent_i_plus_one_and_moves_both():
    latents = torch.tensor([[[0.0], [1.0], [3.0]]], requires_grad=True)
    predicted = torch.tensor([[[1.0], [2.0]]], requires_grad=True)
    loss = prediction_loss(predicted, latents)
    assert loss.item() == pytest.approx(0.5)  # (0^2 + 1^2) / 2
    loss.backward()
    assert latents.grad is not None and latents.grad[0, 2, 0].item() == pytest.approx(1.0)


def test_shape_cannot_trade_against_scale_because_its_deviation_has_no_gradient():
    # With x = m + s u, d(shape)/ds would be 0 if the division by s were differentiated through;
    # behind the stop-gradient it is 2 mean((p - q) p) / s, here 2 * 2 * 1.2247 * 0.5503 / 3.
    x = torch.tensor([[[0.0], [1.0], [2.0]]])
    _, gradient = _value_and_gradient(lambda z: visreg(z, torch.ones(1, 1)).shape, x)
    along_scale = float((gradient * (x - 1.0)).sum())
    assert along_scale == pytest.approx(4 * 1.2247449 * (1.2247449 - 0.6744898) / 3, rel=1e-4)
