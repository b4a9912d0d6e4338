"""Questions out, answers in: scored as a model would be, and refused when they do not belong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.exchange import export_queries, import_answers, read_queries
from dreamcheck.tasks.protocol import Column

EXAMPLES = Path(__file__).parents[2] / "examples"


def walk(*, episodes=8, length=16, skip=1, pixels=True) -> ArrayEpisodes:
    """Integer positions in the pixels of two channels; a position moves by the sum of actions."""
    rng = np.random.default_rng(0)
    steps = rng.integers(-3, 4, (episodes, length, 2)).astype(float)
    at = 120 + np.concatenate([np.zeros((episodes, 1, 2)), np.cumsum(steps[:, :-1], 1)], axis=1)
    steps[:, -1] = np.nan
    picture = np.zeros((episodes * length, 3, 4, 4), np.uint8)
    picture[:, :2] = at.reshape(-1, 2)[:, :, None, None].astype(np.uint8)
    return ArrayEpisodes(
        lengths=np.full(episodes, length),
        actions=steps.reshape(-1, 2),
        pixels=picture if pixels else None,
        state=at.reshape(-1, 2),
        columns=(Column("x", "px"), Column("y", "px")),
    )


def answer(folder: Path, path: Path, *, gain=1.0, **changes) -> Path:
    """A model that reads positions off the pixels and adds ``gain`` times the actions."""
    with np.load(folder / "queries.npz") as q:
        frames, history, actions = q["frames"], q["history"], q["actions"]
        skip, horizon, digest = int(q["frameskip"]), int(q["horizon"]), q["digest"]
    latents = frames[:, :2, 0, 0].astype(np.float32)
    blocks = actions.reshape(len(actions), -1, skip, 2).sum(axis=2)[:, -horizon:]
    predictions = latents[history[:, -1]][:, None] + gain * np.cumsum(blocks, axis=1)
    arrays = {"latents": latents, "predictions": predictions.astype(np.float32), "queries": digest}
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})
    return path


@pytest.mark.parametrize("frameskip, history", [(1, 1), (2, 3)])
def test_a_perfect_script_scores_zero_and_half_the_gain_scores_a_half(tmp_path, frameskip, history):
    folder = tmp_path / "q"
    export_queries(walk(), folder, frameskip=frameskip, history=history, horizon=3, windows=40)
    report = import_answers(folder, answer(folder, tmp_path / "a.npz"))
    assert [s.ratio for s in report.open_loop] == [0, 0, 0]
    assert report.control.ratio > 0.8 and report.verdict == "follows the actions"
    assert min(e.r2 for e in report.probes) > 0.99 and report.probes[0].unit == "px"
    # z + a/2 against z + a errs by |a|/2, at every horizon half of the frozen world's error.
    half = import_answers(folder, answer(folder, tmp_path / "b.npz", gain=0.5))
    assert [s.ratio for s in half.open_loop] == pytest.approx([0.5] * 3, abs=1e-6)
    assert half.identity != report.identity
    none = import_answers(folder, answer(folder, tmp_path / "c.npz", gain=0.0))
    assert none.open_loop[0].ratio == 1 and none.verdict != "follows the actions"
    json.dumps(report.to_dict(), allow_nan=False)


def test_questions_hold_nothing_that_answers_them(tmp_path):
    folder = tmp_path / "q"
    queries = export_queries(walk(), folder, frameskip=1, history=2, horizon=3, windows=20)
    with np.load(folder / "queries.npz") as q:
        assert set(q.files) == {"frames", "history", "actions", "frameskip", "horizon", "digest"}
    # 20 rows and 10 controls, mixed; frames are in no order of time.
    assert len(queries.control) == 30 and queries.control.sum() == 10
    assert 0 < np.flatnonzero(queries.control).mean() < 29
    assert not (np.diff(queries.future, axis=1) == 1).all()
    # Real rows: the recorded actions lead from the last observed frame to the future one.
    at = queries.states
    for row in np.flatnonzero(~queries.control):
        moved = at[queries.future[row, 0]] - at[queries.history[row, -1]]
        assert np.array_equal(moved, queries.actions[row, 1])


def test_the_same_seed_asks_the_same_questions(tmp_path):
    one = export_queries(walk(), tmp_path / "a", frameskip=1, windows=10)
    two = export_queries(walk(), tmp_path / "b", frameskip=1, windows=10)
    other = export_queries(walk(), tmp_path / "c", frameskip=1, windows=10, seed=1)
    assert one.digest == two.digest != other.digest
    with pytest.raises(UsageError, match="already holds questions"):
        export_queries(walk(), tmp_path / "a", frameskip=1)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"queries": np.array("0" * 64)}, "answers the questions 000000000000"),
        ({"queries": None}, "lacks queries"),
        ({"latents": np.zeros((3, 2), np.float32)}, r"expected \[\d+, ...\]"),
        ({"predictions": np.zeros((2, 3, 2), np.float32)}, "predictions have shape"),
        ({"latents": np.array([object()])}, "Python objects"),
    ],
)
def test_answers_that_do_not_belong_are_refused(tmp_path, changes, message):
    folder = tmp_path / "q"
    export_queries(walk(), folder, frameskip=1, horizon=3, windows=10)
    with pytest.raises(UsageError, match=message):
        import_answers(folder, answer(folder, tmp_path / "a.npz", **changes))


def test_answers_with_nan_or_whole_numbers_are_refused(tmp_path):
    folder = tmp_path / "q"
    export_queries(walk(), folder, frameskip=1, horizon=3, windows=10)
    path = answer(folder, tmp_path / "a.npz")
    with np.load(path) as z:
        arrays = {k: z[k].copy() for k in z.files}
    arrays["predictions"][4, 0, 0] = np.nan
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match=r"predictions\[4\] holds NaN"):
        import_answers(folder, path)
    arrays["predictions"] = np.zeros(arrays["predictions"].shape, np.int64)
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match="int64, not floating"):
        import_answers(folder, path)


@pytest.mark.parametrize("name", ["queries.npz", "truth.npz"])
def test_changed_questions_are_noticed(tmp_path, name):
    folder = tmp_path / "q"
    export_queries(walk(), folder, frameskip=1, windows=10)
    with np.load(folder / name) as z:
        arrays = {k: z[k].copy() for k in z.files}
    key = "actions" if name == "queries.npz" else "future"
    arrays[key].reshape(-1)[0] += 1
    np.savez(folder / name, **arrays)
    with pytest.raises(EvidenceError, match="does not match the digest"):
        read_queries(folder)


def test_data_without_pictures_cannot_be_asked_about(tmp_path):
    with pytest.raises(UsageError, match="no pictures"):
        export_queries(walk(pixels=False), tmp_path / "q", frameskip=1)


# --- the examples ---------------------------------------------------------------------------------


def test_answers_that_never_move_are_not_measured_and_say_why(tmp_path):
    queries = export_queries(walk(), tmp_path / "q", frameskip=1, history=1, horizon=2)
    np.savez(
        tmp_path / "a.npz",
        latents=np.zeros((len(queries.frames), 2), np.float32),
        predictions=np.zeros((*queries.future.shape, 2), np.float32),
        queries=queries.digest,
    )
    report = import_answers(tmp_path / "q", tmp_path / "a.npz")
    assert report.verdict == "not measured" and "see what was skipped" in report.why
    assert any("one-step and open-loop error" in s for s in report.skipped)
    assert "--data" not in report.lines()[-1]


def test_the_numpy_only_script_is_scored(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_model_torch

    folder = tmp_path / "questions"
    export_queries(own_model_torch.dots(), folder, frameskip=1, history=1, horizon=3)
    done = subprocess.run(
        [
            sys.executable, "-I", str(EXAMPLES / "own_model_any_framework.py"),
            str(folder / "queries.npz"), str(tmp_path / "answers.npz"),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    source = (EXAMPLES / "own_model_any_framework.py").read_text()
    assert "import torch" not in source and "import dreamcheck" not in source
    report = import_answers(folder, tmp_path / "answers.npz")
    assert report.verdict == "follows the actions" and report.open_loop[0].ratio < 0.4
    assert min(e.r2 for e in report.probes) > 0.9


def test_the_twenty_line_adapter_is_inspected(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_model_torch

    from dreamcheck.models.inspecting import inspect_checkpoint
    from dreamcheck.models.protocol import WorldModel

    model = own_model_torch.make(steps=150)
    assert isinstance(model, WorldModel)
    report = inspect_checkpoint(model, data=own_model_torch.dots(seed=2), horizon=2)
    assert report.verdict == "follows the actions", report.lines()
    assert min(e.r2 for e in report.probes) > 0.9
    source = (EXAMPLES / "own_model_torch.py").read_text().split("# ---")
    adapter = [line for line in source[1].splitlines()[1:] if line.strip()]
    assert len(adapter) <= 24
