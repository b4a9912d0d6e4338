"""The score section: factors recomputed from their ingredients, charts that mix no signs."""

from __future__ import annotations

import math
import re
import sqlite3

import pytest

from dreamcheck.errors import Abstention
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.reports import verify_study, write_report
from dreamcheck.reports.score_charts import (
    capacity_spectrum,
    error_against_tolerance,
    factor_bars,
    gap_histogram,
    rank_dots,
)
from dreamcheck.reports.score_statistics import factor_value


def checkpoint(name="run__epoch1", **changes):
    made = {
        "cell_id": name,
        "task": "toy",
        "factors": "VIS",
        "scale": "factors VIS",
        "vis": 0.6826894921 * 0.5 * 0.75,
        "veracity": 0.6826894921,
        "influence": 0.5,
        "sobriety": 0.75,
        "reasons": {},
        "saturated": [],
        "binding": "influence",
        "d_tol": 2.0,
        "d_tol_half": 1.0,
        "sigma_roll": 1.0,
        "nmse_curve": [0.01, 0.04],
        "covariance_trace": 25.0,
        "m_emp": 41.0,
        "tau": 82.0,
        "spectrum": [math.e**2 - 1, 0.0],
        "gaps": [-1.0, -2.0, -0.1, 3.0],
        "gap_resolution": 0.2,
        "near_tie_below": 0.2,
        "horizon": 2,
        "frameskip": 5,
        "width": 192,
        "width_status": "calibrated",
        "search": "mini-cem",
        "nats_per_effective_dimension": 2.0,
        "samples_per_dimension": 5.0,
        "baselines": None,
    }
    return {**made, **changes}


def test_factors_are_recomputed_from_what_they_are_made_of():
    found = checkpoint()
    # Half the tolerance is one sigma: erf(1/√2). 41 of 82 nats. One gap of four above zero.
    assert factor_value(found, "veracity") == pytest.approx(0.6826894921, abs=1e-9)
    assert factor_value(found, "influence") == 0.5
    assert factor_value(found, "sobriety") == 0.75
    with pytest.raises(Abstention, match="only 3 pairs"):
        factor_value(checkpoint(reasons={"veracity": "only 3 pairs"}), "veracity")
    with pytest.raises(Abstention, match="not among"):
        factor_value(checkpoint(factors="VS"), "influence")


def keep(directory, *found):
    return record_diagnosis(
        directory,
        name="score",
        subject={"probe": "0" * 64, "probe_name": "p", "num_rows": 100, "num_episodes": 4},
        inputs={"criterion": {"tolerance": 1.0, "unit": "m"}, "settings": {"fast": False}},
        result={"checkpoints": list(found)},
    )


def test_an_altered_gap_changes_the_shown_score_and_is_named(tmp_path):
    keep(tmp_path / "d", checkpoint(), checkpoint("run__epoch2", binding="sobriety"))
    page = write_report(tmp_path / "d").read_text(encoding="utf-8")
    assert ">0.2560<" in page  # 0.68269 x 0.5 x 0.75
    assert "&lt;t" not in page and verify_study(tmp_path / "d").ok
    db = sqlite3.connect(tmp_path / "d/evidence.sqlite")
    db.execute("UPDATE records SET payload = replace(payload, '[-1.0,-2.0', '[1.0,-2.0')")
    db.commit()
    db.close()
    problems = "\n".join(map(str, verify_study(tmp_path / "d").problems))
    assert "score" in problems and "sobriety" in problems


def test_abstentions_are_reasons_and_scales_are_not_ranked(tmp_path):
    lost = checkpoint(
        "b", vis=None, veracity=None, binding="", reasons={"veracity": "only <3> pairs"},
        scale="another", nmse_curve=[], d_tol=None, d_tol_half=None,
    )  # fmt: skip
    keep(tmp_path / "d", checkpoint("a"), lost)
    page = write_report(tmp_path / "d").read_text(encoding="utf-8")
    assert "veracity: abstained" in page and "only &lt;3&gt; pairs" in page
    assert "cannot be ranked against each other" in page
    assert verify_study(tmp_path / "d").ok


def test_the_limiting_bar_is_the_one_that_is_named():
    chart = factor_bars([checkpoint()])
    assert chart.count("◀ limits") == 1 and "0.500 ◀ limits" in chart
    assert "influence: left out" in factor_bars([checkpoint(influence=None, factors="VS")])


def test_no_bar_of_the_histogram_mixes_the_two_signs():
    chart = gap_histogram(checkpoint(gaps=[-1.0, -0.01, 0.01, 0.02, 3.0]))
    bars = re.findall(r'class="dot (c\d)" x="([\d.]+)".*?<title>(\d+) anchors', chart)
    worse = sum(int(n) for css, _, n in bars if css == "c3")
    better = sum(int(n) for css, _, n in bars if css == "c1")
    assert (worse, better) == (2, 3)
    assert max(float(x) for c, x, _ in bars if c == "c3") < min(
        float(x) for c, x, _ in bars if c == "c1"
    )
    assert gap_histogram(checkpoint(gaps=[])) == ""


def test_the_error_is_drawn_in_half_tolerances():
    # NMSE 0.01 and 0.04 of variance 25 are errors 0.5 and 1.0; half the tolerance is 1.
    chart = error_against_tolerance([checkpoint()])
    assert "step 1: 0.50" in chart and "step 2: 1.00" in chart
    assert error_against_tolerance([checkpoint(d_tol_half=None)]) == ""


def test_the_spectrum_sums_to_the_capacity():
    # ½ log(1 + e² − 1) = 1 nat in the first direction, none in the second.
    assert "1.0 nats in all" in capacity_spectrum([checkpoint()])
    assert capacity_spectrum([checkpoint(spectrum=[])]) == ""


def test_the_epoch_is_the_rule_of_the_ranking_chart():
    rows = [
        {"metric": "vis", "rho": 0.5, "partial_given_epoch": -0.2},
        {"metric": "epoch", "rho": 0.8, "partial_given_epoch": None},
    ]
    chart = rank_dots("a", rows)
    assert "epoch alone: +0.80" in chart and "vis given epoch: -0.20" in chart
