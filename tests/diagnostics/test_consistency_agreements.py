"""What a page of experiments says of the paper's findings, from made numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dreamcheck.diagnostics.consistency import experiments
from dreamcheck.diagnostics.consistency.experiments import Budget, Trained, run_experiments
from dreamcheck.diagnostics.consistency.experiments_page import (
    AGREES,
    DIFFERS,
    NOT_ASKED,
    OPEN,
    agreements,
)
from dreamcheck.errors import UsageError

NOTHING = dict.fromkeys(("drift", "planner", "geometry", "collapse", "sensitivity"))


def cut(value, low, high):
    return {"value": value, "low": low, "high": high, "num_groups": 16}


def cell(name, base, control, acpc, low, high):
    return {
        "name": name, "base_mae": base, "best_control_mae": control, "acpc_mae": acpc,
        "vs_base": cut((base - acpc) / base, low, high),
        "vs_control": cut((control - acpc) / control, low, high),
    }  # fmt: skip


def verdicts(**parts):
    return [a.verdict for a in agreements({**NOTHING, "reference": "plain", **parts})]


def test_an_interval_across_zero_establishes_nothing():
    assert verdicts(drift={"cells": [cell("a", 2.0, 2.0, 1.0, 0.1, 0.8)]}) == [AGREES] * 3
    both = [cell("a", 2.0, 2.0, 1.0, 0.1, 0.8), cell("b", 2.0, 2.0, 1.9, -0.1, 0.2)]
    assert verdicts(drift={"cells": both}) == [OPEN, OPEN, AGREES]
    worse = [cell("a", 1.0, 1.0, 2.0, -2.0, -0.5)]
    assert verdicts(drift={"cells": worse}) == [DIFFERS] * 3
    lone = [cell("a", 2.0, 2.0, 1.0, None, None)]
    assert verdicts(drift={"cells": lone}) == [OPEN, OPEN, AGREES]


def weight(w, spread, clean, ir, sr):
    rate = None if clean is None else {"value": clean, "low": clean - 0.1, "high": clean + 0.1}
    return {"weight": w, "spread": spread, "clean": rate, "ir_raw": ir, "sr": sr}


def test_the_papers_own_collapse_agrees_with_itself():
    # The paper's table: weights 0 and 0.01 to 0.03.
    rows = [weight(0.0, 0.006, 0.333, 0.048, 0.066), weight(0.01, 17.174, 0.963, 1.026, 0.967),
            weight(0.02, 17.633, 0.993, 0.144, 0.984), weight(0.03, 18.686, 0.98, 0.138, 0.984)]  # fmt: skip
    assert verdicts(collapse={"rows": rows}) == [AGREES] * 4
    same = [weight(0.0, 9.0, 0.97, 2.0, 0.99), *rows[1:]]
    assert verdicts(collapse={"rows": same}) == [DIFFERS, DIFFERS, DIFFERS, DIFFERS]
    unsure = [weight(0.0, 0.006, 0.9, 0.048, 0.066), *rows[1:]]
    assert verdicts(collapse={"rows": unsure})[1] == OPEN
    assert verdicts(collapse={"rows": rows[1:]}) == [NOT_ASKED] * 4
    unplanned = [weight(0.0, 0.006, None, 0.048, 0.066), *rows[1:]]
    assert verdicts(collapse={"rows": unplanned})[1] == NOT_ASKED


def test_geometry_and_sensitivity_ask_for_an_augmented_checkpoint():
    marks = [{"name": "plain", "role": "reference"}, {"name": "noisy", "role": "augmented"}]
    geometry = [
        {"name": n, "space": s, "median_ratio": m, "disjoint_fraction": d}
        for n, m, d in (("plain", 1.4, 0.0), ("noisy", 0.1, 0.9))
        for s in ("encoder", "rollout")
    ]
    ratios = [{"name": "noisy", "ratio": 0.05}, {"name": "noisy", "ratio": 1.2}]
    parts = {"geometry": {"rows": geometry}, "sensitivity": {"rows": ratios}}
    assert verdicts(checkpoints=marks, **parts) == [AGREES] * 4 + [DIFFERS]
    assert verdicts(checkpoints=marks[:1], **parts) == [NOT_ASKED] * 5


def test_a_reference_trained_under_noise_is_refused():
    models = {"a": SimpleNamespace()}
    with pytest.raises(UsageError, match="noise up to 0.08"):
        run_experiments(models, {"a": Trained(0.08)}, None, task="t")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tides"):
        run_experiments(models, {"a": Trained()}, None, task="t", names=["tides"])  # type: ignore[arg-type]


def test_a_recipe_tells_noise_weight_and_what_is_fixed(monkeypatch):
    recipe = {"name": "x", "objective": {"weight": 0.05, "regulariser": "sigreg"}, "seed": 0,
              "measure": {"recalibration_batches": 100, "windows": 5}}  # fmt: skip

    def told(**changes):
        monkeypatch.setattr(experiments, "recorded_recipe", lambda c: {**recipe, **changes})
        return experiments.trained_as("any")

    base = told()
    assert (base.sigma_max, base.weight) == (0.0, 0.05)
    assert told(objective={"weight": 0.0, "regulariser": "sigreg"}).otherwise == base.otherwise
    assert told(augment={"sigma_max": 0.08}).sigma_max == 0.08
    # What is measured changes no network, but for the batches its statistics are settled on.
    assert told(measure={"recalibration_batches": 100, "windows": 9}).otherwise == base.otherwise
    assert told(measure={"recalibration_batches": 9}).otherwise != base.otherwise
    assert told(seed=1).otherwise != base.otherwise
    monkeypatch.setattr(experiments, "recorded_recipe", lambda c: None)
    assert experiments.trained_as("any") == Trained()


def test_another_perturbation_takes_its_own_severities():
    blur = Budget().under("blur")
    assert blur.severities == (3.0, 7.0, 15.0) == blur.geometry_severities
    assert (blur.collapse_severity, blur.sensitivity_severity) == (3.0, 15.0)
    assert Budget().under("gaussian", [0.1]).severities == (0.1,)
    assert Budget().under("gaussian").geometry_severities == (0.01, 0.04, 0.08)
