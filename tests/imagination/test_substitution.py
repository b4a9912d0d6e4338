"""The failure card's substitutions, on a model that is wrong exactly at walls."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.imagination.futures import Horizons
from dreamcheck.imagination.risk import RiskProbe
from dreamcheck.imagination.runner import Runner
from dreamcheck.imagination.substitution import substitute
from dreamcheck.imagination.targets import StateTarget
from dreamcheck.tasks.tworoom import GoalSeeking, TwoRoom
from toys import CentroidModel, IdentityReadout

SEEDS = list(range(16, 24))


def probe(gain=1.0, forecast=4):
    return RiskProbe(
        runner=Runner(CentroidModel(gain=gain)),
        task=TwoRoom(),
        policy=GoalSeeking(),
        target=StateTarget(IdentityReadout()),
        horizons=Horizons(history=3, forecast=forecast, frameskip=5),
        readout=IdentityReadout(),
    )


def cards(gain=1.0, forecast=4):
    return substitute(probe(gain, forecast), None, SEEDS, identity="x")


def test_a_model_that_ignores_actions_does_not_respond_and_the_world_does():
    found = cards(gain=0.0)
    assert found.imagined_response.max() == 0.0
    assert found.real_response is not None and found.real_response.mean() > 5
    np.testing.assert_allclose(found.foreign_loss, found.loss)


def test_a_model_that_adds_actions_responds_as_the_world_does_in_open_space():
    found = cards()
    assert found.real_response is not None
    assert found.imagined_response.mean() == pytest.approx(found.real_response.mean(), rel=0.5)
    # Foreign actions must hurt a model that follows them.
    assert found.foreign_loss.mean() > found.loss.mean() + 3


def test_replacing_step_k_removes_what_a_scale_error_had_added_until_then():
    # Errors of a wrong gain add up step by step; the real latent at step k takes away those up
    # to k and leaves those after it: with a constant step error e, after k = 1 of four steps the
    # later losses 2e, 3e, 4e become e, 2e, 3e.
    found = cards(gain=0.0)
    own = probe(gain=0.0)
    batch = own.imagine(None, SEEDS)
    real = batch.real.double().numpy()
    k = 2
    expected = np.abs(real[:, 3 + k - 1 : 3 + k] - real[:, 3 + k :]).mean(axis=(1, 2))
    np.testing.assert_allclose(found.replaced_after[:, k - 1], expected, rtol=1e-6)
    assert (found.replaced_after.mean(axis=0) < found.replaced_before.mean(axis=0)).all()


def test_the_loss_and_the_loss_before_replacement_are_the_risk_probes_own():
    own = probe()
    found = cards()
    rows = own.rows(None, SEEDS)
    np.testing.assert_allclose(found.loss, [r.loss for r in rows])
    np.testing.assert_allclose(
        found.replaced_before[:, 1], [np.mean(r.steps[2:]) for r in rows], rtol=1e-6
    )
    np.testing.assert_allclose(found.readout_error, [r.readout_error for r in rows])


def test_re_encoding_a_latent_that_is_a_place_changes_nothing_beyond_the_renderers_grain():
    found = cards(gain=0.8)
    assert found.reencoded_reason is None
    assert np.abs(found.reencoded_after - found.replaced_before).max() < 1.0


def test_a_forecast_of_one_step_has_nothing_to_replace():
    found = cards(forecast=1)
    assert found.replaced_before is None and found.reencoded_after is None


def test_the_exchange_of_actions_is_the_same_each_time():
    np.testing.assert_array_equal(cards().foreign_loss, cards().foreign_loss)
