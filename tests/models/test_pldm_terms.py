"""PLDM's training terms: by hand, and against stable-worldmodel's where it is installed."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import torch

from dreamcheck.models.pldm import DEFAULT_WEIGHTS, InverseDynamics, PLDMTerms, pldm_terms


def test_terms_by_hand():
    # Two rows, two times, two dimensions. Time 0: (0, 0), (2, 2); time 1: (0, 4), (2, 0).
    z = torch.tensor([[[0.0, 0], [0, 4]], [[2, 2], [2, 0]]])
    terms = pldm_terms(z)
    # Centred at each time: +-(1, 1), then +-(-1, 2) with signs (-, +): variances (n - 1 = 1) are
    # 2, 2 and 2, 8: all deviations exceed 1, so no std loss over the batch.
    assert terms.std.item() == 0
    # Covariances: time 0, 2 * 1 * 1 = 2; time 1, 2 * (-1 * 2) = -4. Squared off-diagonals
    # 2 * 4 and 2 * 16 over D^2 - D = 2: 4 and 16, mean 10.
    assert terms.cov.item() == pytest.approx(10)
    # Over time, row 0 centred: (-1, -1), (-1, 2); variances 0 and 4.5: deviations
    # sqrt(1e-4) = 0.01 and above 1. The loss is 0.99 in one of two dimensions, in both rows.
    assert terms.std_t.item() == pytest.approx(0.495, abs=1e-4)
    # Neighbours: differences (0, 4) and (0, -2): squares 0, 16, 0, 4, mean 5.
    assert terms.temp_align.item() == pytest.approx(5)
    assert terms.idm is None
    expected = 12 * 10 + 0.7 * 0.495 + 0.2 * 5
    assert terms.weighted().item() == pytest.approx(expected, abs=1e-3)


def test_collapsed_latents_are_charged_by_the_std_term():
    assert pldm_terms(torch.ones(4, 3, 5)).std.item() == pytest.approx(0.99)


def test_the_inverse_head_reads_next_before_now():
    head = InverseDynamics(2, 1, hidden=4)
    seen = []
    head.net.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    z = torch.tensor([[[1.0, 2], [3, 4]]])
    actions = torch.tensor([[[0.5]]])
    terms = pldm_terms(z, actions=actions, inverse=head)
    assert seen[0].tolist() == [[[3, 4, 1, 2]]]
    assert terms.idm.item() == pytest.approx((head(z).item() - 0.5) ** 2, rel=1e-5)


@pytest.mark.swm
def test_terms_equal_stable_worldmodels():
    if importlib.util.find_spec("stable_worldmodel") is None:
        pytest.skip("stable-worldmodel is not installed")
    loss = importlib.import_module("stable_worldmodel.wm.loss").PLDMLoss()
    g = torch.Generator().manual_seed(0)
    z = torch.randn(6, 4, 5, generator=g) * 0.5 + 1
    theirs = loss(z)
    ours = pldm_terms(z)
    for name in ("std", "std_t", "cov", "cov_t", "temp_align"):
        torch.testing.assert_close(getattr(ours, name), theirs[f"{name}_loss"])
    assert set(DEFAULT_WEIGHTS) == set(PLDMTerms.__slots__)
