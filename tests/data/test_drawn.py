"""Frames drawn of recorded states: the task's own picture at each of them."""

from __future__ import annotations

import numpy as np

from dreamcheck.data.drawn import DrawnEpisodes
from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.tasks.tworoom import TwoRoom


def test_a_frame_is_what_the_task_shows_at_that_state():
    task = TwoRoom()
    state = np.array([[50.0, 60.0], [60.0, 60.0], [180.0, 90.0]])
    actions = np.array([[1.0, 0.0], [0.0, 0.0], [np.nan, np.nan]])
    held = ArrayEpisodes(lengths=np.array([3]), actions=actions, state=state, columns=task.columns)
    drawn = DrawnEpisodes(held, task, image_size=56)
    frames = drawn.frames(0, [2, 0])
    assert frames.shape == (2, 3, 56, 56) and frames.dtype == np.uint8
    # The agent is red: most red over green lies where it stands, 4 px of the room to one here.
    for frame, (x, y) in zip(frames, state[[2, 0]], strict=True):
        red = frame[0].astype(int) - frame[1]
        row, column = np.unravel_index(red.argmax(), red.shape)
        assert abs(4 * (column + 0.5) - x) < 10 and abs(4 * (row + 0.5) - y) < 10
    assert drawn.digest != held.digest and (drawn.state(0) == state).all()
    assert drawn.has_pixels and not held.has_pixels
