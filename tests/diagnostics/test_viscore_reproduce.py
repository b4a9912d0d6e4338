"""The released tables, recomputed: against expected.json, and against the numbers the paper prints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dreamcheck.diagnostics.viscore.meta import (
    calibration_statistic,
    cluster_bootstrap,
    pooled_statistic,
)
from dreamcheck.diagnostics.viscore.meta.released import Released
from dreamcheck.errors import EvidenceError, ExitCode, UsageError
from dreamcheck.reproduce.viscore import reproduce_viscore

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "viscore"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the released tables (../shared/data/viscore) are not here"
)


@pytest.fixture(scope="module")
def report():
    return reproduce_viscore(DATA, resamples=0)


def test_every_deterministic_value_agrees(report):
    assert report.ok, report.lines(only_misses=True)
    assert len(report.checks) == 437 and report.exit_code == ExitCode.DONE


def test_intervals_of_the_score_agree_within_the_spread_of_bootstrap_seeds():
    expected = json.loads((DATA / "expected.json").read_text())["values"]
    # The first two statistics of the stream: pooled correlation and calibration of the score.
    pool, rng = Released.read(DATA).development, np.random.default_rng(0)
    for key, statistic in (("rho_pooled", pooled_statistic), ("calib", calibration_statistic)):
        got = cluster_bootstrap(pool, "vis", statistic, rng=rng)
        for end, value in (("lo", got.low), ("hi", got.high)):
            entry = expected[f"table6/development/vis/ci95_{key}/{end}"]
            assert value == pytest.approx(entry["value"], abs=entry["abs_tol"])


# (key, printed value, half a unit of its last digit): spec section 18 and the paper's tables.
PRINTED = [
    ("table6/heldout_method/vis/calib_frozen_fit137", 8.8, 0.05),
    ("table6/heldout_method/m_emp/calib_frozen_fit137", 11.3, 0.05),
    ("table6/heldout_method/constant_reference_fit137", 12.8, 0.05),
    ("table6/heldout_dataset/vis/calib_frozen_fit137", 13.9, 0.06),
    ("table6/heldout_dataset/m_emp/calib_frozen_fit137", 20.4, 0.05),
    ("table6/heldout_dataset/vis/calib_frozen_fit472", 11.5, 0.05),
    ("table6/heldout_method/influence/rho_pooled", 0.09, 0.005),
    ("table6/heldout_method/m_emp/rho_pooled", 0.12, 0.005),
    ("tau_sweep/fit472/55/calib", 8.1, 0.05),
    ("tau_sweep/development137/82/calib", 10.2, 0.05),
    ("influence_saturated_fraction/fit472/pusht", 0.87, 0.005),
    ("knee/fit472/tworoom/above", 0.56, 0.005),
    ("table10/summary/n_positive", 18, 0),
    ("table10/summary/median_within_rho", 0.67, 0.005),
    ("planning/ood_epoch10/lewm_b128/d25/mean", 80.3, 0.05),
    ("planning/ood_epoch10/lewm_b128/d50/mean", 62.0, 0.05),
    ("planning/ood_epoch10/lewm_b128/d75/mean", 44.1, 0.05),
    ("planning/short/viswm_b128/cube/single_seed_peak_mean", 77.3, 0.05),
    ("planning/short/viswm_b128/tworoom/single_seed_peak_mean", 97.3, 0.05),
    ("labels/fit472_not_in_success_labels", 13, 0),
    ("labels/development_single_seed", 131, 0),
    ("table6/heldout/runs", 33, 0),
]


@pytest.mark.parametrize("key, printed, half_a_digit", PRINTED)
def test_values_without_an_expectation_agree_with_print(report, key, printed, half_a_digit):
    assert report.values[key] == pytest.approx(printed, abs=half_a_digit + 1e-9)


def test_a_changed_label_is_a_miss(tmp_path):
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("golden"))
    table = tmp_path / "pool_manifest.csv"
    table.chmod(0o644)
    lines = table.read_text().splitlines()
    row = next(i for i, line in enumerate(lines) if ",dmc,5,dev," in line)
    fields = lines[row].split(",")
    fields[9] = "3.0"
    lines[row] = ",".join(fields)
    table.write_text("\n".join(lines) + "\n")
    report = reproduce_viscore(tmp_path, resamples=0)
    assert not report.ok and report.exit_code == ExitCode.INTEGRITY
    with pytest.raises(EvidenceError, match="table6/development/"):
        report.raise_for_misses()


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(UsageError, match="pool_manifest.csv is not in"):
        reproduce_viscore(tmp_path)


def test_the_written_report_holds_checks_and_every_value(report, tmp_path):
    report.write_json(tmp_path / "out.json")
    got = json.loads((tmp_path / "out.json").read_text())
    assert set(got) == {"checks", "values"} and len(got["values"]) > 600
    # A constant metric has no correlation: null, not zero.
    assert got["values"]["table6/heldout/influence/rho_cube"] is None
