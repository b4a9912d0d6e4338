"""The golden vectors, end to end through the public API, driven by examples/score_arrays.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from dreamcheck.diagnostics.viscore import (
    ScoreSettings,
    score,
)
from dreamcheck.diagnostics.viscore.influence import (
    action_responses,
    noise_covariance,
    one_step_residuals,
    residual_windows,
)
from dreamcheck.diagnostics.viscore.rollouts import Forecaster

EXAMPLE = Path(__file__).parents[2] / "examples" / "score_arrays.py"
spec = importlib.util.spec_from_file_location("score_arrays", EXAMPLE)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

GOLDEN = Path(__file__).parents[2].parent / "shared" / "data" / "viscore" / "golden"
CASES = ("healthy", "collapsed", "noisy")

needs_golden = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="the golden vectors (../shared/data/viscore/golden) are not here"
)


def load(case: str):
    """Model, criterion, probe, bank, expected scalars and arrays of a golden case."""
    parts = example.load_case(GOLDEN / f"{case}.npz")
    with np.load(GOLDEN / f"{case}.npz") as f:
        return (*parts, dict(f))


def close(got: float, expected: float | None) -> bool:
    if expected is None:
        return bool(np.isnan(got))
    return got == pytest.approx(expected, rel=1e-4, abs=1e-12)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@needs_golden
@pytest.mark.parametrize("case", CASES)
def test_the_released_search_noise_gives_the_golden_record(case):
    model, criterion, probe, bank, expected, arrays = load(case)
    got = score(
        model,
        criterion,
        probe,
        bank=bank,
        cell_id=expected["cell_id"],
        settings=ScoreSettings(reference=True, noise="torch"),
    )
    for ours, theirs in {
        "vis": "vis",
        "veracity": "veracity",
        "influence": "influence",
        "sobriety": "sobriety",
        "d_tol": "d_tol_grade",
        "d_tol_half": "d_tol_veracity",
        "sigma_roll": "sigma_roll",
        "nmse": "nmse_ol",
        "covariance_trace": "tr_sigma_z",
        "m_emp": "m_emp",
        "m_emp_one_step": "m_emp_1step",
        "gap_resolution": "gap_resolution",
    }.items():
        assert close(getattr(got, ours), expected[theirs]), (ours, getattr(got, ours), theirs)
    assert got.p_hat == expected["p_hat"]
    assert got.num_pair_candidates == expected["n_pairs"]
    assert got.num_gaps_below_resolution == expected["anchors_with_abs_gap_below_resolution"]
    assert list(got.saturated) == expected["saturated"] and got.status == expected["status"]
    assert close(got.baselines.straightness, expected["straightness"])
    assert close(got.baselines.probe_r2, expected["probe_r2"])
    np.testing.assert_allclose(got.nmse_curve, arrays["ref_nmse_curve"], rtol=1e-4)
    np.testing.assert_allclose(got.gaps, arrays["ref_gaps"], atol=1e-4)


@needs_golden
@pytest.mark.parametrize("case", CASES)
def test_injected_numpy_noise_gives_the_golden_gaps(case):
    model, criterion, probe, bank, expected, arrays = load(case)
    got = score(
        model,
        criterion,
        probe,
        bank=bank,
        cell_id=expected["cell_id"],
        settings=ScoreSettings(reference=True, noise="numpy", include="S", baselines=False),
    )
    assert got.p_hat == expected["p_hat_numpy_noise"]
    assert close(got.gap_resolution, expected["gap_resolution_numpy_noise"])
    np.testing.assert_allclose(got.gaps, arrays["ref_gaps_numpy_noise"], atol=1e-4)
    assert got.noise.startswith("numpy crc32")


VARIANTS = {
    "exclude_sobriety": ({"exclude": "sobriety"}, {}),
    "exclude_veracity": ({"exclude": ("veracity",)}, {}),
    "only_influence": ({"include": "I"}, {}),
    "tau_2": ({"tau": 2.0}, {}),
    "horizon_3": ({}, {"horizon": 3}),
    "tolerance_1e6_exclude_sobriety": ({"exclude": "s"}, {"tolerance": 1e6}),
}


@needs_golden
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_match_the_golden_record(case, variant):
    model, criterion, probe, bank, expected, _ = load(case)
    want = expected["variants"][variant]
    how, changes = VARIANTS[variant]
    got = score(
        model,
        criterion.replace(**changes),
        probe,
        bank=bank,
        cell_id=expected["cell_id"],
        settings=ScoreSettings(reference=True, noise="torch", baselines=False, **how),
    )
    assert got.factors == want["factors"] and got.status == want["status"]
    for name in ("vis", "veracity", "influence", "sobriety", "sigma_roll", "m_emp"):
        if name in want:
            assert close(getattr(got, name), want[name]), (name, getattr(got, name), want[name])
    if "saturated" in want:
        assert list(got.saturated) == want["saturated"]
    if want["status"] == "abstained":
        assert dict(got.reasons)["veracity"].startswith(
            "only 0 of 9400" if case != "noisy" else "only 0 of 11400"
        )


@needs_golden
@pytest.mark.parametrize("case", CASES)
def test_the_covariances_behind_influence_match(case):
    model, criterion, probe, bank, _, arrays = load(case)
    forecaster = Forecaster(model)
    responses, anchors = action_responses(probe, bank, forecaster, horizon=criterion.horizon)
    assert responses.shape == (64 * 32, 16) and anchors == 32
    signal = np.cov(responses.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(signal, arrays["ref_S"], rtol=1e-4, atol=1e-4 * np.abs(signal).max())
    starts = residual_windows(probe, history=model.history_max)
    noise = noise_covariance(one_step_residuals(probe, bank, forecaster, starts))
    np.testing.assert_allclose(noise, arrays["ref_E"], rtol=1e-4, atol=1e-4 * np.abs(noise).max())


def test_the_example_scores_a_world_of_its_own(capsys):
    example.main()
    out = capsys.readouterr().out
    assert "reference rule at any width (16)" in out and "limited by" in out
    assert "straight" in out and "abstained" not in out
