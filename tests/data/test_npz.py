"""NPZ episodes: what is written comes back, read lazily; objects and damage are refused."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.data.npz import FolderEpisodes, read_npz, write_npz
from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Column
from dreamcheck.testing import check_episodes


def episodes(*, pixels=True):
    rng = np.random.default_rng(0)
    lengths = np.array([4, 7, 5])
    actions = rng.standard_normal((16, 2))
    actions[np.cumsum(lengths) - 1] = np.nan
    return ArrayEpisodes(
        lengths=lengths,
        actions=actions,
        pixels=rng.integers(0, 256, (16, 3, 6, 6)).astype(np.uint8) if pixels else None,
        state=rng.standard_normal((16, 2)),
        columns=(Column("x", "px"), Column("y", "px")),
        extra={"reward": rng.standard_normal(16)},
    )


def test_one_file_brings_everything_back(tmp_path):
    written = episodes()
    back = read_npz(write_npz(tmp_path / "all.npz", written))
    assert back.digest == written.digest and back.columns == written.columns
    check_episodes(back)


def test_a_folder_is_read_one_episode_at_a_time(tmp_path, monkeypatch):
    written = episodes()
    write_npz(tmp_path / "folder", written)
    opened = []
    original = np.load
    monkeypatch.setattr(np, "load", lambda p, **k: opened.append(p) or original(p, **k))
    back = read_npz(tmp_path / "folder")
    assert isinstance(back, FolderEpisodes)
    assert back.lengths.tolist() == [4, 7, 5]
    assert len(opened) == 1  # the first episode, for the columns; lengths came from headers
    np.testing.assert_array_equal(back.frames(2, [4, 0]), written.frames(2, [4, 0]))
    np.testing.assert_array_equal(back.state(2), written.state(2))
    assert len(opened) == 2
    check_episodes(back)


def test_further_arrays_of_a_folder_are_read_like_those_of_one_file(tmp_path):
    written = episodes(pixels=False)
    back = read_npz(write_npz(tmp_path / "folder", written))
    assert list(back.extra) == ["reward"] and not back.has_pixels
    np.testing.assert_array_equal(back.extra["reward"], written.extra["reward"])
    again = read_npz(write_npz(tmp_path / "again.npz", back))
    assert again.digest == written.digest
    write_npz(tmp_path / "odd", written)
    np.savez(
        tmp_path / "odd" / "episode_000001.npz", action=written.actions(1), state=np.zeros((7, 2))
    )
    with pytest.raises(UsageError, match="episode_000001.npz has no array 'reward'"):
        read_npz(tmp_path / "odd").extra["reward"]


def test_data_without_pixels_are_written_without(tmp_path):
    back = read_npz(write_npz(tmp_path / "f", episodes(pixels=False)))
    check_episodes(back, pixels=False)
    with pytest.raises(UsageError, match="no pixels"):
        back.frames(0, [0])


def test_channels_last_pixels_are_turned(tmp_path):
    a = np.zeros((3, 2))
    a[-1] = np.nan
    px = np.random.default_rng(1).integers(0, 256, (3, 4, 5, 3)).astype(np.uint8)
    np.savez(tmp_path / "e.npz", action=a, pixels=px)
    back = read_npz(tmp_path / "e.npz")
    np.testing.assert_array_equal(back.frames(0, [2])[0], px[2].transpose(2, 0, 1))


def test_unusable_files_are_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        read_npz(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", action=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UsageError, match="Python objects"):
        read_npz(tmp_path / "objects.npz")
    np.savez(tmp_path / "other.npz", obs=np.zeros(3))
    with pytest.raises(UsageError, match="no `action`; it holds obs"):
        read_npz(tmp_path / "other.npz")
    (tmp_path / "half.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:50])
    with pytest.raises(UsageError, match="half.npz"):
        read_npz(tmp_path / "half.npz")
    with pytest.raises(UsageError, match=r"half.npz has no readable `action`"):
        read_npz(tmp_path)


def test_episode_files_are_never_written_onto(tmp_path):
    write_npz(tmp_path / "f", episodes())
    with pytest.raises(UsageError, match="already holds episode files"):
        write_npz(tmp_path / "f", episodes())
