"""Training: resumed equals unbroken, data keyed by identity, rates, orders, refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from dreamcheck.diagnostics.viscore import (
    ScoreCallback,
    ScoreSettings,
    build_probe,
    criterion,
)
from dreamcheck.errors import EvidenceError, IncompleteError, UsageError
from dreamcheck.models import load_crossfitted, load_model, load_support, read_checkpoint
from dreamcheck.training.loop import BatchOrder, autocast_dtype, cosine_rate
from dreamcheck.training.pipeline import prepare, start_training, train_preset
from dreamcheck.training.progress import LineProgress, Silent, duration
from dreamcheck.training.recipe import load_recipe, presets
from dreamcheck.training.record import policy_of, record_episodes, task_of

MICRO = {
    "data.episodes": 8,
    "data.steps": 60,
    "data.image_size": 28,
    "data.heldout": 0.25,
    "model.image_size": 28,
    "model.patch_size": 14,
    "model.encoder_depth": 1,
    "model.predictor_depth": 1,
    "model.dropout": 0.1,
    "optimiser.steps": 20,
    "optimiser.batch": 8,
    "optimiser.save_every": 7,
    "refinement.steps": 5,
    "refinement.batch": 8,
    "refinement.forecast": 2,
    "measure.more_heldout": 2,
    "measure.recalibration_batches": 3,
    "measure.loss_batches": 1,
    "measure.probe_frames": 60,
    "measure.heldout_frames": 20,
    "measure.probe_steps": 20,
    "measure.windows": 10,
    "measure.support_rows": 30,
}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    out = tmp_path_factory.mktemp("unbroken") / "model"
    return train_preset("tworoom-small", out, threads=1, progress=Silent(), **MICRO)


def state_of(training):
    return {k: v.clone() for k, v in training.net.state_dict().items()}


def micro_training(out):
    recipe = load_recipe("tworoom-small", **MICRO)
    torch.set_num_threads(1)
    return start_training(recipe, prepare(recipe), out)


def test_a_run_killed_and_resumed_equals_the_run_that_was_never_stopped(tmp_path, unbroken):
    first = micro_training(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.run(on_step=lambda step, _: (_ for _ in ()).throw(KeyboardInterrupt)
                  if step == 17 else None)  # fmt: skip
    resumed = train_preset("tworoom-small", tmp_path, threads=1, progress=Silent(), **MICRO)
    assert resumed.model.identity == unbroken.model.identity
    assert resumed.card["one_step"] == unbroken.card["one_step"]
    assert resumed.card["probes"] == unbroken.card["probes"]


def test_the_state_after_a_resume_is_the_same_to_the_bit(tmp_path):
    whole = micro_training(tmp_path / "a")
    whole.run(until=12)
    half = micro_training(tmp_path / "b")
    half.run(until=7)
    other = micro_training(tmp_path / "b")
    assert other.load() and other.step == 7
    other.run(until=12)
    a, b = state_of(whole), state_of(other)
    assert all(torch.equal(v, b[k]) for k, v in a.items())


def test_stages_keep_their_results_and_change_nothing_at_the_end(tmp_path, unbroken):
    def go(minutes=None):
        return train_preset(
            "tworoom-small", tmp_path, threads=1, progress=Silent(), stages=2, minutes=minutes,
            **MICRO,
        )  # fmt: skip

    with pytest.raises(IncompleteError, match="step 7 of 20.*run the same command again"):
        go(minutes=0)
    staged = go()
    assert staged.model.identity == unbroken.model.identity
    kept = json.loads((tmp_path / "stages" / "1" / "card.json").read_text())
    assert kept["training"]["steps"] == 10 and kept["model_identity"] != staged.model.identity
    assert not (tmp_path / "stages" / "2").exists()


def test_a_state_of_another_recipe_is_refused(tmp_path):
    micro_training(tmp_path).run(until=7)
    with pytest.raises(EvidenceError, match="another recipe, data or torch"):
        train_preset(
            "tworoom-small", tmp_path, threads=1, progress=Silent(),
            **{**MICRO, "optimiser.learning_rate": 1e-4},
        )  # fmt: skip
    path = tmp_path / ".training" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(EvidenceError, match="cannot be read"):
        micro_training(tmp_path).load()


def test_starting_over_sets_the_old_state_aside(tmp_path):
    micro_training(tmp_path).run(until=7)
    train_preset(
        "tworoom-small", tmp_path, threads=1, progress=Silent(), resume=False,
        **{**MICRO, "optimiser.steps": 3},
    )  # fmt: skip
    kept = list((tmp_path / ".training").glob("state.set-aside-*.safetensors"))
    assert len(kept) == 1


def test_the_checkpoint_holds_everything_a_diagnosis_needs(unbroken):
    checkpoint = read_checkpoint(unbroken.path)
    assert checkpoint.model.identity == unbroken.model.identity
    assert checkpoint.training["recipe"]["name"] == "tworoom-small"
    readout = load_crossfitted(unbroken.path)
    readout.a.require(checkpoint.model)
    assert [c.name for c in readout.columns] == ["agent_x", "agent_y"]
    support = load_support(unbroken.path)
    assert support is not None and len(support.states) == 30
    support.require(checkpoint.model)
    assert support.constants["agent.speed"] == 5.0
    # The reference holds latents of real frames under the shipped encoder.
    assert support.latents.shape == (30, 16)


def test_the_card_states_every_floor_and_does_not_pretend(unbroken):
    card = json.loads((unbroken.path / "card.json").read_text())
    text = (unbroken.path / "card.md").read_text()
    assert len(card["floors"]) == 4
    # Twenty steps cannot meet them, and the card says so.
    assert not unbroken.floors_met and "**no**" in text
    assert card["data"]["digest"] in text
    assert f"{card['parameters']:,}" in text
    ratio = card["mode_gap"]["heldout_after"]
    assert card["mode_gap"]["after"] == pytest.approx(
        ratio["eval"]["loss"] / ratio["batch_statistics"]["loss"]
    )


def test_the_weights_are_those_that_were_measured(unbroken):
    again = load_model(unbroken.path)
    assert again.identity == unbroken.card["model_identity"]
    assert not again.module.training


def test_refinement_leaves_every_latent_as_it_was(tmp_path, unbroken):
    plain = train_preset(
        "tworoom-small", tmp_path, threads=1, progress=Silent(),
        **{**MICRO, "refinement.steps": 0},
    )  # fmt: skip
    frames = torch.randint(0, 256, (32, 3, 28, 28), dtype=torch.uint8)
    with torch.no_grad():
        a = plain.model.encode({"pixels": frames})
        b = unbroken.model.encode({"pixels": frames})
    assert torch.equal(a, b)
    assert plain.model.identity != unbroken.model.identity


def test_an_episode_does_not_depend_on_those_recorded_beside_it():
    recipe = load_recipe("tworoom-small").data
    task, policy = task_of(recipe), policy_of(recipe)
    many = record_episodes(task, policy, env_seeds=np.arange(5), steps=30, image_size=28)
    one = record_episodes(task, policy, env_seeds=np.array([3]), steps=30, image_size=28)
    np.testing.assert_array_equal(one.actions(0), many.actions(3))
    np.testing.assert_array_equal(one.frames(0, range(31)), many.frames(3, range(31)))
    again = record_episodes(task, policy, env_seeds=np.arange(5), steps=30, image_size=28)
    assert again.digest == many.digest != one.digest


def test_recorded_actions_move_the_agent_at_their_own_step():
    # C2: displacement from t to t + 1 is 5 px times action t, away from walls.
    recipe = load_recipe("tworoom-small").data
    eps = record_episodes(
        task_of(recipe), policy_of(recipe), env_seeds=np.arange(4), steps=40, image_size=28
    )
    moved = np.concatenate([np.diff(eps.state(e), axis=0) for e in range(4)])
    before = np.concatenate([eps.state(e)[:-1] for e in range(4)])
    actions = np.concatenate([eps.actions(e)[:-1] for e in range(4)])
    clear = ((before > 25) & (before < 199)).all(axis=1) & (np.abs(before[:, 0] - 112) > 25)
    assert clear.sum() >= 10
    assert np.abs(moved - 5 * actions)[clear].max() < 1e-3


def test_the_rate_rises_linearly_and_falls_to_zero_as_a_cosine():
    rates = [cosine_rate(s, steps=100, peak=1.0, warmup=0.1) for s in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    # Halfway down the 90 remaining steps: cos(pi/2) = 0, half the peak.
    assert rates[54] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.0, abs=1e-12) and max(rates) == 1.0


def test_an_epoch_visits_every_clip_once_and_drops_the_rest():
    order = BatchOrder(10, 3, seed=1)
    first = np.concatenate([order(s) for s in range(3)])
    assert len(set(first.tolist())) == 9
    assert not np.array_equal(first, np.concatenate([order(s) for s in range(3, 6)]))
    np.testing.assert_array_equal(BatchOrder(10, 3, seed=1)(4), order(4))


def test_precision_follows_the_request():
    assert autocast_dtype("float32") is None
    assert autocast_dtype("bfloat16") is torch.bfloat16
    assert autocast_dtype("auto") in (None, torch.bfloat16)


def test_a_recipe_that_cannot_be_used_names_the_field(tmp_path):
    assert "tworoom-small" in presets()
    with pytest.raises(UsageError, match="no training preset is called 'tworoom-big'"):
        load_recipe("tworoom-big")
    with pytest.raises(UsageError, match="optimiser.batch"):
        load_recipe("tworoom-small", **{"optimiser.batch": 1})
    with pytest.raises(UsageError, match="optimiser.rate"):
        load_recipe("tworoom-small", **{"optimiser.rate": 1})
    broken = tmp_path / "mine.toml"
    broken.write_text("name = ")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_recipe(broken)
    with pytest.raises(UsageError, match="does not exist"):
        load_recipe(tmp_path / "none.toml")


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    training = micro_training(tmp_path)
    with torch.no_grad():
        training.net.projector.down.bias.fill_(math.nan)
    with pytest.raises(EvidenceError, match="became nan at step 1"):
        training.run()
    assert not (tmp_path / ".training").exists()


def test_progress_prints_plain_lines_when_nobody_watches(capsys):
    progress = LineProgress(every_s=0.0)
    progress.start("training", 10)
    progress.advance(5, "loss 0.1")
    progress.finish()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 0/10" and "5/10" in lines[1] and "left" in lines[1]
    assert "\r" not in "".join(lines) and "loss 0.1" in lines[1]
    assert (duration(75), duration(3700)) == ("1:15", "1:01:40")


def test_scoring_at_epoch_ends_leaves_the_training_as_it_was(tmp_path):
    plain, watched = micro_training(tmp_path / "a"), micro_training(tmp_path / "b")
    steps = plain.order.steps_per_epoch
    recipe = load_recipe("tworoom-small", **MICRO)
    probe = build_probe(prepare(recipe).heldout)
    callback = ScoreCallback(
        criterion("tworoom").replace(curve=5, horizon=3),
        probe,
        run="micro",
        settings=ScoreSettings(include="V"),
        csv=tmp_path / "scores.csv",
    )
    losses = []
    plain.run(until=2 * steps, on_step=lambda _, batch: losses.append(float(batch.loss.detach())))
    watched.run(until=2 * steps, on_epoch=callback)
    a, b = state_of(plain), state_of(watched)
    assert all(torch.equal(v, b[k]) for k, v in a.items())
    assert [r.cell_id for r in callback.records] == ["micro__epoch1", "micro__epoch2"]
    # The free baseline is the mean over the epoch's batches.
    means = [np.mean(losses[:steps]), np.mean(losses[steps : 2 * steps])]
    got = [r.baselines.training_loss for r in callback.records]
    assert got == pytest.approx(means)
    # Another epoch, another model: latents of the first are never read for the second.
    one, two = callback.records
    assert one.model_identity != two.model_identity and one.sigma_roll != two.sigma_roll
    assert one.probe_digest == two.probe_digest


def test_a_resumed_run_reports_the_same_epoch_loss(tmp_path):
    told = {"whole": [], "resumed": []}

    def tell(name):
        return lambda model, epoch, loss: told[name].append((epoch, loss))

    whole = micro_training(tmp_path / "a")
    until = 2 * whole.order.steps_per_epoch
    whole.run(until=until, on_epoch=tell("whole"))
    micro_training(tmp_path / "b").run(until=7, on_epoch=tell("resumed"))
    again = micro_training(tmp_path / "b")
    assert again.load()
    again.run(until=until, on_epoch=tell("resumed"))
    assert told["resumed"] == told["whole"]
    assert [e for e, _ in told["whole"]] == [1, 2]
