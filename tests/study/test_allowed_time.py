"""``discover --time``: what an allowed time buys, how common failures are, and the study it makes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import small_study
from dreamcheck.cli.shared import seconds_of
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.imagination.runner import Runner
from dreamcheck.reports import verify_study, write_report
from dreamcheck.stats import clopper_pearson
from dreamcheck.study import Study
from dreamcheck.study.allowing import (
    LEAST_SAMPLE,
    UnitCost,
    duration,
    resumed,
    share_out,
    unit_cost,
    within,
)
from dreamcheck.study.running import run
from dreamcheck.study.study import library_of, probe_of
from toys import CentroidModel

COST = UnitCost(batched=0.5, single=1.0, num_inputs=10)


class Clock:
    """A clock that goes on by a fixed step each time it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def one(size, seconds):
    return share_out({"s": size}, seconds=seconds, cost=COST)["s"]


def test_a_library_that_fits_is_evaluated_whole():
    plan = one(200, 100.0)  # 200 inputs x 0.5 s
    assert (plan.choice, plan.sample, plan.budget) == ("exhaustive", 200, 200)
    assert plan.expected_s == 100.0 and "ranks are exact" in plan.reason


def test_more_time_than_a_search_needs_makes_the_random_sample_larger():
    # Half of 600 s would be 300 queries; a search ends at 256 (256 s), and the remaining 344 s
    # pay for 688 random inputs.
    plan = one(5000, 600.0)
    assert (plan.choice, plan.sample, plan.budget) == ("sample-and-search", 688, 256)
    # 100 s: 50 queries (50 s) and 100 random inputs (50 s).
    plan = one(5000, 100.0)
    assert (plan.choice, plan.sample, plan.budget) == ("sample-and-search", 100, 50)
    assert "5000 inputs would take 42 min" in plan.reason  # 2,500 s


def test_too_few_random_inputs_state_no_prevalence_and_are_an_arm_only():
    # 60 s: 30 queries leave 60 random inputs, fewer than 72: 60 / 1.5 = 40 of each.
    plan = one(5000, 60.0)
    assert (plan.choice, plan.sample, plan.budget) == ("search-with-random-arm", 40, 40)
    assert "72 random inputs" in plan.reason


def test_72_is_the_fewest_inputs_whose_clean_record_bounds_the_prevalence_below_5_percent():
    assert clopper_pearson(0, LEAST_SAMPLE).high < 0.05 <= clopper_pearson(0, LEAST_SAMPLE - 1).high


def test_what_a_small_library_leaves_over_goes_to_the_others():
    # Of 300 s each is offered 150; "small" needs 20 s, so "large" has 280: 140 queries, 280 inputs.
    plans = share_out({"large": 5000, "small": 40}, seconds=300.0, cost=COST)
    assert plans["small"].choice == "exhaustive" and list(plans) == ["large", "small"]
    assert (plans["large"].budget, plans["large"].sample) == (140, 280)


def test_the_unit_cost_is_what_the_clock_says_of_batches_and_of_inputs_alone():
    bench, config = small_study.bench(), small_study.config()
    probe = probe_of(config, bench, Runner(bench.model))
    library = library_of(config.searches[0], bench.task)
    cost = unit_cost(probe, library, config, clock=Clock(6.4))
    # Two seeds: 32 inputs a batch. Every timed call lasts one step of 6.4 s.
    assert cost.batched == pytest.approx(6.4 / 32) and cost.single == pytest.approx(6.4)
    assert cost.num_inputs == 2 * 32 + 3


def test_a_time_that_buys_nothing_is_refused_with_the_time_that_would_do():
    with pytest.raises(UsageError, match=r"--time 1 s is too short.*Allow .* or more"):
        within(small_study.config(), small_study.bench(), seconds=1.0, clock=Clock(1.0))


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A study of 100 planned random inputs and a search of 16, whatever the machine's speed."""
    directory = tmp_path_factory.mktemp("timed")
    config = small_study.config(checks={"top_k": 3, "references": 20, "anchors": 0, "strips": 1,
                                        "shell_size": 0})  # fmt: skip
    bench = small_study.bench(CentroidModel(gain=0.2))
    # A clock of 6.4 s a call: 0.2 s a batched input, 6.4 s one alone, and the checks' rows
    # (27 x 16 + 3 x 2) x 0.1 s = 43.8 s.
    planned = within(config, bench, seconds=43.8 + 204.8 + 0.1, clock=Clock(6.4))
    with Study.at(directory, planned, bench) as study:
        run(study)
    return directory, planned, config


def test_the_plan_is_frozen_with_the_protocol_and_kept_as_a_record(timed):
    directory, planned, _ = timed
    assert planned.time.checks_s == pytest.approx(43.8)
    (plan,) = planned.time.searches
    # 204.8 s: 102.4 for 16 queries, 102.4 for 512 random inputs.
    assert (plan.choice, plan.budget, plan.sample) == ("sample-and-search", 16, 512)
    search = planned.searches[0]
    assert search.methods == ("random", "basinlens") and search.restart_seeds == (1,)
    with Store.read(directory) as store:
        kept = store.get("time-plan", "start-goal-prefix").payload
        assert kept["choice"] == "sample-and-search" and kept["batched_s"] == pytest.approx(0.2)
        assert store.protocol["time"]["searches"][0]["sample"] == 512


def test_the_prevalence_counts_the_random_inputs_and_has_an_exact_interval(timed):
    directory, planned, _ = timed
    with Store.read(directory) as store:
        p = store.get("prevalence", "start-goal-prefix").payload
        evaluated = [r.payload for r in store.records("evaluation")]
        random = next(r.payload for r in store.records("trace", method="random"))
    # TwoRoom's tolerance is 16 px. The sample is the beginning of the random order.
    order = [e["input"] for e in evaluated[:512]]
    assert order[: planned.searches[0].budget] == random["queries"]
    assert p["level"] == 16.0 and "16 px" in p["rule"] and p["num_inputs"] == 512
    assert p["num_failing"] == sum(e["risk"] > 16 for e in evaluated[:512])
    assert (p["low"], p["high"]) == tuple(clopper_pearson(p["num_failing"], 512))


def test_the_report_says_the_choice_and_the_prevalence_and_verifies(timed):
    directory = timed[0]
    page = write_report(directory).read_text(encoding="utf-8")
    assert "Was a search needed?" in page and "512" in page and "Clopper" in page
    assert verify_study(directory).ok


def test_going_on_takes_the_frozen_plan_and_refuses_another_time(timed):
    _, planned, config = timed
    allowed = planned.time.allowed_s
    assert resumed(planned, config, seconds=allowed) == planned
    with pytest.raises(UsageError, match="give the same time"):
        resumed(planned, config, seconds=2 * allowed)
    with pytest.raises(UsageError, match=r"root_seed differ"):
        resumed(planned, config.model_copy(update={"root_seed": 9}), seconds=allowed)
    with pytest.raises(UsageError, match="made without --time"):
        resumed(config, config, seconds=allowed)


def test_an_exhausted_library_has_exact_ranks_and_a_prevalence_without_interval(tmp_path):
    config = small_study.config(
        floor_samples=0,
        seeds={"search": [0], "validation": list(range(16, 32)), "neighbourhood": [48]},
        checks={"top_k": 2, "references": 10, "anchors": 0, "strips": 0, "shell_size": 0},
    )
    small = tmp_path / "small.toml"
    small.write_text(
        'name = "small"\ntask = "tworoom"\ntitle = "few"\nsource = "this test"\n'
        '[[coordinates]]\nname = "start_x"\nkind = "grid"\nvalues = [28, 48, 68, 88]\nunit = "px"\n'
        '[[coordinates]]\nname = "start_y"\nkind = "grid"\nvalues = [28, 52, 76, 100, 124]\n'
        'unit = "px"\n',
        encoding="utf-8",
    )
    search = config.searches[0].model_copy(update={"specification": str(small)})
    config = config.model_copy(update={"searches": (search,)})
    bench = small_study.bench(CentroidModel(gain=0.2))
    planned = within(config, bench, seconds=1e6)
    assert planned.time.searches[0].choice == "exhaustive" and planned.searches[0].budget == 20
    with Study.at(tmp_path / "s", planned, bench) as study:
        run(study)
    with Store.read(tmp_path / "s") as store:
        p = store.get("prevalence", str(small)).payload
        (trace,) = (r.payload for r in store.records("trace"))
    assert trace["exhausted"] and len(trace["queries"]) == 20
    assert p["exact"] and p["num_inputs"] == 20 and p["low"] is None
    assert p["share"] == p["num_failing"] / 20
    assert "all of its" in write_report(tmp_path / "s").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations_have_units(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["20", "", "m", "20 parsecs", "0s", "-3m"])
def test_a_duration_without_units_or_of_nothing_is_refused(text):
    with pytest.raises(UsageError, match="20m or 1h30m"):
        seconds_of(text)


def test_durations_are_told_as_people_say_them():
    said = [duration(s) for s in (0.25, 45.4, 1200, 3600, 5400)]
    assert said == ["0.25 s", "45 s", "20 min", "1 h", "1 h 30 min"]


def test_the_command_refuses_a_time_beside_a_budget_and_one_that_is_too_short(tmp_path):
    def ends(*words):
        done = subprocess.run(
            [sys.executable, "-m", "dreamcheck.cli.main", "discover", "--out", str(tmp_path / "s"),
             *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    both = ends("--time", "20m", "--budget", "8")
    assert both.returncode == 2 and "cannot stand together" in both.stderr
    assert "20m or 1h30m" in ends("--time", "20").stderr
    short = ends("--time", "1s", "--quiet")
    assert short.returncode == 2 and "is too short" in short.stderr
    assert not (tmp_path / "s").exists()
