"""``inspect``: a world whose laws are known, and models that follow, ignore or misread its actions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.importing.layouts import to_theirs
from dreamcheck.models.inspecting import StepError, inspect_checkpoint, verdict_of
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.protocol import LatentSpec
from dreamcheck.tasks.protocol import Column


class Counter:
    """Latent = the first pixel of two channels; next = latent + gain x block. Exact for gain 1."""

    def __init__(self, gain=1.0, mean=0.0, std=1.0):
        self.conventions = Conventions(
            image_size=4, resize="none", frameskip=1, action_dim=2,
            action_mean=(mean,) * 2, action_std=(std,) * 2, history=2,
        )  # fmt: skip
        self.latent = LatentSpec(shape=(2,))
        self.history_min, self.history_max = 1, 2
        self.identity = f"counter {gain} {mean} {std}"
        self.device = torch.device("cpu")
        self.gain = gain

    def encode(self, observation):
        return observation["pixels"][:, :2, 0, 0].float()

    def embed_actions(self, blocks):
        return blocks

    def predict(self, latents, actions, *, row_seeds=None):
        return latents[:, -1] + self.gain * actions[:, -1]


def walk(*, episodes=6, length=12, drift=0.0, seed=0, state=True, pixels=True, hole=False):
    """Integer positions in pixel values; actions are the steps, plus a drift nobody is told of."""
    rng = np.random.default_rng(seed)
    frames, actions, states = [], [], []
    for _ in range(episodes):
        steps = rng.integers(-4, 5, (length, 2)).astype(float)
        moved = steps + drift
        at = 120 + np.concatenate([np.zeros((1, 2)), np.cumsum(moved[:-1], axis=0)])
        steps[-1] = np.nan
        picture = np.zeros((length, 3, 4, 4), np.uint8)
        picture[:, :2] = at[:, :, None, None].astype(np.uint8)
        frames.append(picture)
        actions.append(steps)
        states.append(at)
    flat = np.concatenate(actions)
    if hole:
        flat[3] = np.nan
    return ArrayEpisodes(
        lengths=np.full(episodes, length),
        actions=flat,
        pixels=np.concatenate(frames) if pixels else None,
        state=np.concatenate(states) if state else None,
        columns=(Column("x", "px"), Column("y", "px")) if state else (),
    )


def test_a_model_that_follows_actions_is_told_so():
    report = inspect_checkpoint(Counter(), data=walk(), horizon=3)
    assert report.verdict == "follows the actions"
    # The dynamics are exact: no error at any step, and another episode's actions are wrong.
    assert [s.ratio for s in report.open_loop] == [0, 0, 0]
    assert report.one_step.baseline > 2 and report.shuffled.ratio > 0.8
    assert [e.name for e in report.probes] == ["x", "y"]
    assert min(e.r2 for e in report.probes) > 0.99
    assert report.contact_sheet.startswith(b"\x89PNG")


def test_half_the_action_scale_gives_half_the_error():
    # z + a/2 against z + a: the error is |a|/2, the frozen world's |a|: exactly one half.
    report = inspect_checkpoint(Counter(gain=0.5), data=walk(), horizon=1)
    assert report.one_step.ratio == pytest.approx(0.5, abs=1e-6)


def test_a_model_that_goes_the_wrong_way_is_no_better_than_a_frozen_world():
    report = inspect_checkpoint(Counter(gain=-1), data=walk(), horizon=1)
    assert report.verdict == "no better than a frozen world"
    assert report.one_step.ratio == pytest.approx(2.0, abs=1e-6)


def test_foreseeing_motion_without_the_actions_is_not_following_them():
    class Drifts(Counter):
        def predict(self, latents, actions, *, row_seeds=None):
            return latents[:, -1] + 6.0

    report = inspect_checkpoint(Drifts(), data=walk(drift=6.0), horizon=1)
    assert report.one_step.ratio < 1
    assert report.verdict == "ignores the actions"


def test_a_scaler_of_other_data_is_measured():
    report = inspect_checkpoint(Counter(mean=3.0, std=1.0), data=walk(), horizon=1)
    assert "action dimension 0" in report.warnings[0] and "--data" in report.warnings[0]
    shift, ratio = report.action_scale[0]
    # Steps are uniform on -4 ... 4: mean near 0, deviation near 2.58.
    assert shift == pytest.approx(-3, abs=0.8) and ratio == pytest.approx(2.58, abs=0.4)


def test_one_episode_is_not_enough_to_say_that_actions_are_followed():
    report = inspect_checkpoint(Counter(), data=walk(episodes=1), horizon=1)
    assert report.verdict == "better than a frozen world" and "second episode" in report.why


def ratio(value, half):
    return StepError(1, value, value - half, value + half, value, 1.0, 64, 8)


def test_an_adapter_that_declares_no_scaling_is_believed():
    assert inspect_checkpoint(Counter(), data=walk(), horizon=1).warnings == ()
    assert inspect_checkpoint(Counter(std=0.5), data=walk(), horizon=1).warnings != ()


@pytest.mark.parametrize(
    "one, shuffled, verdict",
    [
        (ratio(0.5, 0.02), ratio(0.99, 0.1), "follows the actions"),
        (ratio(0.5, 0.02), ratio(0.505, 0.02), "ignores the actions"),
        # 0.48 ... 0.52 against 0.51 ... 0.61: larger, and not clearly.
        (ratio(0.5, 0.02), ratio(0.56, 0.05), "not decided"),
        (ratio(0.9, 0.11), ratio(1.3, 0.01), "not decided"),
        (ratio(1.2, 0.1), ratio(1.3, 0.1), "no better than a frozen world"),
        (ratio(0.5, 0.02), None, "better than a frozen world"),
        (None, None, "not measured"),
    ],
)
def test_the_verdict_says_no_more_than_its_two_intervals(one, shuffled, verdict):
    said, why = verdict_of(one, shuffled)
    assert said == verdict
    if verdict == "follows the actions":
        assert "0.500" in why and "0.990" in why


def test_what_the_reader_repaired_is_said():
    data = walk()
    data.notes = ("the last action of 6 of 6 episodes is a number; it was dropped",)
    lines = inspect_checkpoint(Counter(), data=data, horizon=1).lines()
    assert "  note: data: the last action of 6 of 6 episodes is a number; it was dropped" in lines


def mixed():
    """Four episodes of 12 frames and two of 5."""
    long, small = walk(episodes=4), walk(episodes=2, length=5, seed=9)
    return ArrayEpisodes(
        lengths=np.concatenate([long.lengths, small.lengths]),
        actions=np.concatenate(
            [d.actions(e) for d in (long, small) for e in range(len(d.lengths))]
        ),
        pixels=np.concatenate(
            [d.frames(e, range(n)) for d in (long, small) for e, n in enumerate(d.lengths)]
        ),
    )


@pytest.mark.parametrize(
    "data, words",
    [
        (None, ["need --data"]),
        (walk(pixels=False), ["hold no pictures"]),
        (walk(state=False), ["no state columns", "--mapping"]),
        (walk(length=3), ["steps 2 to 5 ahead", "longest episode has 3 frames"]),
        (walk(length=2), ["need episodes of 3 frames; the longest has 2"]),
        (
            mixed(),
            ["2 of 6 episodes are shorter than a window (7 frames: 2 observed and 5 forecast"],
        ),
        (walk(hole=True), ["1 of 6 episodes have a NaN action inside"]),
        (walk(episodes=1), ["needs windows of 2 episodes", "at least 2 episodes; there is 1"]),
    ],
)
def test_what_was_skipped_is_named_with_what_it_needs(data, words):
    report = inspect_checkpoint(Counter(), data=data)
    text = "\n".join(report.lines())
    for word in words:
        assert word in text
    assert "not part of this look" in text
    if data is None:
        assert report.verdict == "not measured" and report.open_loop == ()


def test_data_of_another_width_are_refused():
    data = ArrayEpisodes(lengths=[3], actions=np.array([[1.0], [1], [np.nan]]))
    with pytest.raises(UsageError, match="have 1 numbers, those of Counter have 2"):
        inspect_checkpoint(Counter(), data=data)


def test_a_foreign_run_is_looked_at_without_being_written(tmp_path):
    torch.manual_seed(0)
    net = LeWMNet(
        LeWMConfig(
            image_size=28, encoder_width=64, encoder_depth=1, encoder_heads=1, encoder_mlp=64,
            head_hidden=32, latent_width=16, predictor_width=16, predictor_depth=1,
            predictor_heads=1, predictor_mlp=32, action_hidden=32,
        )
    )  # fmt: skip
    # The public layout has one width for latents and predictor.
    torch.save(to_theirs(net.state_dict(), net.config), tmp_path / "weights.pt")
    rng = np.random.default_rng(0)
    actions = rng.normal(size=(60, 2))
    actions[29::30] = np.nan
    data = ArrayEpisodes(
        lengths=[30, 30],
        actions=actions,
        pixels=rng.integers(0, 256, (60, 3, 28, 28), dtype=np.uint8),
    )
    before = sorted(p.name for p in tmp_path.rglob("*"))
    report = inspect_checkpoint(tmp_path / "weights.pt", data=data, horizon=2, windows=8)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
    sources = {name: source for name, _, source, _ in report.facts}
    assert sources["history"] == "tensor shape" and sources["action_mean"] == "data"
    assert report.one_step is not None and report.family == "lewm"
    json.dumps(report.to_dict(), allow_nan=False)
