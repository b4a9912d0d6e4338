from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.errors import Abstention
from dreamcheck.imagination.futures import Horizons
from dreamcheck.imagination.risk import RiskProbe
from dreamcheck.imagination.runner import Runner
from dreamcheck.imagination.support import Nearest, Support, stratum
from dreamcheck.imagination.targets import (
    LatentTarget,
    PixelTarget,
    StateTarget,
    reduce_steps,
    step_losses,
)
from dreamcheck.tasks.tworoom import TwoRoom
from dreamcheck.tasks.tworoom.policies import GoalSeeking
from toys import CentroidModel, IdentityReadout

OPEN = {"start_x": 40, "start_y": 100, "goal_x": 80, "goal_y": 160, "prefix": "right"}
INTO_WALL = {"start_x": 88, "start_y": 148, "goal_x": 188, "goal_y": 144, "prefix": "right"}


def probe(model=None, **changes):
    readout = IdentityReadout()
    fields = {
        "runner": Runner(model or CentroidModel()),
        "task": TwoRoom(),
        "policy": GoalSeeking(),
        "target": StateTarget(readout),
        "horizons": Horizons(history=3, forecast=8, frameskip=5),
        "readout": readout,
    } | changes
    return RiskProbe(**fields)


def test_losses_are_means_over_the_targets_numbers():
    predicted = np.array([[[1.0, 4.0], [0.0, 0.0]]])
    reference = np.array([[[0.0, 2.0], [3.0, 1.0]]])
    # |1|, |2| -> 1.5; |3|, |1| -> 2. Squares: (1 + 4)/2 = 2.5; (9 + 1)/2 = 5.
    assert step_losses(predicted, reference, discrepancy="mae").tolist() == [[1.5, 2.0]]
    assert step_losses(predicted, reference, discrepancy="mse").tolist() == [[2.5, 5.0]]
    steps = np.array([[1.0, 3.0]])
    assert reduce_steps(steps, rule="mean") == [2.0] and reduce_steps(steps, rule="final") == [3.0]


def test_a_model_that_adds_the_actions_is_right_in_open_space_and_wrong_at_a_wall():
    near, wall = probe().rows([OPEN, INTO_WALL], [0, 1])
    assert near.loss < 0.1 < 1.0 < wall.loss
    assert near.contact == 0 and wall.contact > 0
    assert near.discontinuity == 0


def test_a_model_that_imagines_nothing_moving_has_exactly_the_frozen_risk():
    row = probe(CentroidModel(gain=0.0)).rows([OPEN], [0])[0]
    assert row.loss == row.frozen and row.steps == row.frozen_steps and row.loss > 5


def test_the_floor_in_open_space_is_the_size_of_the_perturbation():
    rows = probe(floor_samples=64).rows([OPEN] * 4, [0, 1, 2, 3])
    # Starts moved by N(0, 0.5) px keep their distance: mean |N(0, 0.5)| = 0.5 * sqrt(2/pi) = 0.399.
    assert np.mean([r.floor for r in rows]) == pytest.approx(0.399, rel=0.15)


def test_the_floor_says_why_it_is_missing():
    model = CentroidModel()
    row = probe(model, target=LatentTarget(model)).rows([OPEN], [0])[0]
    assert row.floor is None and "latent target" in row.floor_reason
    assert probe(floor_samples=0).rows([OPEN], [0])[0].floor_reason == "switched off"


def test_one_probe_gives_every_reading_but_disagreement():
    class One(IdentityReadout):
        def disagreement(self, latents):
            raise Abstention("one probe")

    both = probe().rows([OPEN], [0])[0]
    row = probe(readout=One(), target=StateTarget(One())).rows([OPEN], [0])[0]
    assert row.disagreement is None and both.disagreement == 0.0
    assert (row.loss, row.true_steps) == (both.loss, both.true_steps)


def test_a_row_is_the_same_alone_and_among_others():
    inputs = [OPEN, INTO_WALL, OPEN]
    assert probe().rows(inputs, [0, 1, 2])[1] == probe().rows([INTO_WALL], [1])[0]


def test_nan_is_an_outcome_of_its_own_and_touches_nobody():
    rows = probe(CentroidModel(nan_left_of=85.0)).rows([OPEN, INTO_WALL], [0, 1])
    assert rows[0].failure.startswith("nan") and rows[0].loss is None
    assert rows[1] == probe().rows([INTO_WALL], [1])[0]


def test_the_default_reset_is_measured_without_inputs():
    rows = probe().rows(None, [0, 1])
    assert all(r.loss is not None for r in rows) and rows[0].loss != rows[1].loss


def test_latent_risk_of_a_latent_that_is_the_state_equals_state_risk():
    model = CentroidModel()
    latent = probe(model, target=LatentTarget(model)).rows([INTO_WALL], [1])[0]
    assert latent.loss == pytest.approx(probe(model).rows([INTO_WALL], [1])[0].loss)


def test_latent_targets_of_two_encoders_are_different_interfaces():
    assert LatentTarget(CentroidModel()).identity != LatentTarget(CentroidModel(gain=2)).identity


def test_a_pixel_target_without_a_decoder_abstains_and_names_the_method():
    with pytest.raises(Abstention, match="decode"):
        PixelTarget(CentroidModel())


def test_percentiles_of_nearest_distances():
    points = np.arange(100.0)[:, None]
    nearest = Nearest(points, standardise=False)
    # Every reference point has its neighbour at 1: 0.5 is nearer than all, 1.5 farther than all.
    share, index = nearest.query(np.array([[10.5], [100.5], [42.0]]))
    assert share.tolist() == [0.0, 100.0, 0.0] and index[2] == 42
    assert [stratum(p) for p in (0, 95, 95.1, 99.5, 99.6)] == ["in", "in", "edge", "edge", "out"]


def test_an_input_that_changes_what_training_never_varied_is_out_of_support():
    rng = np.random.default_rng(0)
    states = rng.uniform(14, 209, size=(500, 2))
    support = Support(states=states, latents=states, constants={"agent.speed": 5.0})
    faster = {k: v for k, v in OPEN.items() if k != "prefix"} | {"agent.speed": 7.0}
    same = faster | {"agent.speed": 5.0}
    rows = probe(support=support).rows([faster, same], [0, 0])
    assert rows[0].support_state == 100.0 and rows[1].support_state < 95
    assert len(rows[0].nearest) == 8 and support.changed_constants(same) == ()


def test_imagined_latents_far_from_training_are_flagged():
    states = np.random.default_rng(0).uniform(100, 120, size=(200, 2))
    support = Support(states=states, latents=states)
    row = probe(support=support).rows([OPEN], [0])[0]
    assert min(row.support_imagined[:2]) == 100.0
    assert torch.tensor(row.support_latent) == 100.0
