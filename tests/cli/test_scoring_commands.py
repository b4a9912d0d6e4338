"""`dreamcheck score` and `dreamcheck meta` end to end on the shipped model and small tables."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dreamcheck.cli.main import app
from dreamcheck.data import write_npz
from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.diagnostics.viscore import sobriety
from dreamcheck.errors import DreamcheckError, EvidenceError, ExitCode, UsageError
from dreamcheck.evidence import Store
from dreamcheck.reports import verify_study, write_report
from dreamcheck.tasks.protocol import Column
from dreamcheck.training.recipe import load_recipe
from dreamcheck.training.record import policy_of, record_episodes, task_of


@pytest.fixture(autouse=True)
def small_search(monkeypatch):
    monkeypatch.setattr(sobriety, "NUM_ANCHORS", 6)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    recipe = load_recipe("tworoom-small").data
    episodes = record_episodes(
        task_of(recipe),
        policy_of(recipe),
        env_seeds=7_000_000 + np.arange(12),
        steps=100,
        image_size=56,
    )
    folder = tmp_path_factory.mktemp("data") / "episodes"
    write_npz(folder, episodes)
    return folder


def invoke(*words, code=0):
    """Standard output of a command that ends with this code; its error when it raises one."""
    done = CliRunner().invoke(app, [str(w) for w in words])
    if isinstance(done.exception, DreamcheckError):
        assert code == done.exception.exit_code, done.exception
        return str(done.exception)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def test_checkpoints_are_scored_into_one_table_a_csv_and_a_report(data, tmp_path):
    out, table = tmp_path / "study", tmp_path / "scores.csv"
    words = ["score", "a__epoch1=tworoom-small", "b__epoch2=tworoom-small", "--task", "tworoom"]
    words += ["--probe", data, "--exclude", "I", "--out", out, "--csv", table, "--quiet"]
    text = invoke(*words)
    assert "VIS[VS]" in text and "limited by" in text and "the same weights" in text
    assert "baselines" in text and "straight" in text
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(r["cell_id"], r["run"], r["epoch"]) for r in rows] == [
        ("a__epoch1", "a", "1.0"),
        ("b__epoch2", "b", "2.0"),
    ]
    assert {r["factors"] for r in rows} == {"VS"} and all(r["influence"] == "" for r in rows)
    # The same command goes on from what is finished: nothing is scored again, nothing changes.
    (kept,) = {p.name for p in (out / "scores").glob("*.npz")}
    before = {p: p.stat().st_mtime_ns for p in (out / "scores").iterdir()}
    again = json.loads(invoke(*words, "--json"))
    assert {p: p.stat().st_mtime_ns for p in (out / "scores").iterdir()} == before
    assert [r["vis"] for r in again["checkpoints"]] == [float(r["vis"]) for r in rows]
    with Store.read(out) as store:
        (record,) = store.records("diagnosis")
    assert [c["cell_id"] for c in record.payload["result"]["checkpoints"]] == [
        "a__epoch1",
        "b__epoch2",
    ]
    page = write_report(out).read_text(encoding="utf-8")
    assert "Fit to plan with?" in page and "◀ limits" in page and "half tolerance" in page
    assert "influence: left out" in page and "&lt;td" not in page
    assert verify_study(out).ok


def test_a_width_outside_the_calibrated_range_abstains_with_code_3(data):
    words = ["score", "tworoom-small", "--task", "tworoom", "--probe", data, "--quiet"]
    text = invoke(*words, code=ExitCode.ABSTAINED)
    assert "uncalibrated width" in text and "nats per effective dimension" in text
    assert "samples per dimension" in text and "Leave influence out" in text
    assert "only narrows" in invoke(*words, "--projection", "192", code=ExitCode.USAGE)
    assert "projection = 64" in invoke(*words, "--projection", "64", code=ExitCode.USAGE)
    got = json.loads(invoke(*words, "--reference", "--json"))["checkpoints"][0]
    assert got["vis"] is not None and "reference rule at any width (16)" in got["scale"]


def test_a_matched_search_and_the_fast_mode_are_other_scales(data):
    words = ["score", "tworoom-small", "--task", "tworoom", "--probe", data, "--include", "S"]
    words += ["--quiet", "--json"]
    plain = json.loads(invoke(*words))["checkpoints"][0]
    fast = json.loads(invoke(*words, "--fast"))["checkpoints"][0]
    single = json.loads(invoke(*words, "--planner", "adamw-single-start"))["checkpoints"][0]
    assert len({plain["scale"], fast["scale"], single["scale"]}) == 3
    assert single["search"] == "single-adamw" and fast["search_precision"].startswith("bfloat16")
    flipped = {
        a
        for a, g, h in zip(plain["anchors"], plain["gaps"], fast["gaps"], strict=True)
        if (g > 0) != (h > 0)
    }
    assert flipped <= set(fast["near_ties"])


def test_one_bad_checkpoint_costs_one_row(data, tmp_path):
    broken = tmp_path / "run" / "epoch-3"
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{}")
    words = ["score", broken, "tworoom-small", "--task", "tworoom", "--probe", data]
    words += ["--include", "V", "--quiet"]
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == ExitCode.USAGE
    assert "run__epoch-3: not scored:" in done.stdout and "tworoom-small" in done.stdout


@pytest.mark.parametrize(
    "more, message",
    [
        (["--task", "chess"], "no task criterion is called 'chess'"),
        (["--task", "pusht"], "no graded column 'state[2]', 'state[3]'; it has agent_x"),
        (["--task", "tworoom", "--exclude", "VIS"], "no factor is left"),
        (["--task", "tworoom", "--planner", "mpc"], "is not one of cem"),
        (["--task", "tworoom", "--noise", "white"], "not one of numpy, torch"),
        (["--task", "tworoom", "--horizon", "12"], "beyond curve"),
        (["--task", "tworoom", "--tau", "0"], "must be positive"),
        (["--task", "nowhere.toml"], "cannot be read"),
    ],
)
def test_bad_options_are_one_clear_message(data, more, message):
    words = ["score", "tworoom-small", "--probe", data, "--quiet", *more]
    assert message in invoke(*words, code=ExitCode.USAGE)


def test_two_checkpoints_of_one_name_are_refused(data):
    words = ["--task", "tworoom", "--probe", data]
    twice = ["tworoom-small", "tworoom-small"]
    assert "is given twice" in invoke("score", *twice, *words, code=ExitCode.USAGE)
    alike = ["a=tworoom-small", "a=pusht-small"]
    assert "would both be called 'a'" in invoke("score", *alike, *words, code=ExitCode.USAGE)


def small_data(folder, *, steps=100, episodes=4, nan=False, columns=("agent_x", "agent_y")):
    rng = np.random.default_rng(0)
    total = episodes * (steps + 1)
    actions = rng.standard_normal((total, 2)).astype(np.float32)
    actions[steps :: steps + 1] = np.nan
    if nan:
        actions[:] = np.nan
    write_npz(
        folder,
        ArrayEpisodes(
            lengths=np.full(episodes, steps + 1),
            actions=actions,
            pixels=np.zeros((total, 3, 56, 56), np.uint8),
            state=np.cumsum(rng.standard_normal((total, 2)), axis=0).astype(np.float32),
            columns=tuple(Column(c, "px") for c in columns),
        ),
    )
    return folder


def test_data_that_cannot_be_a_probe_say_why(tmp_path):
    words = ["score", "tworoom-small", "--task", "tworoom", "--quiet", "--include", "V", "--probe"]
    silent = small_data(tmp_path / "nan", nan=True)
    assert "without a NaN action" in invoke(*words, silent, code=ExitCode.ABSTAINED)
    other = small_data(tmp_path / "names", columns=("u", "v"))
    assert "no graded column" in invoke(*words, other, code=ExitCode.USAGE)
    # Ten environment steps are two rows: no history of three, no clip, no shell.
    short = small_data(tmp_path / "short", steps=10)
    assert "no clip of" in invoke(*words, short, code=ExitCode.ABSTAINED)
    tiny = small_data(tmp_path / "tiny", steps=4)
    assert "no episode spans two blocks" in invoke(*words, tiny, code=ExitCode.USAGE)
    assert "does not exist" in invoke(*words, tmp_path / "absent", code=ExitCode.USAGE)


def test_an_altered_kept_score_is_refused(data, tmp_path):
    words = ["score", "tworoom-small", "--task", "tworoom", "--probe", data, "--include", "V"]
    words += ["--cache", tmp_path, "--quiet"]
    invoke(*words)
    (file,) = tmp_path.glob("score-*.json")
    file.write_text(file.read_text().replace('"status": "ok"', '"status": "no"'))
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert isinstance(done.exception, EvidenceError) and "altered" in str(done.exception)


def pool_file(path, *, spread=30.0, runs=6, epochs=5, scale=1.0, extra=None):
    rng = np.random.default_rng(1)
    names = ["cell_id", "run", "task", "epoch", "success", "vis", "veracity", "influence",
             "sobriety", "scale", *(extra or {})]  # fmt: skip
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, fieldnames=names)
        writer.writeheader()
        for task in ("a", "b"):
            for r in range(runs):
                for e in range(1, epochs + 1):
                    quality = (r * epochs + e) / (runs * epochs)
                    label = np.clip(50 + spread * (quality - 0.5) * 2, 0, 100)
                    v = [0.5 + quality / 3 + 0.01 * rng.standard_normal() for _ in range(3)]
                    writer.writerow(
                        {
                            "cell_id": f"{task}{r}__epoch{e}", "run": f"{task}{r}", "task": task,
                            "epoch": e, "success": label * scale, "vis": v[0] * v[1] * v[2],
                            "veracity": v[0], "influence": v[1], "sobriety": v[2],
                            "scale": "factors VIS", **(extra or {}),
                        }
                    )  # fmt: skip
    return path


def test_a_pool_is_judged_and_reported(tmp_path):
    pool = pool_file(tmp_path / "pool.csv")
    words = ["meta", pool, "--resamples", "200", "--planner", "cem=success:sobriety"]
    text = invoke(*words, "--out", tmp_path / "study")
    for part in ("given epoch", "one per run", "fixed epoch", "constant", "factor ablation",
                 "transfer across planners", "label resolvability"):  # fmt: skip
        assert part in text
    got = json.loads(invoke(*words, "--json"))
    rho = {(r["metric"], r["task"]): r["rho"] for r in got["task_rows"]}
    assert rho["vis", "a"] > 0.9 and rho["epoch", "a"] < 0.4
    assert {t["planner"] for t in got["transfer"]} == {"cem"}
    page = write_report(tmp_path / "study").read_text(encoding="utf-8")
    assert "Does any metric rank" in page and "one per run" in page
    assert verify_study(tmp_path / "study").ok


def test_a_pool_is_split_by_whole_runs(tmp_path):
    pool = pool_file(tmp_path / "pool.csv", runs=10, spread=45.0)
    words = ["meta", pool, "--resamples", "0", "--split", tmp_path / "split.csv"]
    invoke(*words)
    rows = list(csv.DictReader((tmp_path / "split.csv").read_text().splitlines()))
    folds = {r["run"]: r["fold"] for r in rows}
    assert len(rows) == len(folds) == 20 and set(folds.values()) == {"development", "test"}
    # Twenty checkpoints of five must stay with either task: at least four of its ten runs.
    for task in "ab":
        assert sum(f == "development" for r, f in folds.items() if r[0] == task) >= 4
    assert "no column 'kind'" in invoke(*words, "--objective", "kind", code=ExitCode.USAGE)
    assert "property of the run" in invoke(*words, "--objective", "epoch", code=ExitCode.USAGE)


def test_labels_that_cannot_rank_end_with_code_3(tmp_path):
    pool = pool_file(tmp_path / "flat.csv", spread=2.0)
    text = invoke("meta", pool, "--resamples", "0", code=ExitCode.ABSTAINED)
    assert "a†" in text and "nothing can be ranked" in text and "+0." not in text.split("†")[1]


def test_tables_that_are_no_pool_say_why(tmp_path):
    pool = pool_file(tmp_path / "pool.csv")
    assert "has no column 'sr'" in invoke("meta", pool, "--label", "sr", code=ExitCode.USAGE)
    assert "no column 'acc'" in invoke("meta", pool, "--metric", "acc", code=ExitCode.USAGE)
    assert "no row of pool.csv has task=z" in invoke(
        "meta", pool, "--where", "task=z", code=ExitCode.USAGE
    )
    assert "NAME=LABEL_COLUMN" in invoke("meta", pool, "--planner", "cem", code=ExitCode.USAGE)
    share = pool_file(tmp_path / "share.csv", scale=0.01)
    assert "looks like a fraction" in invoke("meta", share, code=ExitCode.USAGE)
    text = (tmp_path / "pool.csv").read_text().splitlines()
    text[3] = text[3].replace("factors VIS", "factors VS")
    (tmp_path / "mixed.csv").write_text("\n".join(text))
    assert "mixes scores of 2 scales" in invoke("meta", tmp_path / "mixed.csv", code=ExitCode.USAGE)
    assert "a map judged on its own runs" in invoke(
        "meta", pool, "--frozen", pool, "--resamples", "0", code=ExitCode.USAGE
    )
    assert "cannot be read" in invoke("meta", tmp_path / "none.csv", code=ExitCode.USAGE)


def test_the_output_of_score_is_a_pool_once_labelled(tmp_path):
    cells = [
        {
            "cell_id": f"r{i}__epoch{i}", "task": "a", "vis": i / 10, "scale": "s",
            "baselines": {"straightness": 1 - i / 10, "epoch": i}, "success": 10.0 * i,
        }
        for i in range(9)
    ]  # fmt: skip
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"checkpoints": cells, "failed": []}))
    got = json.loads(invoke("meta", path, "--resamples", "0", "--json"))
    rho = {r["metric"]: r["rho"] for r in got["task_rows"]}
    assert rho == {"vis": 1.0, "straightness": -1.0, "epoch": 1.0}
    with pytest.raises(UsageError, match="no JSON"):
        path.write_text("{")
        from dreamcheck.diagnostics.viscore.meta.reading import read_pool

        read_pool(path)
