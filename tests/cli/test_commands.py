"""The command line in a process of its own: exit codes, JSON, and one clear message."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

import small_study
from dreamcheck.cli.main import app
from dreamcheck.reports import write_report


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "dreamcheck.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def ends(code, *words):
    """The message of a command that ends with this code; one line, no traceback."""
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s"
    small_study.run_at(path)
    write_report(path)
    return path


def test_inputs_describes_the_published_library():
    done = run("inputs", "pusht-576", "--json")
    described = json.loads(done.stdout)
    # 3^6 tuples; 72 break the agent-block and 81 more the block-goal distance.
    assert done.returncode == 0 and described["valid"] == 576 and described["tuples"] == 729
    assert sum(described["removed"].values()) == 729 - 576


def test_verify_passes_a_whole_study_and_refuses_an_altered_one(study, tmp_path):
    assert run("verify", study).returncode == 0
    copy = shutil.copytree(study, tmp_path / "copy")
    page = copy / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("Dreamcheck", "Dreamchock", 1))
    done = run("verify", copy, "--json")
    assert done.returncode == 5 and not json.loads(done.stdout)["ok"]


def test_every_command_has_help_with_an_example():
    import typer

    tree = typer.main.get_command(app)
    found = {**tree.commands, **tree.commands["reproduce"].commands}
    del found["reproduce"]
    without = [n for n, c in found.items() if "Example: dreamcheck" not in (c.help or "")]
    assert without == []


def test_bad_input_ends_with_one_message_and_code_2(tmp_path):
    assert "no input specification is called 'nope'" in ends(2, "inputs", "nope")
    assert "holds no study" in ends(2, "verify", tmp_path / "none")
    assert "no study protocol is called" in ends(
        2, "discover", "--protocol", "x", "--out", tmp_path
    )
    assert "no model" in ends(2, "discover", "--model", "absent", "--out", tmp_path / "s")
    assert "budget" in ends(2, "discover", "--budget", "0", "--out", tmp_path / "s").lower()


def test_a_library_without_a_valid_tuple_names_the_rule(tmp_path):
    spec = tmp_path / "empty.toml"
    spec.write_text(
        'name = "empty"\ntask = "tworoom"\ntitle = "none"\nsource = "this test"\n'
        '[[coordinates]]\nname = "start_x"\nkind = "grid"\nvalues = [111, 112]\nunit = "px"\n'
        '[[rules]]\nrule = "still_start"\n',
        encoding="utf-8",
    )
    text = ends(2, "inputs", spec)
    assert "no valid tuple" in text and "still_start" in text


def test_a_study_of_a_newer_schema_is_left_alone(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "newer")
    db = sqlite3.connect(copy / "evidence.sqlite")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    assert "99" in ends(2, "verify", copy)


def test_checkpoints_that_cannot_be_used_say_why(tmp_path):
    assert "does not exist" in ends(2, "inspect", tmp_path / "absent")
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "config.json").write_text("{", encoding="utf-8")
    assert "config.json" in ends(2, "inspect", torn)
    pickle = tmp_path / "weights.ckpt"
    pickle.write_bytes(b"\x80\x04\x95garbage.")
    assert "dreamcheck import" in ends(2, "discover", "--model", pickle, "--out", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_queries_go_out_and_answers_come_back(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "episodes"
    folder.mkdir()
    for e in range(6):
        n = 40
        actions = rng.uniform(-1, 1, size=(n, 2))
        actions[-1] = np.nan
        state = 100 + np.cumsum(np.nan_to_num(np.roll(actions, 1, axis=0)), axis=0)
        frames = np.zeros((n, 3, 16, 16), np.uint8)
        frames[:, 0] = np.clip(state[:, :1, None], 0, 255).astype(np.uint8)
        np.savez(folder / f"episode-{e:03d}.npz", actions=actions, pixels=frames, state=state)
    done = run("export-queries", folder, "--frameskip", 2, "--out", tmp_path / "q", "--windows", 8)
    assert done.returncode == 0, done.stderr
    assert "questions" in done.stdout


def test_a_device_that_is_not_there_is_bad_input_and_not_a_bug():
    told = ends(2, "inspect", "tworoom-small", "--device", "cuda:97")
    assert "--device cuda:97 is not there" in told and "cpu" in told
    assert "--device nonsense" in ends(2, "inspect", "tworoom-small", "--device", "nonsense")


def test_a_model_of_the_folder_one_stands_in_is_found_by_the_installed_command(tmp_path):
    """The console script has its own folder on the path, not the user's: -I stands for that."""
    (tmp_path / "mine.py").write_text("def make():\n    return 3\n")
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; "
        "from dreamcheck.cli.main import main; "
        "sys.argv = ['dreamcheck', 'inspect', 'mine:make']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    # It was imported and called, and 3 is no model.
    assert done.returncode == 2 and "mine:make" in done.stderr, done.stderr
    assert "No module named" not in done.stderr


APART = (
    'name = "apart"\ntask = "tworoom"\ntitle = "no neighbours"\nsource = "this test"\n'
    '[[coordinates]]\nname = "start_x"\nkind = "grid"\nvalues = [28, 68]\nunit = "px"\n'
    '[[coordinates]]\nname = "start_y"\nkind = "grid"\nvalues = [28, 68]\nunit = "px"\n'
    '[[rules]]\nrule = "min_distance"\na = ["start_x"]\nb = ["start_y"]\nmin = 30\n'
)


def test_inputs_names_the_first_input_whose_every_neighbour_is_invalid(tmp_path):
    spec = tmp_path / "apart.toml"
    spec.write_text(APART, encoding="utf-8")
    said = run("inputs", spec).stdout
    assert "2 of them have no valid neighbour" in said and "start_x=28, start_y=68" in said
    described = json.loads(run("inputs", spec, "--json").stdout)
    assert described["isolated"] == 2
    assert described["first_isolated"] == {"start_x": 28, "start_y": 68}


def test_siblings_and_time_are_options_of_discover_and_explained():
    told = run("discover", "--help").stdout
    assert "--siblings" in told and "--time 20m" in told and "DURATION" in told


def test_overlapping_seed_partitions_are_refused_before_anything_runs(tmp_path):
    preset = resources.files("dreamcheck.study.presets") / "tworoom-demo.toml"
    text = preset.read_text(encoding="utf-8")
    assert "validation = [16, 17" in text
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("validation = [16, 17", "validation = [16, 7"), encoding="utf-8")
    told = ends(2, "discover", "--protocol", mine, "--out", tmp_path / "s")
    assert "seed 7 is in partitions 'search' and 'validation'" in told and "mine.toml" in told
    assert not (tmp_path / "s").exists()
