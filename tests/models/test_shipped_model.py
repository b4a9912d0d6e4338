"""The model that ships is what its card says, measured again on episodes of new seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dreamcheck.data.windows import Windows
from dreamcheck.imagination.runner import Runner
from dreamcheck.models import load_crossfitted, load_model, load_support, read_checkpoint
from dreamcheck.models.registry import checkpoint_folder, shipped_models
from dreamcheck.testing import check_world_model
from dreamcheck.training.measures import (
    draw_frames,
    draw_windows,
    encode_frames,
    forecast,
    step_ratios,
)
from dreamcheck.training.recipe import Recipe, load_recipe
from dreamcheck.training.record import policy_of, record_episodes, task_of

NAME = "tworoom-small"


@pytest.fixture(scope="module")
def shipped():
    torch.set_num_threads(1)
    folder = checkpoint_folder(NAME)
    assert folder is not None and NAME in shipped_models()
    return read_checkpoint(folder)


@pytest.fixture(scope="module")
def fresh():
    """Episodes of environment seeds that neither training nor its held-out set used."""
    recipe = load_recipe(NAME).data
    seeds = 7_000_000 + np.arange(24)
    return record_episodes(
        task_of(recipe), policy_of(recipe), env_seeds=seeds, steps=60, image_size=56
    )


def test_its_card_belongs_to_its_weights_and_recipe(shipped):
    card = shipped.card
    assert card["model_identity"] == shipped.model.identity == load_model(NAME).identity
    recipe = Recipe.model_validate(shipped.training["recipe"])
    assert recipe.digest == card["recipe_digest"] == load_recipe(NAME).digest
    assert (shipped.path / "card.md").read_text().startswith(f"# {NAME}")


def test_it_meets_every_floor_it_claims(shipped):
    floors = shipped.card["floors"]
    assert len(floors) == 4 and all(f["met"] for f in floors)
    values = [f["value"] for f in floors]
    assert values[0] >= 0.995 and values[1] <= 0.05 and 1 / 1.2 <= values[2] <= 1.2
    size = sum(p.stat().st_size for p in shipped.path.rglob("*") if p.is_file()) / 1e6
    assert size <= 8.0


def test_it_is_a_world_model(shipped):
    check_world_model(shipped.model)


def test_its_companions_belong_to_it(shipped):
    readout, support = load_crossfitted(shipped.path), load_support(shipped.path)
    readout.a.require(shipped.model)
    readout.b.require(shipped.model)
    assert support is not None
    support.require(shipped.model)


def test_position_is_read_on_new_seeds_as_well_as_the_card_says(shipped, fresh):
    runner = Runner(shipped.model)
    where, frames = draw_frames(fresh, np.arange(24), 300, seed=0, role="check")
    latents, states = encode_frames(runner, fresh, where, frames)
    readout = load_crossfitted(shipped.path)
    for probe in (readout.a, readout.b):
        again = probe.measured(latents, states, "new seeds")
        assert again.r2 >= 0.995
        assert again.mae < 2 * probe.mae + 0.2


def test_one_step_is_predicted_on_new_seeds_as_well_as_the_card_says(shipped, fresh):
    windows = Windows(fresh, num_frames=4, frameskip=5)
    index = draw_windows(windows, 192, seed=0, role="check")
    measured = step_ratios(forecast(Runner(shipped.model), windows, index, history=3))[0]
    stated = shipped.card["one_step"]
    # Two hundred windows of 24 episodes: the intervals must meet.
    assert measured.low <= stated["high"] and measured.high >= stated["low"]


def test_its_support_holds_latents_of_real_training_frames(shipped):
    support = load_support(shipped.path)
    recipe = load_recipe(NAME)
    row = int(np.argmax(support.frames <= 3))
    episode, frame = int(support.episodes[row]), int(support.frames[row])
    one = record_episodes(
        task_of(recipe.data),
        policy_of(recipe.data),
        env_seeds=np.array([recipe.data.first_env_seed + episode]),
        steps=max(frame, 1),
        image_size=56,
        root_seed=recipe.seed,
    )
    np.testing.assert_allclose(one.state(0)[frame], support.states[row], atol=1e-4)
    latent = Runner(shipped.model).encode(one.frames(0, [frame]))
    np.testing.assert_allclose(latent[0].numpy(), support.latents[row], atol=1e-3)
