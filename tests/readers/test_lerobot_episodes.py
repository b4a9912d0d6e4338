"""LeRobot datasets: the reader against a stand-in everywhere, and against the library where it is.

The library brings a torch of its own, so neither environment of the project holds it. In one that
does: ``pytest tests/readers/test_lerobot_episodes.py``.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import types

import numpy as np
import pytest

from dreamcheck.data.readers import ColumnMapping, open_episodes
from dreamcheck.errors import UsageError


class StandInLeRobot:
    """The few members of lerobot's LeRobotDataset that the reader uses; not the library itself."""

    features = {
        "observation.images.top": {"dtype": "video", "shape": (8, 8, 3)},
        "observation.state": {"dtype": "float32", "shape": (2,), "names": {"motors": ["a", "b"]}},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
        "episode_index": {"dtype": "int64", "shape": (1,)},
        "task": {"dtype": "string", "shape": (1,)},
    }

    def __init__(self, repo_id, root, video_backend=None):
        rng = np.random.default_rng(0)
        self.pictures = rng.random((7, 3, 8, 8)).astype(np.float32)
        self.table = {
            "observation.state": rng.normal(size=(7, 2)).astype(np.float32),
            "action": rng.normal(size=(7, 2)).astype(np.float32),
            "episode_index": np.array([0, 0, 0, 0, 1, 1, 1]),
        }
        self.hf_dataset = self

    def select(self, rows):
        return {k: list(v[rows]) for k, v in self.table.items()}

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"observation.images.top": self.pictures[i]}


def stand_in(tmp_path, monkeypatch, library):
    module = types.ModuleType("lerobot.datasets.lerobot_dataset")
    module.LeRobotDataset = library
    for name in ("lerobot", "lerobot.datasets"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "lerobot.datasets.lerobot_dataset", module)
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text("{}")
    return tmp_path


def test_a_lerobot_dataset_is_read_through_its_library(tmp_path, monkeypatch):
    data = open_episodes(stand_in(tmp_path, monkeypatch, StandInLeRobot))
    source = StandInLeRobot("x", tmp_path)
    assert data.lengths.tolist() == [4, 3]
    np.testing.assert_allclose(data.state(1), source.table["observation.state"][4:])
    assert [c.name for c in data.columns] == ["a", "b"]
    assert np.isnan(data.actions(1)[-1]).all()
    expected = np.rint(source.pictures[5] * 255).astype(np.uint8)
    assert np.array_equal(data.frames(1, [1])[0], expected)


def test_several_cameras_must_be_told_apart(tmp_path, monkeypatch):
    class TwoCameras(StandInLeRobot):
        features = {
            **StandInLeRobot.features,
            "observation.images.side": {"dtype": "image", "shape": (3, 8, 8)},
        }

    root = stand_in(tmp_path, monkeypatch, TwoCameras)
    with pytest.raises(UsageError, match='cameras .*top.*side.* pixels = "observation.images.top"'):
        open_episodes(root)
    mapping = ColumnMapping(pixels="observation.images.top", pixel_layout="chw")
    assert open_episodes(root, mapping).frames(0, [0]).shape == (1, 3, 8, 8)


def test_whatever_the_library_raises_names_the_folder_and_a_way_out(tmp_path, monkeypatch):
    class Broken(StandInLeRobot):
        error: Exception = RuntimeError("Cannot reach the hub")

        def __init__(self, *args, **kwargs):
            raise self.error

    root = stand_in(tmp_path, monkeypatch, Broken)
    with pytest.raises(UsageError, match=f"{root} .*nothing is downloaded") as told:
        open_episodes(root)
    assert "Cannot reach the hub" in str(told.value)
    Broken.error = ImportError("'datasets' is required but not installed")
    with pytest.raises(UsageError, match=r"lerobot\[dataset\]"):
        open_episodes(root)
    Broken.error = RuntimeError("run convert_dataset_v21_to_v30")
    with pytest.raises(UsageError, match="Convert it with the library's own script"):
        open_episodes(root)


@pytest.mark.parametrize(
    "declared, expected",
    [((48, 64, 3), (3, 48, 64)), ((3, 48, 64), (3, 48, 64)), ((3, 64, 3), (3, 64, 3))],
)
def test_a_camera_is_channels_first_however_it_was_declared(declared, expected):
    from dreamcheck.data.readers.lerobot_dataset import _channels_first

    assert _channels_first(declared) == expected


# --- the library itself ---------------------------------------------------------------------------

needs_lerobot = pytest.mark.skipif(
    importlib.util.find_spec("lerobot") is None,
    reason="lerobot is not installed (it wants an environment of its own)",
)


def written(root, *, videos: bool):
    """Two episodes through the library's own writer; red is ten times the step."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.image": {
            "dtype": "video" if videos else "image",
            "shape": (64, 96, 3),
            "names": ["height", "width", "channel"],
        },
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["dx", "dy"]},
    }
    dataset = LeRobotDataset.create(
        repo_id="me/toy", fps=10, features=features, root=root, use_videos=videos
    )
    for length in (6, 4):
        for t in range(length):
            picture = np.full((64, 96, 3), 40, np.uint8)
            picture[:, :, 0] = 10 * t
            dataset.add_frame(
                {
                    "observation.image": picture,
                    "observation.state": np.array([t, length], np.float32),
                    "action": np.array([t, -t], np.float32),
                    "task": "push",
                }
            )
        dataset.save_episode()
    getattr(dataset, "finalize", lambda: None)()
    return root


@needs_lerobot
@pytest.mark.parametrize("videos", [False, True])
def test_what_lerobot_itself_writes_is_read(tmp_path, videos):
    data = open_episodes(written(tmp_path / "d", videos=videos))
    assert data.lengths.tolist() == [6, 4]
    assert [c.name for c in data.columns] == ["x", "y"]
    np.testing.assert_array_equal(data.state(1), [[t, 4] for t in range(4)])
    np.testing.assert_array_equal(data.actions(0)[:-1], [[t, -t] for t in range(5)])
    frames = data.frames(1, [3, 0]).astype(int)
    assert frames.shape == (2, 3, 64, 96)
    # Videos are lossy; pictures are not.
    lost = 4 if videos else 0
    assert np.abs(frames[0, 0] - 30).max() <= lost and np.abs(frames[1, 0]).max() <= lost
    assert np.abs(frames[:, 1:] - 40).max() <= lost
    assert any("last action of 2 of 2 episodes" in n for n in data.notes)


@needs_lerobot
@pytest.mark.parametrize("gone", ["data", "meta/episodes"])
def test_missing_files_are_said_and_never_fetched(tmp_path, gone, monkeypatch):
    from huggingface_hub import constants

    root = written(tmp_path / "d", videos=False)
    shutil.rmtree(root / gone)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(UsageError, match="nothing is downloaded from here") as told:
        open_episodes(root)
    # The library did ask for the hub, and its client refused to connect.
    assert "ffline" in str(told.value)
    assert constants.HF_HUB_OFFLINE is False


@needs_lerobot
def test_an_older_format_names_the_librarys_converter(tmp_path):
    root = written(tmp_path / "d", videos=False)
    info = json.loads((root / "meta" / "info.json").read_text())
    (root / "meta" / "info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(UsageError, match="2.1 format.*convert_dataset_v21_to_v30"):
        open_episodes(root)
