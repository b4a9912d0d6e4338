"""The PushT model that ships: small, better than a frozen world, and its card says by how much."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.models import load_crossfitted, load_support, read_checkpoint
from dreamcheck.models.registry import checkpoint_folder, shipped_models
from dreamcheck.testing import check_world_model
from dreamcheck.training.recipe import Recipe, load_recipe

NAME = "pusht-small"


@pytest.fixture(scope="module")
def shipped():
    folder = checkpoint_folder(NAME)
    assert folder is not None and NAME in shipped_models()
    return read_checkpoint(folder)


def test_its_card_belongs_to_its_weights_and_recipe(shipped):
    card = shipped.card
    assert card["model_identity"] == shipped.model.identity
    recipe = Recipe.model_validate(shipped.training["recipe"])
    assert recipe.digest == card["recipe_digest"] == load_recipe(NAME).digest
    # A stage of the recipe, and the card says which.
    assert card["training"]["steps"] == shipped.training["steps"] == 2 * recipe.optimiser.steps // 3


def test_it_beats_the_frozen_world_is_small_and_meets_its_floors(shipped):
    assert shipped.card["one_step"]["high"] < 1
    assert all(f["met"] for f in shipped.card["floors"])
    probes = shipped.card["probes"]
    worse = min(probes["by_name"][name]["r2"] for name in ("a", "b"))
    assert probes["headline_r2"] == worse >= load_recipe(NAME).floors.probe_r2
    size = sum(p.stat().st_size for p in shipped.path.rglob("*") if p.is_file()) / 1e6
    assert size < 8.0


def test_its_probe_errors_are_told_in_px_and_degrees(shipped):
    text = (shipped.path / "card.md").read_text()
    for probe in ("a", "b"):
        told = shipped.card["probes"]["by_name"][probe]
        columns = {c["name"] for c in told["columns"]}
        assert columns == {
            "agent_x", "agent_y", "block_x", "block_y", "block_sin", "block_cos",
        }  # fmt: skip
        assert f"{told['angle_deg']:.1f} degrees" in text


def test_it_is_a_world_model_and_its_companions_belong_to_it(shipped):
    check_world_model(shipped.model)
    readout, support = load_crossfitted(shipped.path), load_support(shipped.path)
    readout.a.require(shipped.model)
    readout.b.require(shipped.model)
    assert support is not None
    support.require(shipped.model)


@pytest.mark.swm
def test_one_step_is_predicted_on_new_seeds_as_well_as_the_card_says(shipped):
    pytest.importorskip("stable_worldmodel.envs.pusht.env", reason="needs the [swm] extra")
    from dreamcheck.data.windows import Windows
    from dreamcheck.imagination.runner import Runner
    from dreamcheck.training.measures import draw_windows, forecast, step_ratios
    from dreamcheck.training.record import policy_of, record_episodes, task_of

    recipe = load_recipe(NAME).data
    fresh = record_episodes(
        task_of(recipe), policy_of(recipe), env_seeds=7_000_000 + np.arange(16), steps=60,
        image_size=56,
    )  # fmt: skip
    windows = Windows(fresh, num_frames=4, frameskip=5)
    index = draw_windows(windows, 128, seed=0, role="check")
    measured = step_ratios(forecast(Runner(shipped.model), windows, index, history=3))[0]
    stated = shipped.card["one_step"]
    assert measured.low <= stated["high"] and measured.high >= stated["low"]
