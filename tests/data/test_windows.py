"""Clips: which frames, which actions, where they end, and what a NaN does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.data.windows import Windows
from dreamcheck.errors import UsageError
from dreamcheck.models.conventions import Conventions
from dreamcheck.tasks.protocol import Column


def counting_episodes(lengths):
    """Frame t of episode e shows the number t, its action is (100 e + t, -t), its state t."""
    actions, pixels, state = [], [], []
    for e, n in enumerate(lengths):
        t = np.arange(n, dtype=float)
        a = np.stack([100 * e + t, -t], axis=1)
        a[-1] = np.nan
        actions.append(a)
        pixels.append(np.broadcast_to(t.astype(np.uint8)[:, None, None, None], (n, 3, 2, 2)))
        state.append(t[:, None])
    return ArrayEpisodes(
        lengths=np.array(lengths),
        actions=np.concatenate(actions),
        pixels=np.concatenate(pixels),
        state=np.concatenate(state),
        columns=(Column("t", "steps"),),
    )


def test_a_clip_holds_every_action_between_its_frames():
    # P12: frames 4, 9, 14; block 0 is actions 4..8, the block that leaves frame 4.
    windows = Windows(counting_episodes([30]), num_frames=3, frameskip=5)
    clips = windows.take(np.array([4]))
    assert clips.states[0, :, 0].tolist() == [4, 9, 14]
    assert clips.pixels[0, :, 0, 0, 0].tolist() == [4, 9, 14]
    assert clips.actions[0, :, 0].tolist() == list(range(4, 14))
    conventions = Conventions(
        image_size=2, frameskip=5, action_dim=2, action_mean=(0, 0), action_std=(1, 1), history=2
    )
    blocks = conventions.blocks(clips.actions)
    assert blocks.shape == (1, 2, 10)
    assert blocks[0, 0].tolist() == [4, -4, 5, -5, 6, -6, 7, -7, 8, -8]


def test_the_number_of_clips_is_length_minus_span_per_episode():
    # 3 frames at skip 5 span 10 steps: 30 - 10 = 20 bases, 11 - 10 = 1, 10 gives none.
    assert len(Windows(counting_episodes([30, 11, 10]), num_frames=3, frameskip=5)) == 21


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    num_frames=st.integers(2, 5),
    frameskip=st.integers(1, 6),
)
def test_no_clip_crosses_an_episode_end_and_none_holds_a_nan(lengths, num_frames, frameskip):
    episodes = counting_episodes(lengths)
    span = (num_frames - 1) * frameskip
    if max(lengths) <= span:
        with pytest.raises(UsageError, match="no episode holds a clip"):
            Windows(episodes, num_frames=num_frames, frameskip=frameskip)
        return
    windows = Windows(episodes, num_frames=num_frames, frameskip=frameskip)
    clips = windows.take(np.arange(len(windows)))
    assert len(windows) == sum(max(0, n - span) for n in lengths)
    assert not np.isnan(clips.actions).any()
    ends = clips.bases + span
    assert (ends <= np.array(lengths)[clips.episodes] - 1).all()
    # The first number of an action names its episode and step.
    assert (clips.actions[:, 0, 0] == 100 * clips.episodes + clips.bases).all()
    assert len({(e, b) for e, b in zip(clips.episodes, clips.bases, strict=True)}) == len(windows)


def test_a_subset_keeps_to_its_episodes():
    windows = Windows(counting_episodes([20, 20, 20]), num_frames=2, frameskip=2, subset=[2, 0])
    where, _ = windows.locate(np.arange(len(windows)))
    assert set(where.tolist()) == {0, 2}


def test_a_nan_inside_an_episode_is_named():
    episodes = counting_episodes([20])
    episodes._actions[7, 1] = np.nan
    windows = Windows(episodes, num_frames=2, frameskip=3)
    windows.take(np.array([0]))
    with pytest.raises(UsageError, match="episode 0 at step 7 is NaN"):
        windows.take(np.array([5]))


def test_a_clip_that_does_not_exist_is_refused():
    windows = Windows(counting_episodes([10]), num_frames=2, frameskip=2)
    with pytest.raises(UsageError, match="clip 8 does not exist"):
        windows.take(np.array([8]))
    with pytest.raises(UsageError, match="at least 2"):
        Windows(counting_episodes([10]), num_frames=1, frameskip=2)


def test_nan_actions_become_zero_after_standardising():
    conventions = Conventions(
        image_size=2, frameskip=2, action_dim=2, action_mean=(3, 1), action_std=(2, 1), history=1
    )
    raw = np.array([[[5.0, 1.0], [np.nan, np.nan]]])
    assert conventions.blocks(raw)[0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_joining_and_choosing_episodes_keeps_their_content():
    episodes = counting_episodes([4, 6, 5])
    some = episodes.subset([2, 0])
    assert some.lengths.tolist() == [5, 4]
    np.testing.assert_array_equal(some.actions(0), episodes.actions(2))
    both = some.joined(episodes.subset([1]))
    np.testing.assert_array_equal(both.frames(2, [5]), episodes.frames(1, [5]))
    assert both.digest == episodes.subset([2, 0, 1]).digest
    with pytest.raises(UsageError, match="cannot be joined"):
        both.joined(ArrayEpisodes(lengths=[1], actions=np.full((1, 2), np.nan)))
