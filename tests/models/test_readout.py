"""Readouts and support references: fitted, saved, loaded, bound to their model."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

from dreamcheck.errors import Abstention, CheckpointError, InterfaceMismatch, UsageError
from dreamcheck.models.readout import (
    CrossFitted,
    column_errors,
    load_crossfitted,
    load_readout,
    load_readouts,
)
from dreamcheck.models.reference import SupportReference, load_support
from dreamcheck.tasks.protocol import Column
from dreamcheck.training.probes import fit_probe

COLUMNS = (Column("x", "px"), Column("y", "px"))


def curved(n, *, seed=0):
    """Positions on a square and latents that bend them: linear reading must fall short."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(20, 200, (n, 2))
    u = (states - 110) / 90
    latents = np.stack(
        [np.sin(2 * u[:, 0]), np.cos(2 * u[:, 0]), np.sin(2 * u[:, 1]), np.cos(2 * u[:, 1])], axis=1
    )
    return torch.from_numpy(latents).float(), states


@functools.cache
def probe(kind="mlp", **options):
    options = {"steps": 200, "name": "a", "model_identity": "m" * 64, **options}
    z, s = curved(2000)
    fitted = fit_probe(z, s, kind=kind, columns=COLUMNS, fitted_on="2000 frames", **options)
    return fitted.measured(*curved(500, seed=1), "500 other frames")


def test_errors_per_column_are_the_hand_worked_ones():
    # Residuals 1, -1, 0, 0 around actual values 0, 2, 4, 6 (mean 3, squares 20): R2 = 1 - 2/20.
    actual = np.array([[0.0], [2.0], [4.0], [6.0]])
    predicted = actual + np.array([[1.0], [-1.0], [0.0], [0.0]])
    (error,) = column_errors(predicted, actual, COLUMNS[:1])
    assert error.r2 == pytest.approx(0.9)
    assert error.mae == pytest.approx(0.5)
    assert error.rmse == pytest.approx(np.sqrt(0.5))
    (flat,) = column_errors(predicted, np.ones((4, 1)), COLUMNS[:1])
    assert np.isnan(flat.r2)


def test_the_ridge_probe_equals_scikit_learns_on_the_same_design():
    from sklearn.linear_model import Ridge

    z, s = curved(300)
    ours = fit_probe(z, s, kind="ridge", columns=COLUMNS, model_identity="m")
    x = z.double().numpy()
    design = np.c_[(x - x.mean(0)) / (x.std(0) + 1e-8), np.ones(300)]
    # R1: the penalty of 1 falls on the constant too, so it is a column like any other.
    reference = Ridge(alpha=1.0, fit_intercept=False).fit(design, s)
    np.testing.assert_allclose(ours.predict(z), reference.predict(design), rtol=1e-4, atol=1e-2)


def test_a_network_reads_a_curved_latent_that_a_line_cannot():
    network, line = probe("mlp"), probe("ridge")
    assert network.r2 > 0.99 > line.r2
    assert network.errors[0].unit == "px" and network.mae < line.mae


def test_fitting_twice_gives_one_identity_and_another_seed_another():
    assert probe().identity == probe.__wrapped__().identity
    assert probe(seed=5).identity != probe().identity
    assert probe(model_identity="n" * 64).identity != probe().identity


def test_a_row_does_not_depend_on_its_batch_mates():
    fitted = probe()
    z, _ = curved(300, seed=2)
    whole = fitted.predict(z)
    np.testing.assert_array_equal(fitted.predict(z[:1]), whole[:1])
    np.testing.assert_array_equal(fitted.predict(z[100:117]), whole[100:117])


def test_a_probe_is_stored_as_data_and_comes_back(tmp_path):
    written = probe()
    written.save(tmp_path)
    probe("ridge", name="ridge").save(tmp_path)
    back = load_readouts(tmp_path)
    assert set(back) == {"a", "ridge"}
    assert back["a"].identity == written.identity
    assert back["a"].errors == written.errors and back["a"].heldout_on == "500 other frames"
    z, _ = curved(10, seed=3)
    np.testing.assert_array_equal(back["a"].predict(z), written.predict(z))


def test_unusable_readouts_are_refused(tmp_path):
    probe().save(tmp_path)
    with pytest.raises(CheckpointError, match="no readout 'b'; it has a"):
        load_readout(tmp_path, "b")
    path = tmp_path / "readout-a.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "kind": "lambda"}))
    with pytest.raises(CheckpointError, match="kind 'lambda'"):
        load_readout(tmp_path, "a")
    path.write_text(json.dumps({**meta, "latent_width": 192}))
    with pytest.raises(CheckpointError, match="width 4 found, 192 expected"):
        load_readout(tmp_path, "a")
    path.write_text(json.dumps({**meta, "format_version": 9}))
    with pytest.raises(CheckpointError, match="dreamcheck-readout 9"):
        load_readout(tmp_path, "a")


def test_a_probe_refuses_latents_and_models_it_was_not_fitted_on():
    fitted = probe()
    with pytest.raises(InterfaceMismatch, match=r"\[N, 4\]"):
        fitted.predict(torch.zeros(3, 5))

    class Other:
        identity = "o" * 64

    with pytest.raises(InterfaceMismatch, match="fitted on model mmmm"):
        fitted.require(Other())
    with pytest.raises(UsageError, match="not one of ridge, mlp"):
        probe("forest")


def test_two_crossfitted_probes_report_where_they_disagree(tmp_path):
    a, b = probe(), probe(seed=5, name="b")
    a.save(tmp_path)
    b.save(tmp_path)
    both = load_crossfitted(tmp_path)
    z, _ = curved(50, seed=4)
    np.testing.assert_array_equal(both.predict(z), (a.predict(z) + b.predict(z)) / 2)
    np.testing.assert_allclose(
        both.disagreement(z), np.abs(a.predict(z) - b.predict(z)).mean(axis=1)
    )
    assert both.heldout_mae.shape == (2,) and both.identity not in (a.identity, b.identity)
    # Far outside of what either saw they part.
    assert both.disagreement(10 * z).mean() > 5 * both.disagreement(z).mean()
    with pytest.raises(InterfaceMismatch, match="not fitted on one model"):
        CrossFitted(a, probe(name="b", model_identity="n" * 64))


def test_one_probe_alone_has_nothing_to_disagree_with_and_says_what_has():
    with pytest.raises(Abstention, match=r"'a' is one probe.*CrossFitted\(a, b\)"):
        probe().disagreement(curved(3)[0])


def test_the_support_reference_comes_back_with_its_own_distances(tmp_path):
    z, s = curved(50)
    reference = SupportReference(
        states=s.astype(np.float32), latents=z.numpy(), episodes=np.arange(50) // 10,
        frames=np.arange(50) % 10, columns=COLUMNS, model_identity="m", source="toy",
        constants={"wall.axis": 1, "agent.color": "red"},
    )  # fmt: skip
    reference.save(tmp_path)
    back = load_support(tmp_path)
    assert back is not None
    np.testing.assert_array_equal(back.states, reference.states)
    np.testing.assert_array_equal(back.latents, reference.latents)
    assert back.constants == reference.constants and back.columns == COLUMNS
    # Leave-one-out: the distance to the nearest other row, worked out the slow way.
    apart = np.linalg.norm(z[:, None].numpy() - z[None].numpy(), axis=2)
    np.fill_diagonal(apart, np.inf)
    assert back.latent_distances[3] == pytest.approx(np.median(apart.min(axis=1)), rel=1e-5)
    stored = json.loads((tmp_path / "support.json").read_text())
    assert stored["latent_distances"] == back.latent_distances
    assert load_support(tmp_path / "elsewhere") is None


def test_a_support_reference_of_another_layout_is_refused(tmp_path):
    z, s = curved(5)
    SupportReference(
        states=s, latents=z.numpy(), episodes=np.zeros(5), frames=np.arange(5), columns=COLUMNS,
        model_identity="m", source="toy",
    ).save(tmp_path)  # fmt: skip
    path = tmp_path / "support.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "columns": [["x", "px"]]}))
    with pytest.raises(CheckpointError, match="names 1 columns"):
        load_support(tmp_path)
