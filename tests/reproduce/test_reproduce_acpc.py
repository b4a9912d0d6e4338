"""The ACPC tables: everything agrees, both arithmetic modes differ where they must, misses show."""

import json
import shutil
from pathlib import Path

import pytest

from dreamcheck.errors import ExitCode, UsageError
from dreamcheck.reproduce import reproduce_acpc
from dreamcheck.reproduce.acpc import error_drift_table, read_blocks, selection_regret_table

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "acpc"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the released ACPC tables are not beside the repository"
)


@pytest.fixture(scope="module")
def report():
    return reproduce_acpc(DATA)


@pytest.fixture
def copy(tmp_path):
    target = tmp_path / "acpc"
    shutil.copytree(DATA, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_every_published_value_is_reproduced(report):
    assert report.ok, report.lines(only_misses=True)[:10]
    assert len(report.checks) > 1500 and report.exit_code == ExitCode.DONE


def test_every_number_of_the_expected_file_has_a_value_of_ours(report):
    expected = json.loads((DATA / "expected.json").read_text())

    def leaves(node, prefix=()):
        if isinstance(node, dict):
            for k, v in node.items():
                yield from leaves(v, (*prefix, k))
        elif isinstance(node, list):
            for i, v in enumerate(node):
                yield from leaves(v, (*prefix, i))
        elif isinstance(node, (int, float)):
            yield prefix

    for path in leaves(expected):
        node = report.values
        for key in path:
            node = node[key]
        assert isinstance(node, (int, float)), path


def test_the_two_arithmetics_choose_differently_for_pusht_and_reacher(report):
    table = report.values["lewm"]["threshold_transfer"]

    def chosen(mode):
        return {tuple(s["source"]): s["t_ir"] for s in table[mode]["splits"]}

    exact, released = chosen("exact_grid_steps"), chosen("released_float_steps")
    assert {k for k in exact if exact[k] != released[k]} == {("PushT", "Reacher")}


def test_one_altered_count_is_named(copy):
    def change(content):
        row = next(r for r in content["rows"] if (r["task"], r["run"]) == ("PushT", 3072))
        row["noisy_successes"] += 30

    edit(copy / "lewm_sweep_three_runs.json", change)
    missed = {c.id for c in reproduce_acpc(copy).misses}
    assert "lewm/task_table/PushT/noisy_success_unaugmented" in missed
    assert "fork/lewm/PushT/0.0/pixels_std0.08" in missed
    assert not any(name.startswith("pldm") for name in missed)


def test_an_altered_cell_error_and_a_missing_fork_are_named(copy):
    edit(
        copy / "lewm_selection_regret_cells.json",
        lambda content: content["rows"][0].update(plus_h5_mae=0.7),
    )
    (copy / "le-wm-fork" / "canonical_evals_20260517.json").unlink()
    missed = {c.id for c in reproduce_acpc(copy).misses}
    assert {"selection_regret/mean", "selection_regret/per_run/3072", "fork/lewm"} <= missed


def test_bad_folders_and_tables_are_usage_errors(copy, tmp_path):
    with pytest.raises(UsageError, match="not a folder"):
        reproduce_acpc(tmp_path / "nowhere")
    edit(copy / "lewm_sweep_three_runs.json", lambda content: content["rows"].pop(4))
    with pytest.raises(UsageError, match="every level once"):
        reproduce_acpc(copy)
    edit(copy / "lewm_sweep_three_runs.json", lambda content: content["rows"][0].pop("ir_raw"))
    with pytest.raises(UsageError, match="ir_raw"):
        reproduce_acpc(copy)


def test_a_run_at_exactly_five_points_of_clean_loss_is_recovered():
    block = next(
        b
        for b in read_blocks(DATA / "pldm_sweep_three_runs.json")
        if (b.task, b.run) == ("PushT", 3072)
    )
    i = [level.sigma_max for level in block.levels].index(0.06)
    assert block.levels[0].clean_successes - block.levels[i].clean_successes == 15
    assert block.recovered[i]


def test_reductions_aggregate_in_the_two_different_ways_by_hand():
    rows = [
        {"run": 1, "base_mae": 2.0, "best_control_mae": 1.6, "acpc8_mae": 1.0},
        {"run": 1, "base_mae": 4.0, "best_control_mae": 4.0, "acpc8_mae": 1.0},
        {"run": 2, "base_mae": 1.0, "best_control_mae": 1.0, "acpc8_mae": 1.2},
    ]
    drift = error_drift_table({"rows": rows})
    # mean of reductions: (0.5 + 0.75) / 2
    assert drift["per_run"]["1"]["vs_base"] == 0.625
    assert drift["cells_best"] == 2 and drift["vs_base_mean"] == pytest.approx((0.625 - 0.2) / 2)
    cells = [
        {"run": r["run"], "baseline_mae": r["base_mae"], "plus_h5_mae": r["acpc8_mae"]}
        for r in rows
    ]
    # reduction of means: 1 - 1 / 3
    regret = selection_regret_table({"rows": cells})
    assert regret["per_run"]["1"] == pytest.approx(2 / 3) and regret["cells_improved"] == 2
