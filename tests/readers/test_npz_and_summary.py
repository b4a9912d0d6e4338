"""NPZ folders with any names, other formats' missing libraries, and the data summary."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.data.readers import ColumnMapping, open_episodes
from dreamcheck.data.summary import summarise
from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Column


def folder(path, *, last_nan=True, names=("action", "pixels", "state")):
    rng = np.random.default_rng(0)
    path.mkdir()
    out = []
    for e, length in enumerate((6, 4)):
        action = rng.normal(size=(length, 2))
        if last_nan:
            action[-1] = np.nan
        pixels = rng.integers(0, 256, (length, 8, 8, 3), dtype=np.uint8)
        arrays = dict(zip(names, (action, pixels, rng.normal(size=(length, 3))), strict=True))
        np.savez(path / f"episode_{e:03}.npz", **arrays)
        out.append(arrays)
    return out


def test_a_folder_of_npz_episodes_is_read(tmp_path):
    parts = folder(tmp_path / "d")
    data = open_episodes(tmp_path / "d")
    assert np.asarray(data.lengths).tolist() == [6, 4]
    np.testing.assert_array_equal(data.actions(1), parts[1]["action"])
    assert np.array_equal(data.frames(1, [3])[0], parts[1]["pixels"][3].transpose(2, 0, 1))


def test_other_names_and_numeric_last_actions_need_only_a_mapping(tmp_path):
    parts = folder(tmp_path / "d", last_nan=False, names=("act", "cam", "pose"))
    mapping = ColumnMapping(action="act", pixels="cam", state=("pose",))
    data = open_episodes(tmp_path / "d", mapping)
    np.testing.assert_array_equal(data.actions(0)[:-1], parts[0]["act"][:-1])
    assert np.isnan(data.actions(0)[-1]).all() and "2 of 2 episodes" in data.notes[0]
    assert np.array_equal(data.frames(0, [2])[0], parts[0]["cam"][2].transpose(2, 0, 1))
    np.testing.assert_array_equal(data.state(1), parts[1]["pose"])
    with pytest.raises(UsageError, match="action"):
        open_episodes(tmp_path / "d")


def test_numeric_last_actions_in_our_own_names_are_repaired_without_a_mapping(tmp_path):
    folder(tmp_path / "d", last_nan=False)
    data = open_episodes(tmp_path / "d")
    assert np.isnan(data.actions(0)[-1]).all() and data.notes


def test_arrays_of_objects_are_never_read(tmp_path):
    (tmp_path / "d").mkdir()
    evil = np.array([print], dtype=object)
    np.savez(tmp_path / "d" / "a.npz", action=np.zeros((1, 2)), extra=evil)
    with pytest.raises(UsageError, match="objects"):
        open_episodes(tmp_path / "d", ColumnMapping(action="action"))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "in no format"),
        (lambda p: p.write_text("x"), "in no format"),
    ],
)
def test_a_path_that_is_no_data_says_what_would_be(tmp_path, make, message):
    make(tmp_path / "d")
    with pytest.raises(UsageError, match=message):
        open_episodes(tmp_path / "d")


def test_a_missing_library_is_named_with_the_way_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "d.lance").mkdir()
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(UsageError, match="pip install pylance"):
        open_episodes(tmp_path / "d.lance")
    (tmp_path / "le" / "meta").mkdir(parents=True)
    (tmp_path / "le" / "meta" / "info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "lerobot", None)
    with pytest.raises(UsageError, match=r"lerobot\[dataset\]"):
        open_episodes(tmp_path / "le")
    (tmp_path / "d.h5").write_bytes(b"\x89HDF")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"dreamcheck\[data\]"):
        open_episodes(tmp_path / "d.h5")


# --- summary --------------------------------------------------------------------------------------


def small(**changes) -> ArrayEpisodes:
    actions = np.array([[1.0, 5], [3, 5], [np.nan] * 2, [2, 5], [np.nan] * 2])
    pixels = np.zeros((5, 3, 4, 4), np.uint8)
    pixels[3:] = 255
    given = {
        "lengths": [3, 2],
        "actions": actions,
        "pixels": pixels,
        "state": np.array([[0.0], [1], [2], [np.nan], [4]]),
        "columns": (Column("x", "px"),),
        "extra": {"mass": np.ones(5)},
        **changes,
    }
    return ArrayEpisodes(**given)


def test_ranges_and_missing_numbers_by_hand():
    summary = summarise(small())
    first, second = summary.actions
    # rows 1, 3, 2: mean 2, population variance 2/3
    assert (first.minimum, first.maximum, first.mean, first.rows) == (1, 3, 2, 3)
    assert np.isclose(first.std, np.sqrt(2 / 3)) and second.constant and not first.constant
    assert summary.missing.at_end == 2 and summary.missing.clean
    assert summary.state[0].nan_rows == 1 and summary.state[0].maximum == 4
    assert summary.extra == ("mass",) and summary.frame_shape == (3, 4, 4)
    # 3 - 1 + 2 - 1 windows of two neighbouring frames
    assert summary.num_windows(num_frames=2, frameskip=1) == 3
    json.dumps(summary.to_dict(), allow_nan=False)


def test_a_hole_inside_an_episode_is_named_by_episode_and_step():
    actions = np.array([[np.nan], [1.0], [np.nan], [2], [np.nan], [1], [np.nan]])
    summary = summarise(
        small(lengths=[5, 2], actions=actions, pixels=None, state=None, columns=(), extra={})
    )
    missing = summary.missing
    assert (missing.at_start, missing.elsewhere, missing.at_end) == (1, 1, 2)
    assert missing.first_elsewhere == (0, 2) and not missing.clean
    text = "\n".join(summary.lines())
    assert "episode 0, step 2" in text and "state: none" in text
    assert summary.contact_sheet is None and summary.frame_shape is None


def test_the_contact_sheet_shows_episodes_in_rows():
    from PIL import Image

    summary = summarise(small(), sheet_episodes=2, per_episode=2)
    picture = np.asarray(Image.open(io.BytesIO(summary.contact_sheet)))
    assert summary.contact_episodes == (0, 1)
    assert picture[10, 10].tolist() == [0, 0, 0] and picture[-10, 10].tolist() == [255] * 3
