"""`dreamcheck consistency`: its record and report, and bad input refused or counted, and said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dreamcheck.cli.main import app
from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import DreamcheckError
from dreamcheck.reports import verify_study
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Column

torch.set_num_threads(1)
FACTORIES = """
import torch
from toy_planning_model import ToyModel, random_lewm
from dreamcheck.models.lewm_model import LeWM

def lewm(seed, size=20.0):
    model = random_lewm(seed=seed)
    with torch.no_grad():  # latents as far apart as a trained model's
        model.module.projector.down.weight.mul_(size)
    return model
def plain(): return lewm(0)
def other(): return lewm(1)
def twin(): return lewm(0)
def foreign():
    model = lewm(2)
    return LeWM(model.module, model.conventions, family="pldm")
def dead(): return lewm(3, size=0.0)
def dot(): return ToyModel()
"""
SMALL = ["--task", "mine", "--labels", "tworoom", "--protocol", "none", "--windows", "8",
         "--horizon", "3", "--draws", "2", "--histories", "2", "--quiet"]  # fmt: skip
NOISE = ["--severity", "0.05"]


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory):
    home = tmp_path_factory.mktemp("toys")
    (home / "noise_toys.py").write_text(FACTORIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "planning"))
        patch.syspath_prepend(str(home))
        yield


def logs(*, still=False, one_place=False, channels=3, frames=40, count=4):
    """Random pictures; ``still`` repeats the first of episode 0, ``one_place`` has one state."""
    rng = stream(1, "consistency commands")
    n = frames * count
    pixels = rng.integers(0, 256, size=(n, channels, 56, 56)).astype(np.uint8)
    if still:
        pixels[:frames] = pixels[0]
    state = np.full((n, 2), 80.0) if one_place else rng.uniform(20, 200, size=(n, 2))
    actions = rng.uniform(-1, 1, size=(n, 2))
    actions[frames - 1 :: frames] = np.nan
    return ArrayEpisodes(
        lengths=np.full(count, frames), actions=actions, pixels=pixels, state=state,
        columns=(Column("agent_x", "px"), Column("agent_y", "px")),
    )  # fmt: skip


@pytest.fixture
def data(monkeypatch):
    """Lets --data name episodes that a test has made."""

    def given(**changes):
        episodes = logs(**changes)
        monkeypatch.setattr("dreamcheck.data.readers.open_episodes", lambda path, mapping: episodes)
        return ["--data", "given"]

    return given


def run(*words):
    return CliRunner().invoke(app, ["consistency", *map(str, words)])


def table(*words):
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def fails(code, *words):
    """The message of the error that ends the command with this code."""
    done = run(*words)
    assert isinstance(done.exception, DreamcheckError), done.output
    assert done.exception.exit_code == code
    return str(done.exception)


PAIR = ["noise_toys:other", "--reference", "noise_toys:plain"]


def test_a_table_is_printed_recorded_and_verified(tmp_path, data):
    words = [*PAIR, *SMALL, *data(), "--severity", "0", "--severity", "0.05"]
    done = run(*words, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("checkpoint"))
    # The shared table: a rule under the heading, columns two spaces apart, numbers to the right.
    assert set(lines[head + 1]) == {"-", " "}
    (severity,) = (m for m in re.finditer(r"\bseverity", lines[head]))
    for line in lines[head + 2 : head + 6]:
        assert line[severity.start() : severity.end()].strip() in ("0", "0.05")
        assert line[severity.end() - 1] != " "
    assert "the reference scores -2.3333 whatever its SR" in done.output
    assert "Proposition 1 holds on all 48 pairs" in done.output  # 2 x 8 x (1 + 2 draws)
    assert "-0 " not in done.output and "-0%" not in done.output
    assert (tmp_path / "o/report.html").is_file() and verify_study(tmp_path / "o").ok
    result = table(*words)
    assert [c["name"] for c in result["checkpoints"]] == ["plain", "other"]
    zero, noisy = result["checkpoints"][1]["severities"]
    assert zero["ir_raw"] == 0.0 and noisy["ir_raw"] > 0 and noisy["ir_rel"] > 0
    assert result["film"]["checkpoint"] == "other" and "0.05" in result["film"]["label"]


def test_the_film_is_of_the_severity_farthest_from_the_identity(data):
    words = ["noise_toys:plain", *SMALL, *data(), "--histories", "0", "--perturbation", "contrast"]
    result = table(*words, "--severity", "0.5", "--severity", "1.2")
    assert result["film"]["checkpoint"] == "plain" and "contrast 0.5 " in result["film"]["label"]


def test_success_is_lost_on_identical_episodes(tmp_path):
    words = ["noise_toys:dot", "--task", "tworoom", "--windows", "8", "--histories", "2", "--draws",
             "1", "--episodes", "4", "--search", "16x4x2", "--quiet", "--out", tmp_path / "o"]  # fmt: skip
    result = table(*words, "--perturbation", "brightness", "--severity", "-1")
    (row,) = result["checkpoints"][0]["severities"]
    success = row["success"]
    # A black picture has no agent: nothing the planner does has anything to do with where it is.
    assert success["num_cases"] == 4 and success["loss_points"] > 0
    lost = sum(
        success["clean_success"][i][0] - success["perturbed_success"][i][0] for i in range(4)
    )
    assert success["loss_points"] == pytest.approx(25 * lost)
    assert verify_study(tmp_path / "o").ok


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "0.5,0.5,0.5"], "weights sum to 1.5 instead of 1"),
        (["--weights", "0.5,0.5"], "2 weights for 3 rollout steps"),
        (["--weights", "1.5,-0.5,0"], "not negative"),
        (["--weights", "a,b,c"], "no list of numbers"),
        (["--perturbation", "fog"], "--perturbation fog is not one of gaussian"),
        (["--severity", "1.5"], "outside [0, 1]"),
        (["--severity", "nan"], "outside [0, 1]"),
        (["--perturbation", "blur", "--severity", "0"], "1 changes nothing"),
        (["--severity", "0.05", "--severity", "0.05"], "given twice"),
        (["--on", "goal"], "neither on history nor camera"),
        (["--t-ir", "0"], "t_IR 0 accepts nothing"),
        (["--t-sr", "1.5"], "t_SR 1.5 is no rate"),
        (["--search", "100x10"], "not SAMPLESxELITESxITERATIONS"),
        (["--labels", "nowhere.toml"], "label rule file 'nowhere.toml' does not exist"),
        (["--labels", "reacher"], "no state column"),
        (["--horizon", "30"], "frames"),
    ],
)
def test_options_that_cannot_be_used_are_named(tmp_path, data, words, message):
    given = [*PAIR, *SMALL, *data(), *words, "--out", tmp_path / "o"]
    assert message in fails(2, *given)
    assert not (tmp_path / "o").exists()


def test_weights_that_sum_to_one_are_taken(data):
    last = table(*PAIR, *SMALL, *data(), *NOISE, "--weights", "0,0,1")
    row = last["checkpoints"][0]["severities"][0]
    # All weight on the last step: ACPC is the final displacement.
    assert row["displacement_median"] == pytest.approx(np.median(row["distances"]))


def test_a_reference_of_another_family_is_refused_before_anything_is_measured(data, monkeypatch):
    monkeypatch.setattr("dreamcheck.diagnostics.consistency.examining.measure", None)
    words = ["noise_toys:foreign", "--reference", "noise_toys:plain", *SMALL, *data(), *NOISE]
    message = fails(2, *words)
    assert "foreign is of family 'pldm' and the reference of 'lewm'" in message


def test_a_checkpoint_of_another_task_is_refused(data):
    words = ["--task", "tworoom", "--protocol", "none", "--quiet", *NOISE]
    message = fails(2, "noise_toys:plain", "--reference", "pusht-small", *words)
    assert "pusht-small was trained on task 'pusht', not on 'tworoom'" in message
    message = fails(2, "x=tworoom-small", *SMALL, *data(), *NOISE)
    assert "x was trained on task 'tworoom', not on 'mine'" in message


def test_a_checkpoint_given_twice_is_refused_by_name(data):
    more = [*SMALL, *data(), *NOISE]
    twice = ["noise_toys:plain", "--reference", "noise_toys:plain"]
    assert "noise_toys:plain is given twice" in fails(2, *twice, *more)
    copies = ["noise_toys:twin", "--reference", "noise_toys:plain"]
    assert "plain and twin are one checkpoint" in fails(2, *copies, *more)


def test_a_collapsed_encoder_is_refused_by_its_guard_and_stamped_when_allowed(data):
    words = ["noise_toys:dead", *SMALL, *data(), *NOISE]
    assert "'collapse'" in fails(4, *words)
    result = table(*words, "--allow", "collapse", "--histories", "0")
    (row,) = result["checkpoints"][0]["severities"]
    assert row["ir_raw"] == 0.0 and row["sr"] == 0.0 and "collapse" in result["stamps"][0]


def test_a_radius_relative_to_a_collapsed_reference_is_undefined_and_said(data):
    words = ["noise_toys:plain", "--reference", "noise_toys:dead", *SMALL, *data(), *NOISE]
    done = run(*words, "--allow", "collapse", "--histories", "0")
    assert done.exit_code == 0 and "nothing can be relative to it" in done.output


def test_without_an_eligible_pair_the_rate_is_undefined_and_not_zero(tmp_path, data):
    words = [*PAIR, *SMALL, *data(one_place=True), *NOISE, "--out", tmp_path / "o"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "0 windows have a differently labelled neighbour, 8 do not" in done.output
    assert "no anchor has a differently labelled neighbour" in done.output
    page = (tmp_path / "o/report.html").read_text(encoding="utf-8")
    assert "no anchor has a differently labelled neighbour" in page and "undefined" in page
    assert table(*words)["checkpoints"][0]["severities"][0]["sr"] is None
    assert verify_study(tmp_path / "o").ok


def test_still_windows_are_counted_and_said(tmp_path, data):
    words = [*PAIR, *SMALL, *data(still=True), *NOISE, "--windows", "20", "--out", tmp_path / "o"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    found = re.search(r"plain: (\d+) window\(s\) stand still", done.output)
    assert found and int(found[1]) > 0
    assert "stand still" in (tmp_path / "o/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("channels", [1, 4])
def test_frames_with_other_channels_are_refused(data, channels):
    words = [*PAIR, *SMALL, *data(channels=channels), *NOISE, "--allow", "collapse"]
    assert f"frames have {channels} channels" in fails(2, *words)
