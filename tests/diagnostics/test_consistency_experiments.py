"""Error drift, planner regret, local geometry, sensitivity: by hand, by law, by the paper's tables."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_consistency_laws import SEARCH, episodes, lewm

from dreamcheck.diagnostics.consistency.anchors import draw_anchors
from dreamcheck.diagnostics.consistency.drift import (
    CONTROLS,
    DriftRows,
    destroyed_blocks,
    drift_cell,
    drift_rows,
)
from dreamcheck.diagnostics.consistency.geometry import geometry_of, local_geometry
from dreamcheck.diagnostics.consistency.labels import label_rule
from dreamcheck.diagnostics.consistency.measuring import measure
from dreamcheck.diagnostics.consistency.planner import choices
from dreamcheck.diagnostics.consistency.reduction import (
    drift_over_runs,
    reduction,
    regret_over_runs,
)
from dreamcheck.diagnostics.consistency.regret import (
    RegretRow,
    baseline_features,
    identity_changes_no_plan,
    regret_regression,
    regret_rows,
    released_features,
)
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.diagnostics.consistency.sensitivity import radius_at, radius_sensitivity
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.streams import stream

torch.set_num_threads(1)
PAPER = Path(__file__).parents[3] / "shared" / "data" / "acpc"
NOISE = Perturbation("gaussian", 0.05)


@pytest.fixture(scope="module")
def rollouts():
    return PairedRollouts(lewm(), draw_anchors(episodes(), lewm(), count=6, horizon=5))


def blind() -> object:
    """A model whose predictor does not listen to its actions."""
    model = lewm()
    with torch.no_grad():
        for layer in model.module.predictor.layers:
            layer.modulation.weight.zero_()
    return model


def made_rows(seed: int, *, listens_to: str) -> DriftRows:
    rng = stream(seed, "drift-test", listens_to)
    n, group = 48, [f"w{i % 8}" for i in range(48)]
    severity, shift, one, full = rng.uniform(0, 1, (4, n))
    control = {how: rng.uniform(0, 1, n) for how in CONTROLS}
    drift = {"acpc": full, "shuffled": control["shuffled"], "base": shift}[listens_to]
    return DriftRows(tuple(group), severity, shift, one, full, control, 2 * drift)


def test_the_feature_that_makes_the_drift_wins():
    cell = drift_cell(made_rows(0, listens_to="acpc"))
    told = cell.to_dict()
    assert told["acpc_mae"] < 0.2 * told["base_mae"]
    assert told["folds_over_both"] == told["folds_over_control"] == told["folds"] == 8
    assert told["vs_base"]["low"] > 0.5
    other = drift_cell(made_rows(0, listens_to="shuffled"))
    assert other.best_control == "shuffled" and other.to_dict()["vs_control"]["value"] < 0
    assert other.fold_wins == (0, 0)


def test_an_action_blind_model_gives_the_controls_the_same_feature():
    """Without an ear for actions, destroying them changes nothing: a reduction of exactly 0."""
    held = draw_anchors(episodes(), blind(), count=6, horizon=5)
    rows = drift_rows(PairedRollouts(blind(), held), severities=(0.05,), draws=1)
    for how in CONTROLS:
        assert np.array_equal(rows.control[how], rows.acpc_h)
    assert drift_cell(rows).to_dict()["vs_control"]["value"] == 0.0


def test_rows_of_the_drift_experiment_are_the_pairwise_quantities(rollouts):
    rows = drift_rows(rollouts, severities=(0.02, 0.05), draws=2)
    assert len(rows.drift) == 2 * 2 * 6 and (rows.drift <= rows.acpc_h + 1e-5).all()
    pairing = rollouts.anchors.pairing(label_rule("tworoom"))
    found = measure(rollouts.model, rollouts.anchors, [NOISE], pairing, draws=2).at(NOISE)
    at = rows.severity == 0.05
    assert np.array_equal(rows.acpc_h[at], found.distances.ravel())
    assert np.array_equal(rows.acpc_1[at], found.one_step.ravel())
    assert np.array_equal(rows.encoder_shift[at], found.encoder_shift.ravel())
    assert np.array_equal(rows.drift[at], found.drift.ravel())
    assert any(not np.allclose(rows.control[how], rows.acpc_h) for how in CONTROLS)


def test_destroyed_actions_are_zero_anothers_or_out_of_order():
    blocks = np.arange(5 * 4 * 2, dtype=np.float32).reshape(5, 4, 2)
    scenes = [f"{i}:0" for i in range(5)]
    assert not destroyed_blocks(blocks, scenes, how="zeroed").any()
    swapped = destroyed_blocks(blocks, scenes, how="swapped")
    assert all((swapped[i] != blocks[i]).all() for i in range(5))
    assert sorted(swapped[:, 0, 0].tolist()) == blocks[:, 0, 0].tolist()
    shuffled = destroyed_blocks(blocks, scenes, how="shuffled")
    for i in range(5):
        assert sorted(shuffled[i, :, 0].tolist()) == blocks[i, :, 0].tolist()
        assert not np.array_equal(shuffled[i], blocks[i])
    # A window's order belongs to it, not to its batch-mates.
    assert np.array_equal(
        destroyed_blocks(blocks[2:3], scenes[2:3], how="shuffled")[0], shuffled[2]
    )


def test_reduction_by_hand():
    # Errors 4, 4 against 1, 3: mean 4 against 2, half of it is gone.
    assert reduction([4.0, 4.0], [1.0, 3.0], ["a", "b"], identity="t").value == 0.5
    assert reduction([4.0, 4.0], [1.0, 3.0], ["a", "a"], identity="t").low is None
    with pytest.raises(Abstention, match="makes no error"):
        reduction([0.0], [0.0], ["a"], identity="t")


def test_reductions_over_runs_by_hand():
    # Run 1: tasks 4 -> 1 (0.75) and 2 -> 1 (0.5), mean 0.625; run 2: 4 -> 3, 0.25.
    cells = [
        {"run": 1, "base_mae": 4.0, "best_control_mae": 4.0, "acpc_mae": 1.0},
        {"run": 1, "base_mae": 2.0, "best_control_mae": 1.0, "acpc_mae": 1.0},
        {"run": 2, "base_mae": 4.0, "best_control_mae": 6.0, "acpc_mae": 3.0},
    ]
    drift = drift_over_runs(cells)
    assert drift["vs_base_mean"] == pytest.approx(0.4375) and drift["cells_best"] == 2
    # Sample SD of 0.625 and 0.25: 0.375 / sqrt(2).
    assert drift["vs_base_sample_sd"] == pytest.approx(0.375 / math.sqrt(2))
    # The planner's reduction is of averaged errors: run 1 gives 1 - (1 + 1) / (4 + 2) = 2/3.
    regret = regret_over_runs(
        [{**c, "baseline_mae": c["base_mae"], "expanded_mae": c["acpc_mae"]} for c in cells]
    )
    assert regret["per_run"]["1"] == pytest.approx(2 / 3)
    assert regret_over_runs(
        [{"run": 1, "baseline_mae": 2.0, "expanded_mae": 1.0}]
    )["sample_sd"] is None  # fmt: skip


def test_published_cells_give_the_published_reductions():
    if not PAPER.is_dir():
        pytest.skip("the paper's tables are not here")
    drift = json.loads((PAPER / "lewm_error_drift_cells.json").read_text())["rows"]
    found = drift_over_runs([{**r, "acpc_mae": r["acpc8_mae"]} for r in drift])
    # Paper: 55.9 +- 4.7 % against Base, 51.3 +- 3.5 % against the control, best in 12 of 12.
    assert [round(100 * found[k], 1) for k in ("vs_base_mean", "vs_base_sample_sd")] == [55.9, 4.7]
    assert round(100 * found["vs_control_mean"], 1) == 51.3 and found["cells_best"] == 12
    regret = json.loads((PAPER / "lewm_selection_regret_cells.json").read_text())["rows"]
    planner = regret_over_runs([{**r, "expanded_mae": r["plus_h5_mae"]} for r in regret])
    assert [round(100 * planner[k], 1) for k in ("mean", "sample_sd")] == [15.2, 2.0]


def planner_row(**changes: object) -> RegretRow:
    row = RegretRow("tworoom", "plain", "0:0", 0.05, False, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    return replace(row, **changes)


def test_regret_features_by_hand():
    # log1p of e - 1 is 1.
    row = planner_row(acpc_1=math.e - 1, clean_gap=math.e**2 - 1, augmented=True)
    assert np.allclose(baseline_features([row]), [[0.05, 1.0, 1.0, 2.0]])
    assert np.allclose(released_features([row]), [[0.05, 1.0, math.log(5), 2.0]])


def test_regret_that_follows_acpc_is_predicted_and_a_constant_feature_helps_nothing():
    rng = stream(0, "regret-test", "rows")
    rows = [
        planner_row(history=f"{i}:0", acpc_plan=float(a), regret=float(a), acpc_1=float(b))
        for i, (a, b) in enumerate(rng.uniform(0, 9, (60, 2)))
    ]
    told = regret_regression(rows).to_dict()
    assert told["held_out"] == "history" and told["num_groups"] == 60
    assert told["reduction"]["value"] > 0.9 and told["groups_improved"] > 50
    flat = [replace(r, acpc_plan=1.0) for r in rows]
    assert regret_regression(flat).to_dict()["reduction"]["value"] == 0.0
    # The released "five-step ACPC" is the final displacement: constant here, so no help.
    assert regret_regression(rows, released=True).to_dict()["reduction"]["value"] == 0.0
    two = rows + [replace(r, task="pusht") for r in rows]
    assert set(regret_regression(two).by_group) == {"tworoom", "pusht"}
    with pytest.raises(UsageError, match="no rows"):
        regret_regression([])


def test_rows_of_the_planner_experiment_come_from_the_paired_searches(rollouts):
    assert identity_changes_no_plan(rollouts, solver=SEARCH, steps=5) == 2
    found = choices(rollouts, [NOISE], solver=SEARCH, count=3)
    rows = regret_rows(found, rollouts, task="tworoom", checkpoint="a", augmented=True)
    assert [r.regret for r in rows] == [c.regret for c in found[NOISE]]
    moved = rollouts.points(rollouts.perturbed(NOISE)) - rollouts.points(rollouts.history)
    assert rows[1].oldest_shift == pytest.approx(np.linalg.norm(moved[1, 0]))
    assert all(r.augmented and r.severity == 0.05 for r in rows)


def test_local_geometry_by_hand():
    # Clean 0, 3, 10; farthest views 1, 1.5, 8 away; nearest others 3, 3, 7. Ratios 1/3, 1/2, 8/7.
    # Scene 0: 3 > 2.5 and 10 > 9, disjoint; scenes 1 and 2 are 7 apart, under 9.5.
    views = [[[1.0], [-0.5]], [[4.5], [3.0]], [[10.0], [2.0]]]
    found = local_geometry([[0.0], [3.0], [10.0]], views)
    told = found.to_dict()
    assert told["radius"] == [1.0, 1.5, 8.0] and told["nearest"] == [3.0, 3.0, 7.0]
    assert told["median_ratio"] == 0.5 and told["num_below"] == 2
    assert found.disjoint.tolist() == [True, False, False] and told["num_coinciding"] == 0


def test_disjoint_scenes_have_a_radius_below_their_nearest_neighbour(rollouts):
    for found in geometry_of(rollouts, severities=(0.01, 0.05), draws=2).values():
        assert found.num_views == 4
        assert (found.radius[found.disjoint] < found.nearest[found.disjoint]).all()


def test_coinciding_scenes_are_counted_and_a_collapsed_encoder_looks_perfectly_still():
    still = PairedRollouts(
        lewm(constant=True), draw_anchors(episodes(), lewm(), count=4, horizon=5)
    )
    told = geometry_of(still, severities=(0.05,), draws=1)["encoder"].to_dict()
    # Every radius is 0, and so is every distance: a picture, never a screen.
    assert told["num_coinciding"] == 4 and told["num_disjoint"] == 0 and told["median_ratio"] == 0
    with pytest.raises(UsageError, match="needed"):
        local_geometry([[0.0]], [[[1.0]]])


def test_sensitivity_by_hand():
    # One window, one draw, D = 1. Distances by step 1, 2: ACPC_1 = 1, ACPC_2 = sqrt(5 / 2).
    # Observed steps 2, 4: motion 2 over one step, median(2, 4) = 3 over two.
    clean, perturbed = [[[0.0], [0.0]]], [[[[1.0], [2.0]]]]
    observed = [[[0.0], [2.0], [6.0]]]
    assert radius_at(clean, perturbed, observed, horizon=1) == pytest.approx(0.5)
    assert radius_at(clean, perturbed, observed, horizon=2) == pytest.approx(math.sqrt(2.5) / 3)
    with pytest.raises(UsageError, match="not within"):
        radius_at(clean, perturbed, observed, horizon=3)


def test_the_full_horizon_at_the_usual_quantile_is_the_radius(rollouts):
    pairing = rollouts.anchors.pairing(label_rule("tworoom"))
    found = measure(rollouts.model, rollouts.anchors, [NOISE], pairing, draws=2).at(NOISE)
    rows = radius_sensitivity(rollouts, NOISE, draws=2)
    assert [(r["horizon"], r["quantile"]) for r in rows] == [
        (1, 0.9), (2, 0.9), (4, 0.9), (5, 0.9), (5, 0.8), (5, 0.95)
    ]  # fmt: skip
    assert rows[3]["ir_raw"] == found.radius.raw
    assert rows[4]["ir_raw"] <= rows[3]["ir_raw"] <= rows[5]["ir_raw"]
