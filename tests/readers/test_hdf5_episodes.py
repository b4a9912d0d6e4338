"""HDF5 as releases write it, and the ways its actions go wrong. Skips where h5py is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dreamcheck.data.readers import ColumnMapping, open_episodes
from dreamcheck.errors import UsageError

h5py = pytest.importorskip("h5py", reason="h5py comes with the [data] extra")


def recorded(length: int, seed: int, *, last="nan", step0=0):
    rng = np.random.default_rng(seed)
    action = rng.normal(size=(length, 2)).astype(np.float32)
    if last == "nan":
        action[-1] = np.nan
    if last == "first":
        action[0], action[-1] = np.nan, action[0]
    return {
        "pixels": rng.integers(0, 256, (length, 8, 8, 3), dtype=np.uint8),
        "action": action,
        "state": rng.normal(size=(length, 3)).astype(np.float32),
        "reward": rng.normal(size=length),
        "step_idx": np.arange(step0, length + step0),
    }


def write(path: Path, episodes, *, index=False, lengths=True, rename=None, **options) -> Path:
    flat = {k: np.concatenate([e[k] for e in episodes]) for k in episodes[0]}
    sizes = [len(e["action"]) for e in episodes]
    with h5py.File(path, "w") as f:
        for name, values in flat.items():
            f.create_dataset((rename or {}).get(name, name), data=values, **options.get(name, {}))
        if lengths:
            f["ep_len"] = np.array(sizes, np.int32)
            f["ep_offset"] = np.cumsum(sizes) - sizes
        if index:
            f["ep_idx"] = np.repeat(np.arange(len(sizes)), sizes)
    return path


def test_episodes_are_cut_and_read_by_their_lengths(tmp_path):
    parts = [recorded(7, 0), recorded(5, 1)]
    data = open_episodes(write(tmp_path / "d.h5", parts))
    assert data.lengths.tolist() == [7, 5]
    frames = data.frames(1, [4, 0, 4])
    assert frames.shape == (3, 3, 8, 8) and frames.dtype == np.uint8
    for got, t in zip(frames, (4, 0, 4), strict=True):
        assert np.array_equal(got, parts[1]["pixels"][t].transpose(2, 0, 1))
    np.testing.assert_array_equal(data.actions(0), parts[0]["action"])
    np.testing.assert_allclose(data.state(1), parts[1]["state"])
    assert [c.name for c in data.columns] == ["state[0]", "state[1]", "state[2]"]
    assert set(data.extra) == {"reward", "step_idx"}
    assert data.extra["step_idx"].tolist() == [*range(7), *range(5)]
    assert "no episode-number column" in data.notes[0] and len(data.notes) == 1


def test_lengths_may_be_missing_when_there_is_an_episode_number(tmp_path):
    parts = [recorded(7, 0), recorded(5, 1)]
    data = open_episodes(write(tmp_path / "d.h5", parts, index=True, lengths=False))
    assert data.lengths.tolist() == [7, 5]
    assert any("cut where ep_idx changes" in n for n in data.notes)
    with pytest.raises(UsageError, match="no column for episode .*columns.toml"):
        open_episodes(write(tmp_path / "e.h5", parts, lengths=False))


def test_episodes_collected_by_release_0_1_1_are_detected_and_said(tmp_path):
    parts = [recorded(7, 0, last="number", step0=1), recorded(5, 1, last="number", step0=1)]
    data = open_episodes(write(tmp_path / "d.h5", parts))
    assert np.isnan(data.actions(0)[-1]).all()
    np.testing.assert_array_equal(data.actions(0)[:-1], parts[0]["action"][:-1])
    note = data.notes[-1]
    assert (
        "2 of 2 episodes" in note and "0.1.1 collected these episodes without their reset" in note
    )


def test_a_last_action_that_is_a_number_is_dropped_and_counted(tmp_path):
    parts = [recorded(7, 0), recorded(5, 1, last="number")]
    data = open_episodes(write(tmp_path / "d.h5", parts))
    assert np.isnan(data.actions(1)[-1]).all()
    assert "1 of 2 episodes" in data.notes[-1]
    with pytest.raises(UsageError, match="last action of episode 1"):
        open_episodes(tmp_path / "d.h5", ColumnMapping(last_action="refuse"))


def test_actions_stored_with_the_frame_they_led_to_are_moved_back(tmp_path):
    part = recorded(6, 0, last="number")
    moved = dict(part)
    moved["action"] = np.roll(part["action"], 1, axis=0)
    moved["action"][0] = np.nan
    data = open_episodes(write(tmp_path / "d.h5", [moved, moved]))
    np.testing.assert_array_equal(data.actions(0)[:-1], part["action"][:-1])
    assert np.isnan(data.actions(0)[-1]).all() and "moved one step back" in data.notes[-1]


def test_names_with_a_slash_are_read_by_their_full_name(tmp_path):
    part = recorded(6, 0)
    path = write(tmp_path / "d.h5", [part], rename={"state": "proprio/joint", "reward": "info/r"})
    data = open_episodes(
        path, ColumnMapping(state=("proprio/joint",), units={"proprio/joint": "rad"})
    )
    np.testing.assert_allclose(data.state(0), part["state"])
    assert data.columns[0].unit == "rad" and "info/r" in data.extra
    assert any("proprio/joint" in n for n in data.notes)


def test_compressed_columns_are_read(tmp_path):
    hdf5plugin = pytest.importorskip("hdf5plugin", reason="Blosc needs hdf5plugin")
    part = recorded(6, 0)
    path = write(
        tmp_path / "d.h5", [part], index=True,
        pixels={"chunks": (2, 8, 8, 3), **hdf5plugin.Blosc(cname="lz4")},
    )  # fmt: skip
    assert np.array_equal(
        open_episodes(path).frames(0, [5])[0], part["pixels"][5].transpose(2, 0, 1)
    )


def test_frames_are_read_lazily(tmp_path, monkeypatch):
    from dreamcheck.data.readers.hdf5 import HDF5Table

    asked = []
    read = HDF5Table._read
    monkeypatch.setattr(
        HDF5Table,
        "_read",
        lambda self, column, key: asked.append(column) or read(self, column, key),
    )
    data = open_episodes(write(tmp_path / "d.h5", [recorded(6, 0)]))
    asked.clear()
    data.actions(0), data.state(0)
    assert "pixels" not in asked
    data.frames(0, [1])
    assert asked[-1] == "pixels"


def test_a_mapping_in_toml_names_the_columns(tmp_path):
    part = recorded(6, 0)
    names = {"pixels": "camera", "action": "command", "state": "pose"}
    path = write(tmp_path / "d.h5", [part], rename=names)
    with pytest.raises(UsageError, match="no column for action .*it has camera, command"):
        open_episodes(path)
    (tmp_path / "columns.toml").write_text(
        'pixels = "camera"\naction = "command"\nstate = ["pose"]\n'
        '[names]\npose = ["x", "y", "angle"]\n[units]\npose = "px"\n'
    )
    data = open_episodes(path, tmp_path / "columns.toml")
    assert [c.name for c in data.columns] == ["x", "y", "angle"]
    assert data.frames(0, [0]).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    "text, message",
    [
        ("pixel = 'a'", "Extra inputs are not permitted"),
        ("pixels = ", "no valid TOML"),
        ("last_action = 'keep'", "last_action"),
        ("action = 'nope'", "has no column 'nope'"),
        ("[names]\nstate = ['a']", "has 3 numbers but 1 names"),
    ],
)
def test_a_mapping_that_cannot_be_right_is_refused(tmp_path, text, message):
    path = write(tmp_path / "d.h5", [recorded(6, 0)])
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        open_episodes(path, tmp_path / "c.toml")


def test_damaged_files_are_refused_by_name(tmp_path):
    path = write(tmp_path / "d.h5", [recorded(6, 0)])
    raw = path.read_bytes()
    (tmp_path / "cut.h5").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(UsageError, match=r"cut\.h5"):
        open_episodes(tmp_path / "cut.h5")
    with h5py.File(path, "a") as f:
        f["ep_len"][0] = 60
    with pytest.raises(UsageError, match="truncated"):
        open_episodes(path)


def test_pixels_that_are_not_uint8_are_refused(tmp_path):
    part = recorded(6, 0)
    part["pixels"] = part["pixels"] / 255.0
    path = write(tmp_path / "d.h5", [part])
    data = open_episodes(path, ColumnMapping(pixels="pixels"))
    with pytest.raises(UsageError, match="not uint8"):
        data.frames(0, [0])


def test_a_picture_column_of_another_type_is_not_passed_over_in_silence(tmp_path):
    part = recorded(6, 0)
    part["pixels"] = (part["pixels"] / 255.0).astype(np.float32)
    data = open_episodes(write(tmp_path / "d.h5", [part]))
    assert not data.has_pixels
    assert any("'pixels'" in n and "float32" in n and "uint8" in n for n in data.notes)


@pytest.mark.swm
def test_what_stable_worldmodel_collects_is_detected_as_shifted(tmp_path):
    """Its own simulator, policy and writer: release 0.1.1 moves the first action to the end."""
    swm = pytest.importorskip("stable_worldmodel")
    policy = pytest.importorskip("stable_worldmodel.envs.two_room").ExpertPolicy
    world = swm.World("swm/TwoRoom-v1", num_envs=2, image_shape=(32, 32), max_episode_steps=12)
    world.set_policy(policy(action_noise=1.0, seed=3))
    world.collect(tmp_path / "d.h5", episodes=4, seed=3, format="hdf5", progress=False)
    data = open_episodes(tmp_path / "d.h5")
    assert len(data.lengths) == 4 and np.isnan(data.actions(0)[-1]).all()
    if (
        int(data.extra_of("step_idx", 0)[0]) == 1
    ):  # the release; later versions keep the reset frame
        assert any("0.1.1" in n and "reset frame" in n for n in data.notes)
    # Away from walls the agent moves five pixels per unit of action.
    moved = np.concatenate([np.diff(data.state(e), axis=0) for e in range(4)])
    acted = np.concatenate([data.actions(e)[:-1] for e in range(4)])
    assert np.median(np.abs(moved - 5 * acted)) < 1e-4


@pytest.mark.swm
def test_what_stable_worldmodel_writes_is_read(tmp_path):
    formats = pytest.importorskip("stable_worldmodel.data.format")
    parts = [recorded(7, 0), recorded(9, 1)]
    path = tmp_path / "d.h5"
    with formats.get_format("hdf5").open_writer(path, mode="overwrite") as w:
        for part in parts:
            w.write_episode({k: list(v) for k, v in part.items()})
    data = open_episodes(path)
    assert data.lengths.tolist() == [7, 9]
    for e, part in enumerate(parts):
        np.testing.assert_array_equal(data.actions(e), part["action"])
        np.testing.assert_allclose(data.state(e), part["state"])
        got = data.frames(e, np.arange(len(part["action"])))
        assert np.array_equal(got, part["pixels"].transpose(0, 3, 1, 2))


@pytest.mark.swm
def test_what_stable_worldmodel_writes_as_lance_is_read(tmp_path):
    pytest.importorskip("lance")
    formats = pytest.importorskip("stable_worldmodel.data.format")
    parts = [recorded(7, 0, last="number"), recorded(9, 1, last="number")]
    smooth = np.full((16, 16, 3), 100, np.uint8)
    for part in parts:
        part["pixels"] = np.stack([smooth + t for t in range(len(part["action"]))])
    path = tmp_path / "d.lance"
    with formats.get_format("lance").open_writer(path, mode="overwrite") as w:
        for part in parts:
            w.write_episode({k: list(v) for k, v in part.items()})
    data = open_episodes(path)
    assert data.lengths.tolist() == [7, 9]
    np.testing.assert_allclose(data.actions(1)[:-1], parts[1]["action"][:-1], rtol=1e-6)
    frames = data.frames(1, [8, 0]).astype(int)
    # JPEG at quality 95: an error of up to 9 of 255 (spec/ecosystem-swm.md).
    assert np.abs(frames[0] - 108).max() <= 9 and np.abs(frames[1] - 100).max() <= 9
    assert any("JPEG" in n for n in data.notes)
