"""Rank statistics against SciPy and closed formulas."""

import math

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import average_ranks, partial_spearman, shrinkage_slope, spearman, spearman_of


def test_spearman_agrees_with_scipy_with_and_without_ties():
    rng = np.random.default_rng(0)
    for decimals in (0, 6):
        x, y = np.round(rng.normal(size=40), decimals), np.round(rng.normal(size=40), decimals)
        assert spearman(x, y).value == pytest.approx(sps.spearmanr(x, y).statistic, abs=1e-12)


def test_ties_share_their_average_rank():
    assert average_ranks([10, 20, 20, 5]).tolist() == [2.0, 3.5, 3.5, 1.0]


def test_a_monotone_map_changes_nothing_and_a_reversal_flips_the_sign():
    rng = np.random.default_rng(1)
    x, y = rng.random(15), rng.random(15)
    rho = spearman(x, y).value
    assert spearman(np.exp(3 * x), y).value == pytest.approx(rho, abs=1e-12)
    assert spearman(-x, y).value == pytest.approx(-rho, abs=1e-12)


def test_a_constant_is_undefined_with_a_reason_and_not_zero():
    result = spearman([1, 1, 1, 1], [1, 2, 3, 4])
    assert math.isnan(result.value) and "one value" in result.reason and not result.defined
    assert "4 are needed" in spearman([1, 2, 3], [1, 2, 3], minimum=4).reason


def test_partial_spearman_with_one_control_is_the_classical_formula():
    rng = np.random.default_rng(2)
    z = rng.normal(size=60)
    x, y = z + rng.normal(size=60), z + rng.normal(size=60)
    xy, xz, yz = (sps.spearmanr(a, b).statistic for a, b in ((x, y), (x, z), (y, z)))
    formula = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, z).value == pytest.approx(formula, abs=1e-12)


def test_partial_spearman_with_two_controls_matches_the_inverse_rank_correlation():
    rng = np.random.default_rng(3)
    data = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))
    precision = np.linalg.inv(np.corrcoef([sps.rankdata(c) for c in data.T]))
    oracle = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
    ours = partial_spearman(data[:, 0], data[:, 1], data[:, 2:])
    assert ours.value == pytest.approx(oracle, abs=1e-9)


def test_a_variable_that_its_control_determines_has_no_partial_correlation():
    x = np.arange(10.0)
    assert "determined" in partial_spearman(x, np.sin(x), x**3).reason


def test_the_shrinkage_slope_is_one_without_noise_and_falls_with_it():
    rng = np.random.default_rng(4)
    truth = rng.normal(size=400)
    clean = shrinkage_slope(truth, truth + 1)
    assert clean.slope.value == pytest.approx(1.0) and clean.mean_drop == pytest.approx(-1.0)
    noisy = shrinkage_slope(truth + rng.normal(size=400), truth + rng.normal(size=400))
    assert noisy.slope.value == pytest.approx(0.5, abs=0.1)  # signal over signal plus noise
    assert not shrinkage_slope([1, 1, 1], [1, 2, 3]).slope.defined


def test_multiplicities_mean_repeated_rows():
    rng = np.random.default_rng(6)
    x, y = np.round(rng.random(36), 1), np.round(10 * rng.random(36))
    counts = rng.integers(0, 4, 36)
    repeated = np.repeat(np.arange(36), counts)
    wanted = sps.spearmanr(x[repeated], y[repeated]).statistic
    assert spearman_of(x, y)(counts.astype(float)) == pytest.approx(wanted, abs=1e-12)
    nearly = 1 + 1e-12 * np.arange(36)
    assert np.isnan(spearman_of(nearly, y, decimals=9)(np.ones(36)))
    assert spearman_of(nearly, y)(np.ones(36)) == pytest.approx(spearman(np.arange(36), y).value)
