"""The conformance suites pass what is right and name what is wrong."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.tasks.tworoom import TwoRoom
from dreamcheck.testing import check_episodes, check_task, check_world_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny_model.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_the_worked_example_is_a_world_model(example, capsys):
    check_world_model(example["make"]())
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "keeps every promise" in capsys.readouterr().out


def broken(example, **methods):
    """The example with methods replaced."""
    model = example["make"]()
    kind = type("Broken", (type(model),), methods)
    model.__class__ = kind
    return model


def test_each_broken_promise_is_named(example):
    tiny = type(example["make"]())

    def centred(self, observation):
        z = tiny.encode(self, observation)
        return z - z.mean(dim=0)

    def noisy(self, latents, actions, *, row_seeds=None):
        return tiny.predict(self, latents, actions) + torch.randn(1)

    def wide(self, observation):
        return torch.cat([tiny.encode(self, observation)] * 2, dim=1)

    def shifted(self, latents, actions):
        from dreamcheck.imagination.runner import open_loop

        return open_loop(self, latents, actions.roll(1, dims=1), generic=True)

    def learning(self, observation):
        self.module.step.bias_ih.data += 0  # not a buffer: allowed
        self.module.encoder.train()
        return tiny.encode(self, observation)

    for methods, message in (
        ({"encode": centred}, "batch-mates"),
        ({"encode": wide}, "latent.shape promises"),
        ({"predict": noisy}, "two results for the same arguments"),
        ({"rollout": shifted}, "actions shifted by a block"),
        ({"encode": learning}, "training mode"),
        ({"identity": "0" * 64}, "identity stayed the same"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_world_model(broken(example, **methods))


def test_a_model_handed_over_in_training_mode_is_refused(example):
    model = example["make"]()
    model.module.train()
    with pytest.raises(AssertionError, match=r"module.eval\(\)"):
        check_world_model(model)


def test_tworoom_is_a_task():
    check_task(TwoRoom(), seeds=range(4), steps=6)


def test_broken_tasks_are_named():
    class Coupled(TwoRoom):
        def step(self, state, actions):
            out = super().step(state, actions)
            agent = out.agent + np.float32(len(out.agent) > 1)
            return dataclasses.replace(out, agent=agent)

    with pytest.raises(AssertionError, match="Row i must depend on row i only"):
        check_task(Coupled(), seeds=range(3), steps=2)

    class InPlace(TwoRoom):
        def step(self, state, actions):
            out = super().step(state, actions)
            state.agent[:] = out.agent
            return out

    with pytest.raises(AssertionError, match="changed the state it was given"):
        check_task(InPlace(), seeds=range(3), steps=2)

    class Unmeasured(TwoRoom):
        def measure(self, before, actions, after):
            out = super().measure(before, actions, after)
            return {k: v for k, v in out.items() if k != "discontinuity"}

    with pytest.raises(AssertionError, match="measure lacks discontinuity"):
        check_task(Unmeasured(), seeds=range(3), steps=2)


def test_broken_episodes_are_named():
    actions = np.zeros((6, 2))
    actions[[2, 5]] = np.nan
    good = ArrayEpisodes(lengths=np.array([3, 3]), actions=actions)
    check_episodes(good, pixels=False)
    actions[4] = np.nan
    with pytest.raises(AssertionError, match="episode 1 at step 1 is NaN, inside"):
        check_episodes(ArrayEpisodes(lengths=[3, 3], actions=actions), pixels=False)

    class Shifted(ArrayEpisodes):
        def actions(self, e):
            return super().actions(e)[::-1]

    actions[4] = 0
    with pytest.raises(AssertionError, match="shifted by a step"):
        check_episodes(Shifted(lengths=[3, 3], actions=actions), pixels=False)
