"""Planning commands: bad input with its field and exit code, resuming, records, comparisons."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dreamcheck.cli.main import app
from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.errors import DreamcheckError
from dreamcheck.models.registry import shipped_folder
from dreamcheck.reports import verify_study
from dreamcheck.tasks.protocol import Column

torch.set_num_threads(1)

SMALL = ["--set", "solver.num_samples=32", "--set", "solver.num_elites=4",
         "--set", "solver.iterations=2", "--set", "fresh.num_episodes=20", "--quiet"]  # fmt: skip
PLAN = ["plan", "--model", "two_toys:right", "--protocol", "fresh-25-50", "--episodes", "6",
        "--streams", "1", *SMALL]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory):
    """Two models whose encoder costs nothing, by factory name."""
    home = tmp_path_factory.mktemp("toys")
    (home / "two_toys.py").write_text(
        "from toy_planning_model import ToyModel\n"
        "def right(): return ToyModel()\n"
        "def slow(): return ToyModel(speed=2.5)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "planning"))
        patch.syspath_prepend(str(home))
        yield "two_toys:right", "two_toys:slow"


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def fails(code, *words):
    """The message of the error that ends the command with this code."""
    done = run(*words)
    assert isinstance(done.exception, DreamcheckError), done.output
    assert done.exception.exit_code == code
    return str(done.exception)


def instead_of_the_toy(model):
    """PLAN with another model."""
    return [str(model) if w == "two_toys:right" else w for w in PLAN]


def walks(*, terminated=None, goal_x=60.0, frames=40, count=3):
    n = count * frames
    state = np.tile(np.linspace([40.0, 60.0], [goal_x, 60.0], frames), (count, 1))
    actions = np.zeros((count, frames, 2))
    actions[:, -1] = np.nan
    return ArrayEpisodes(
        lengths=np.full(count, frames),
        actions=actions.reshape(n, 2),
        state=state,
        columns=(Column("agent_x", "px"), Column("agent_y", "px")),
        extra={} if terminated is None else {"terminated": np.full(n, terminated)},
    )


@pytest.fixture
def data(monkeypatch):
    """Lets --data name episodes that a test has made."""

    def given(episodes):
        monkeypatch.setattr("dreamcheck.data.readers.open_episodes", lambda path, mapping: episodes)
        return ["--data", "given"]

    return given


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    out = tmp_path_factory.mktemp("plan") / "p"
    done = run(*PLAN, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


def test_a_plan_is_recorded_with_its_report_and_verifies(planned):
    out, result = planned
    assert result["planner"]["success_all"]["num_cases"] == 6
    assert set(result["controls"]) == {"random", "zero", "oracle"}
    assert (out / "report.html").is_file() and verify_study(out).ok


def test_a_stopped_plan_goes_on_with_the_group_that_is_missing(planned, tmp_path, monkeypatch):
    out, result = planned
    copy = shutil.copytree(out, tmp_path / "copy")
    groups = sorted((copy / "episodes").glob("*/*.npz"))
    assert len(groups) == 2  # of five cases and of one
    groups[0].write_bytes(groups[0].read_bytes()[:100])  # a crash cut it off
    groups[1].unlink()
    (copy / "evidence.sqlite").unlink()
    again = json.loads(run(*PLAN, "--out", copy, "--json").stdout)
    assert again["planner"] == result["planner"] and again["record"] == result["record"]
    # Whole groups are not planned again.
    monkeypatch.setattr("dreamcheck.planning.groups.run_planner", lambda *a, **k: 1 / 0)
    assert run(*PLAN, "--out", copy, "--json").exit_code == 0


def test_an_action_box_that_the_models_actions_exceed_is_named(tmp_path):
    folder = shutil.copytree(shipped_folder() / "tworoom-small", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["conventions"]["action_std"] = [25.0, 25.0]
    (folder / "config.json").write_text(json.dumps(config))
    for readout in folder.glob("readout-*"):
        readout.unlink()  # they belong to the model with the right scale
    words = instead_of_the_toy(folder)
    assert "action_box[0]" in fails(2, *words, "--out", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_goal_outside_the_arena_is_named(tmp_path, data):
    words = [*PLAN, "--out", tmp_path / "o", "--set", "start_rule=frame0"]
    message = fails(2, *words, *data(walks(goal_x=500.0)))
    assert "goal" in message and "agent_x" in message
    assert not (tmp_path / "o").exists()


def test_an_empty_episode_list_is_named(tmp_path, data):
    (tmp_path / "list.json").write_text('{"goal_offset": 25, "episodes": []}')
    words = ["--set", "start_rule=frame0", "--set", f"episode_list='{tmp_path}/list.json'"]
    message = fails(2, *PLAN, *words, *data(walks()), "--out", tmp_path / "o")
    assert "episodes" in message and "list.json" in message
    assert not (tmp_path / "o").exists()


def test_an_unknown_field_of_a_protocol_file_is_named(tmp_path):
    text = run("protocols", "fresh-25-50").stdout
    (tmp_path / "p.toml").write_text("bugdet_steps = 50\n" + text)
    words = [str(tmp_path / "p.toml") if w == "fresh-25-50" else w for w in PLAN]
    message = fails(2, *words, "--out", tmp_path / "o")
    assert "p.toml: bugdet_steps: there is no such field; known: name, task" in message
    assert "Did you mean 'budget_steps'?" in message
    assert "colision: there is no such field" in fails(2, *PLAN, "--set", "colision=swept")
    assert not (tmp_path / "o").exists()


def test_a_dataset_without_terminated_flags_is_named(tmp_path, data):
    words = ["--set", "start_rule=frame0", "--set", "episode_filter=policy_solved"]
    message = fails(2, *PLAN, *words, *data(walks()), "--out", tmp_path / "o")
    assert "episode_filter = 'policy_solved' reads the `terminated` flag" in message
    assert "or use episode_filter = 'none'" in message
    assert not (tmp_path / "o").exists()


def test_the_guard_sees_the_episodes_and_a_budget_inside_the_first_plan_is_refused(tmp_path):
    short = [*PLAN, "--set", "budget_steps=20", "--out", tmp_path / "o"]
    assert "protocol_feasibility" in fails(4, *short)
    assert not (tmp_path / "o").exists()
    done = run(*short, "--json", "--allow", "protocol_feasibility")
    stamps = json.loads(done.stdout)["stamps"]
    assert len(stamps) == 1 and "protocol_feasibility failed and was allowed" in stamps[0]


def test_the_random_control_runs_whatever_is_asked_for_and_it_is_said():
    few = ["--set", "budget_steps=25", "--json"]
    done = run(*PLAN, *few, "--controls", "zero")
    assert set(json.loads(done.stdout)["controls"]) == {"random", "zero"}
    assert "random control runs as well" in done.stderr
    assert "'zeros' is not one of" in fails(2, *PLAN, *few, "--controls", "zeros")


def test_a_plan_carries_the_domain_guard_and_the_normalisation_audit(planned):
    _, result = planned
    read = result["realised"]
    # A model without a torch module has no normalisation to audit; its reading says so.
    assert read["norm_audit"]["verdict"] == "skipped"
    assert "module" in read["norm_audit"]["evidence"][0]
    assert read["domain_guard"] is not None and read["iterations"] == [2, 2]
    assert "Normalisation audit: skipped" in (planned[0] / "report.html").read_text()


def test_a_protocol_shown_is_the_protocol_loaded(tmp_path):
    (tmp_path / "mine.toml").write_text(run("protocols", "lewm-repo").stdout)
    mine = json.loads(run("protocols", tmp_path / "mine.toml", "--json").stdout)
    theirs = json.loads(run("protocols", "lewm-repo", "--json").stdout)
    assert {**mine, "name": ""} == {**theirs, "name": ""}
    assert "reading-7-target-all" in run("protocols").stdout


def test_the_audit_loads_no_model():
    assert "eligible" in run(*instead_of_the_toy("nowhere"), "--audit").stdout
    history = ["--set", "context_init=history", "--audit"]
    assert "as many as the model reads" in run(*instead_of_the_toy("nowhere"), *history).stderr


def test_too_few_training_runs_are_refused_with_the_number_and_the_other_unit(planned, tmp_path):
    out, _ = planned
    words = [w if w != "two_toys:right" else "two_toys:slow" for w in PLAN]
    assert run(*words, "--out", tmp_path / "slow").exit_code == 0
    said = fails(3, "compare-plans", "--a", out, "--b", tmp_path / "slow", "--unit", "recipe")
    assert "A has 1 training run(s) and B 1" in said and "at least 4 runs of each" in said
    assert "--unit checkpoint" in said


def test_plans_are_compared_and_a_claim_about_recipes_is_refused_with_the_number(planned):
    out, _ = planned
    done = run("compare-plans", "--a", out, "--b", out)
    assert "not established" in done.stdout
    message = fails(2, "compare-plans", "--a", out, "--b", out, "--unit", "recipe")
    assert "appears twice" in message
    assert "--unit recipe" in fails(2, "compare-plans", "--a", out, "--a", out, "--b", out)


def test_power_takes_rates_or_a_pilot(planned):
    out, _ = planned
    report = json.loads(
        run(
            "power", "--effect", "0.2", "--rates", "0.64", "0.44", "--episodes", "110", "--json"
        ).stdout
    )
    assert report["power_now"] == pytest.approx(0.8148, abs=5e-4)
    assert run("power", "--effect", "0.2", "--pilot", out, "--pilot", out).exit_code == 0
    assert "give two" in fails(2, "power", "--effect", "0.2", "--pilot", out)


def test_a_primary_analysis_needs_the_registered_episodes(planned, tmp_path):
    rules = ["better", "worse", "not_established", "control_shows_the_same", "integrity_failure"]
    (tmp_path / "r.toml").write_text("\n".join(f'{r} = "say so"' for r in rules))
    same = ["--protocol", "fresh-25-50", "--episodes", "6", "--streams", "1", *SMALL[:-1]]
    words = ["register", *same, "--rules", tmp_path / "r.toml", "--out", tmp_path / "s.json"]
    assert run(*words).exit_code == 0
    assert "made once" in fails(2, *words)
    assert run(*PLAN, "--registration", tmp_path / "s.json").exit_code == 0
    other = [w if w != "6" else "5" for w in PLAN]
    assert "not the registered" in fails(4, *other, "--registration", tmp_path / "s.json")
    # Episodes that are older than the seal.
    assert "not before" in fails(
        4, *PLAN, "--registration", tmp_path / "s.json", "--out", planned[0]
    )


def test_explain_opens_the_report_and_dissociation_stands_in_it(tmp_path, toys):
    out = tmp_path / "e"
    done = run(
        "explain", "--model", toys[1], "--protocol", "fresh-50-100", "--episodes", "3",
        "--search-factor", "2", "--out", out, "--figure", tmp_path / "f.svg", *SMALL,
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")
    words = ["--episodes", "3", "--streams", "1", "--windows", "40", *SMALL]
    done = run("dissociation", *toys, "--out", out, *words)
    assert done.exit_code == 0, (done.output, done.exception)
    page = (out / "report.html").read_text()
    assert (
        page.index('id="explain"') < page.index('id="dissociation"') < page.index('id="protocol"')
    )
    assert verify_study(out).ok
    (out / "report.html").write_text(page.replace("two_toys", "two_toyz"))
    assert not verify_study(out).ok
    assert "same network" in fails(
        2, "dissociation", toys[0], "toy_planning_model:ToyModel", *words
    )


def test_the_card_takes_a_plan_with_its_command_and_keeps_the_rest(tmp_path):
    folder = shutil.copytree(shipped_folder() / "tworoom-small", tmp_path / "m")
    before = json.loads((folder / "card.json").read_text())
    few = ["--episodes", "2", "--set", "budget_steps=25"]
    done = run(*instead_of_the_toy(folder), *few, "--card", "--json", "--controls", "random")
    assert done.exit_code == 0, done.exception
    after = json.loads((folder / "card.json").read_text())
    entry = after["planning"].pop("fresh-25-50, native")
    del before["planning"]["fresh-25-50, native"]
    assert after == before
    rate = json.loads(done.stdout)["planner"]["success"]
    assert entry["arms"]["planner"]["success"] == rate
    assert f"{rate['value']:.1%} [{rate['low']:.1%}" in (folder / "card.md").read_text()


def test_the_shipped_card_states_planning_at_both_horizons_and_where_success_goes():
    card = json.loads((shipped_folder() / "tworoom-small" / "card.json").read_text())
    for name in ("fresh-25-50, native", "fresh-50-100, native"):
        entry = card["planning"][name]
        assert set(entry["arms"]) == {"planner", "random", "zero", "oracle"}
        assert entry["episodes"] == 50 and entry["streams"] == 3
        assert entry["command"].startswith("dreamcheck plan --model tworoom-small")
    assert card["planning"]["fresh-50-100, explain"]["label"] == "offset 50 / budget 100"
