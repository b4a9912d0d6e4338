"""Laws of the whole measurement: exact zeros, bounds on random models, collapse, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.diagnostics.consistency.anchors import draw_anchors
from dreamcheck.diagnostics.consistency.examining import Settings, examine
from dreamcheck.diagnostics.consistency.labels import label_rule, label_rule_names
from dreamcheck.diagnostics.consistency.measuring import measure, relative
from dreamcheck.diagnostics.consistency.planner import choices
from dreamcheck.diagnostics.consistency.radius import Pairing
from dreamcheck.diagnostics.consistency.rollouts import PairedRollouts
from dreamcheck.errors import UsageError
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.planning.solvers import CEM
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Column

torch.set_num_threads(1)
SEARCH = CEM(num_samples=16, num_elites=4, iterations=3)
NOISE = [Perturbation("gaussian", s) for s in (0.0, 0.05)]


def lewm(seed: int = 0, *, constant: bool = False, family: str = "lewm") -> LeWM:
    torch.manual_seed(seed)
    config = LeWMConfig(
        image_size=28, patch_size=14, encoder_width=32, encoder_depth=1, encoder_heads=2,
        latent_width=8, predictor_width=16, predictor_depth=2, predictor_heads=2,
        predictor_head_width=8, predictor_mlp=32, head_hidden=16, action_width=10, history=3,
    )  # fmt: skip
    net = LeWMNet(config)
    with torch.no_grad():
        for layer in net.predictor.layers:
            layer.modulation.weight.normal_(std=0.3)
            layer.modulation.bias.normal_(std=0.3)
        if constant:
            net.projector.down.weight.zero_()
    return LeWM(
        net,
        Conventions(
            image_size=28, frameskip=5, action_dim=2, action_mean=(0, 0), action_std=(1, 1),
            history=3,
        ),
        family=family,
    )  # fmt: skip


def episodes(*, still: bool = False) -> ArrayEpisodes:
    rng = stream(3, "consistency-laws")
    lengths = np.full(4, 70)
    pixels = rng.integers(0, 256, size=(280, 3, 28, 28)).astype(np.uint8)
    if still:
        pixels[:70] = pixels[0]
    actions = rng.uniform(-1, 1, size=(280, 2))
    actions[np.cumsum(lengths) - 1] = np.nan
    return ArrayEpisodes(
        lengths=lengths, actions=actions, pixels=pixels, state=rng.uniform(0, 224, (280, 2)),
        columns=(Column("agent_x", "px"), Column("agent_y", "px")),
    )  # fmt: skip


@pytest.fixture(scope="module")
def anchors():
    return draw_anchors(episodes(), lewm(), count=12, horizon=5)


@pytest.fixture(scope="module")
def pairing(anchors):
    return anchors.pairing(label_rule("tworoom"))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_identity_moves_nothing_and_the_bounds_hold_on_random_models(anchors, pairing, seed):
    found = measure(lewm(seed), anchors, NOISE, pairing, draws=2)
    still, noisy = found.severities
    assert still.radius.raw == 0.0 and not still.distances.any() and not still.drift.any()
    assert noisy.radius.raw > 0 and noisy.violations == 0
    assert (noisy.drift <= noisy.distances + 1e-5).all()
    # Equal weights: r <= ACPC sqrt(H).
    assert (noisy.displacement <= noisy.distances * np.sqrt(5) + 1e-9).all()
    assert noisy.num_pairs == 2 * 12 and still.num_pairs == 12


def test_equal_histories_through_the_tiles_give_exactly_zero(anchors):
    r = PairedRollouts(lewm(), anchors)
    again = r.history.clone()
    one, two = r.roll([again, r.history])
    assert np.array_equal(one, two) and np.array_equal(one, r.rolled)
    assert torch.equal(r._encode(anchors.frames[:, :3].float()), r.history)


def test_sharing_changes_no_number(anchors):
    """One by one through the plain runner: the same bits as the shared rollouts."""
    model = lewm()
    r = PairedRollouts(model, anchors)
    history = r.perturbed(NOISE[1])
    alone = r.points(r.runner.rollout(history, r.blocks))
    assert np.array_equal(r.roll([r.history, history])[1], alone)


def test_a_constant_encoder_has_radius_zero_and_separation_zero(anchors, pairing):
    found = measure(lewm(constant=True), anchors, NOISE[1:], pairing, draws=1)
    assert found.severities[0].radius.raw == 0.0
    assert found.severities[0].separation.count == 0 and found.spread == 0.0
    assert found.num_still == len(anchors)


def test_severity_zero_gives_equal_plans_no_regret_and_full_certificates(anchors):
    found = choices(PairedRollouts(lewm(), anchors), NOISE, solver=SEARCH, count=4)
    for c in found[NOISE[0]]:
        assert c.plan_unchanged and c.regret == 0.0 and c.signed_regret == 0.0
        assert c.winner == "certified, unchanged" and c.certified_run and all(c.aligned)
        assert c.acpc_plan == 0.0 and c.overlap == (1.0,) * SEARCH.iterations
    for c in found[NOISE[1]]:
        assert 0 <= c.pool_regret <= c.pool_bound
        # After the first iteration whose certificate fails nothing more is claimed.
        claims = [x for x in c.certified if x is not None]
        assert all(claims[:-1]) and c.acpc_plan > 0


def test_a_camera_moves_the_goal_too_and_the_bounds_still_hold(anchors):
    seen = [Perturbation("brightness", 0.2, on) for on in ("history", "camera")]
    r = PairedRollouts(lewm(), anchors)
    assert torch.equal(r.goals(5, seen[0]), r.goals(5))
    assert not torch.equal(r.goals(5, seen[1]), r.goals(5))
    found = choices(r, seen, solver=SEARCH, count=3)
    assert all(len(v) == 3 for v in found.values())


def test_draws_of_a_blur_are_one_draw(anchors, pairing):
    found = measure(lewm(), anchors, [Perturbation("blur", 5)], pairing, draws=5)
    assert found.severities[0].num_pairs == len(anchors)


def test_still_windows_are_counted():
    held = draw_anchors(episodes(still=True), lewm(), count=100, horizon=5)
    inside = sum(s.startswith("0:") for s in held.scenes)
    found = measure(lewm(), held, NOISE[1:], Pairing((None,) * len(held), 0.0), draws=1)
    assert found.num_still == inside > 0
    assert "no anchor" in found.severities[0].undefined


def test_unlike_references_are_refused(anchors, pairing):
    one = measure(lewm(), anchors, NOISE, pairing, draws=1)
    assert relative(one, one, NOISE[1]) == 1.0
    other = dataclasses.replace(one, family="pldm")
    with pytest.raises(UsageError, match="family 'lewm' and the reference of 'pldm'"):
        relative(one, other, NOISE[1])
    short = draw_anchors(episodes(), lewm(), count=8, horizon=5)
    few = measure(lewm(), short, NOISE, short.pairing(label_rule("tworoom")), draws=1)
    with pytest.raises(UsageError, match="other windows"):
        relative(one, few, NOISE[1])
    blurred = measure(lewm(), anchors, [Perturbation("blur", 5)], pairing, draws=1)
    with pytest.raises(UsageError, match="same shift"):
        relative(one, blurred, NOISE[1])


def test_weights_that_do_not_sum_to_one_are_refused(anchors, pairing):
    with pytest.raises(UsageError, match="instead of 1"):
        measure(lewm(), anchors, NOISE, pairing, weights=[0.5, 0.5, 0.5, 0.0, 0.0])


def test_one_checkpoint_under_two_names_is_refused(anchors):
    with pytest.raises(UsageError, match="plain and again are one checkpoint"):
        examine(
            {"plain": lewm(0), "again": lewm(0)}, anchors, NOISE, task="tworoom",
            reference="plain", rule=None,
        )  # fmt: skip


def test_a_table_scores_the_reference_by_the_derived_fact(anchors):
    found = examine(
        {"plain": lewm(0), "other": lewm(1)}, anchors, NOISE, task="tworoom", reference="plain",
        rule=label_rule("tworoom"), settings=Settings(draws=1, histories=2, solver=SEARCH),
    ).to_dict()  # fmt: skip
    base, other = found["checkpoints"]
    # (0.3 - 1) / 0.3
    assert base["severities"][1]["score"] == pytest.approx(-7 / 3)
    row = other["severities"][1]
    assert (row["delta_score"] > 0) == (row["ir_rel"] < 1)
    assert base["severities"][0]["ir_rel"] is None and found["film"]["steps"] == [1, 2, 4]


def test_label_rules_ship_and_read_their_states():
    assert set(label_rule_names()) == {"tworoom", "pusht", "pusht-pose", "reacher", "cube"}
    assert [len(label_rule(n).bits) for n in ("tworoom", "pusht", "pusht-pose")] == [1, 3, 3]
    rule = label_rule("cube")
    assert len(rule.state) == 28
    y = np.zeros((4, 28))
    y[:, 0] = [0, 1, 2, 3]
    y[:, 25] = [0, 0, 5, 0]
    # rho_0 = 0, 1, -3, 3: lower median 0, strictly above: 0 1 0 1. Norms 0, 1, 3, 3: above 1.
    assert rule.labels(y).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]]
    with pytest.raises(UsageError, match="no state column"):
        rule.columns_in(["agent_x"])
