"""Comparisons, designs and registrations: published values, refusals with numbers, seals."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from dreamcheck.errors import EvidenceError, GuardRefused, UsageError
from dreamcheck.planning.design import matched_pairs, power
from dreamcheck.planning.paired import bands, compare, compare_arms, compare_recipes
from dreamcheck.planning.protocol import load_protocol
from dreamcheck.planning.registration import (
    OUTCOMES,
    check_registration,
    read_registration,
    register,
)
from dreamcheck.planning.results import Outcome, arm_result, check_committed
from dreamcheck.stats import NotTestable


def arm(table, *, name="a", distance=None, final=20.0):
    """An arm from success [cases, streams]."""
    table = np.atleast_2d(np.asarray(table, bool).T).T
    outcomes = []
    for i, row in enumerate(table):
        far = 50.0 + i if distance is None else distance[i]
        for s, won in enumerate(row):
            outcomes.append(
                Outcome(
                    case=f"{i}:0",
                    episode=i,
                    start=0,
                    gap=25,
                    stream=s,
                    success=bool(won),
                    at_end=bool(won),
                    steps=20,
                    start_distance=far,
                    final_distance=10.0 if won else final,
                    min_distance=5.0,
                    trivial=far < 16,
                    replans=2,
                )
            )
    return arm_result(name, outcomes)


def realised(model="m", **changes):
    """The parts of a realised protocol that comparisons read."""
    protocol = {"budget_steps": 50, "rng_mode": "per_episode", "success": "native"}
    given = {
        "model": model, "task": "tworoom", "protocol": protocol, "list_digest": "the cases",
        "committed": None, "norm_audit": None,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **changes})


class Evaluated:
    """The parts of an Evaluation that comparisons read."""

    def __init__(self, planner, identity, **changes):
        self.planner = planner
        self.controls = {}
        self.stamps = ()
        self.label = "offset 25 / budget 50"
        self.realised = realised(identity, **changes)


def test_one_stream_is_compared_by_exact_mcnemar():
    # 39 episodes won by a alone, 1 by b alone: p = 2 (1 + 40) / 2^40 = 7.46e-11.
    a = [1] * 42 + [0] * 8
    b = [1] * 3 + [0] * 39 + [1] + [0] * 7
    made = compare_arms(arm(a), arm(b, name="b"), label="x")
    assert (made.a_only, made.b_only) == (39, 1) and made.test == "exact McNemar"
    assert made.p == pytest.approx(2 * 41 / 2**40)
    assert made.difference == pytest.approx(38 / 50)
    assert "a succeeds more often than b" in made.verdict


def test_an_interval_keeps_a_width_where_every_episode_agrees():
    a = [1] * 8 + [0] * 2
    made = compare_arms(arm(a), arm(a, name="b"), label="x")
    assert made.kind == "paired Newcombe score" and made.difference == 0.0
    # Wilson of 8/10: [0.4902, 0.9433]. phi: 8 x 2 - 0 lessened by 10/2 over sqrt(8 2 8 2) = 11/16.
    # Both sides: sqrt(l^2 + u^2 - 2 phi l u) with l = 0.3098, u = 0.1433.
    half = np.sqrt(0.3098**2 + 0.1433**2 - 2 * 11 / 16 * 0.3098 * 0.1433)
    assert (made.low, made.high) == (pytest.approx(-half, abs=1e-4), pytest.approx(half, abs=1e-4))
    # One way only, without exception: Wald has no width there either.
    lost = compare_arms(arm([0] * 10), arm([1] * 10, name="b"), label="x")
    assert lost.kind == "paired Newcombe score" and lost.low == -1.0 and -0.7 < lost.high < -0.5
    assert compare_arms(arm(a), arm([0, *a[1:]], name="b"), label="x").kind == "paired Wald"


def test_several_streams_are_compared_by_sign_flips_of_case_means():
    rng = np.random.default_rng(0)
    a = rng.random((12, 3)) < 0.9
    b = rng.random((12, 3)) < 0.2
    made = compare_arms(arm(a), arm(b, name="b"), label="x")
    assert made.test == "sign-flip on case means" and made.a_only is None
    assert made.p < 0.01 and made.low < made.difference < made.high
    same = compare_arms(arm(a), arm(a, name="b"), label="x")
    assert same.p == 1.0 and "not established at this sample size" in same.verdict


def test_swapping_the_arms_mirrors_the_comparison():
    a, b = [1, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0]
    one, two = (compare_arms(arm(x), arm(y), label="x") for x, y in ((a, b), (b, a)))
    assert one.p == two.p and one.difference == -two.difference
    assert (one.a_only, one.b_only) == (two.b_only, two.a_only)


def test_nested_failures_are_reported_with_their_distances():
    made = compare_arms(arm([1, 1, 0, 1]), arm([1, 0, 0, 0]), label="x")
    assert made.nested.a_in_b and not made.nested.b_in_a
    assert made.nested.only_b == (("1:0", 51.0), ("3:0", 53.0)) and made.nested.shared == ("2:0",)


def test_already_solved_starts_are_left_out_of_the_comparison():
    distance = [10.0, 50.0, 60.0]
    made = compare_arms(
        arm([1, 1, 0], distance=distance), arm([0, 0, 0], distance=distance), label="x"
    )
    assert made.num_cases == 2 and made.a_only == 1


def test_the_headline_leaves_already_solved_starts_out_and_the_other_rate_keeps_them():
    made = arm([1, 1, 0], distance=[10.0, 50.0, 60.0])
    assert made.num_trivial == 1
    assert (made.success.successes, made.success.num_cases) == (1.0, 2)
    assert (made.success_all.successes, made.success_all.num_cases) == (2.0, 3)


def test_other_cases_or_distances_are_not_paired():
    with pytest.raises(UsageError, match="not run on the same episodes"):
        compare_arms(arm([1, 0]), arm([1, 0, 1]), label="x")
    with pytest.raises(UsageError, match="case 1:0 starts"):
        compare_arms(arm([1, 0]), arm([1, 0], distance=[50.0, 51.5]), label="x")


def test_a_claim_about_recipes_with_too_few_runs_is_refused_with_the_number():
    runs = [Evaluated(arm(np.arange(10) < k), f"m{k}") for k in range(8)]
    with pytest.raises(NotTestable, match="needs at least 4 runs") as caught:
        compare_recipes(runs[:3], runs[3:6])
    assert caught.value.needed == 4
    made = compare_recipes(runs[4:], runs[:4])
    # All four above all four: 2 / C(8, 4).
    assert made.p == pytest.approx(2 / 70) and "recipe a succeeds more often" in made.verdict
    with pytest.raises(UsageError, match="one checkpoint appears twice"):
        compare_recipes([runs[0]] * 4, runs[1:5])


def test_two_evaluations_of_other_starts_or_goals_are_not_paired():
    a, b = Evaluated(arm([1, 0]), "m0"), Evaluated(arm([0, 0]), "m1", list_digest="other goals")
    with pytest.raises(UsageError, match="starts and goals"):
        compare(a, b)
    with pytest.raises(UsageError, match="starts and goals"):
        power(effect=0.2, pilot=(a, b))


def test_an_evaluation_that_is_not_its_committed_list_is_no_analysis():
    # Episodes 0 and 1 were run; the list names 0, 1 and 7.
    part = Evaluated(arm([1, 0]), "m0", committed=(0, 1, 7))
    with pytest.raises(UsageError, match=r"not evaluated \[7\], evaluated but not on it \[\]"):
        compare(part, Evaluated(arm([0, 0]), "m1", committed=(0, 1, 7)))
    with pytest.raises(UsageError, match=r"evaluated but not on it \[1\]"):
        check_committed(Evaluated(arm([1, 0]), "m0", committed=(0,)))
    check_committed(Evaluated(arm([1, 0]), "m0", committed=(1, 0)))  # a set, in any order


def test_a_repaired_and_an_unrepaired_checkpoint_are_not_compared():
    def audited(verdict, gap):
        measured = {"gap": {"value": gap, "unit": ""}}
        return {"verdict": verdict, "measured": measured, "threshold": None, "evidence": []}

    stale = Evaluated(arm([1, 0]), "m0", norm_audit=audited("wrong", 3.1))
    repaired = Evaluated(arm([0, 0]), "m1", norm_audit=audited("fine", 1.02))
    with pytest.raises(UsageError, match=r"wrong, gap 3\.1 of a and fine, gap 1\.02 of b"):
        compare(stale, repaired)
    assert compare(repaired, repaired).p == 1.0


def test_bands_cover_every_case_the_farthest_included():
    rows = bands({"a": arm([1, 0, 1], distance=[20.0, 100.0, 500.0])})
    assert sum(r["num_cases"] for r in rows) == 3 and rows[-1]["num_cases"] == 1
    assert [r["a"] for r in rows if r["num_cases"]] == [1.0, 0.0, 1.0]


def test_power_reproduces_the_published_design():
    made = power(effect=0.2, rates=(0.64, 0.44), num_cases=110)
    assert made.power_now == pytest.approx(0.8148, abs=1e-3)
    assert made.episodes_one_stream <= 125 and made.runs == 4
    with pytest.raises(UsageError, match="differ by"):
        power(effect=0.3, rates=(0.64, 0.44))


def test_power_from_a_pilot_needs_fewer_episodes_with_more_streams():
    rng = np.random.default_rng(3)
    ease = rng.random((20, 1))
    pilot = tuple(Evaluated(arm(rng.random((20, 3)) < ease), f"m{i}") for i in range(2))
    made = power(effect=0.2, pilot=pilot)
    needed = dict(made.episodes_by_streams)
    assert needed[1] > needed[3] > needed[5] >= 6
    assert "from a pilot of 20 episodes" in made.lines()[0]


def test_matched_pairs_stay_within_the_caliper_and_use_each_partner_once():
    rng = np.random.default_rng(0)
    starts = rng.uniform(21, 203, (300, 2))
    goals = rng.uniform(21, 203, (300, 2))
    made = matched_pairs(np.arange(300), starts, goals, offset=100, limit=40)
    assert len(made.pairs) <= 40 and made.gap_max <= 6.0
    assert len({p.same for p in made.pairs}) == len(made.pairs)
    for p in made.pairs:
        assert (starts[p.cross, 0] < 112) != (goals[p.cross, 0] < 112)
        assert (starts[p.same, 0] < 112) == (goals[p.same, 0] < 112)
        assert p.cross_distance == pytest.approx(np.hypot(*(starts[p.cross] - goals[p.cross])))
    listed = made.to_list()
    assert listed["goal_offset"] == 100 and len(listed["episodes"]) == 2 * len(made.pairs)
    none = matched_pairs([0, 1], [[50, 50], [50, 50]], [[180, 50], [60, 50]], offset=5)
    assert none.pairs == () and none.unmatched == (130.0, 130.0)


RULES = dict.fromkeys(OUTCOMES, "say so")


def sealed(now, **changes):
    given = {
        "design": "d",
        "primary_test": "exact McNemar",
        "rules": RULES,
        "protocol": load_protocol("lewm-repo"),
        "list_digest": "abc",
        "now": now,
    }
    return register(**{**given, **changes})


def test_a_seal_must_be_whole_and_earlier_than_the_first_result(tmp_path):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = sealed(now)
    path = tmp_path / "r.json"
    made.write(path)
    with pytest.raises(UsageError, match="made once"):
        made.write(path)
    found = read_registration(path)
    given = {"list_digest": "abc", "protocol": load_protocol("lewm-repo")}
    check_registration(found, **given, first_result_at=now + timedelta(seconds=1))
    with pytest.raises(GuardRefused, match="not before the first result"):
        check_registration(found, **given, first_result_at=now)
    with pytest.raises(GuardRefused, match="no registration"):
        check_registration(None, **given, first_result_at=now)
    with pytest.raises(GuardRefused, match="not the registered ones"):
        check_registration(
            found, **{**given, "list_digest": "x"}, first_result_at=now + timedelta(1)
        )
    with pytest.raises(GuardRefused, match="budget_steps"):
        check_registration(
            found,
            **{**given, "protocol": load_protocol("lewm-repo").replace(budget_steps=60)},
            first_result_at=now + timedelta(1),
        )
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "primary_test": "whatever is smallest"}))
    with pytest.raises(EvidenceError, match="altered"):
        read_registration(path)
    with pytest.raises(EvidenceError):
        check_registration(
            replace(made, design="other"), **given, first_result_at=now + timedelta(1)
        )


def test_every_outcome_needs_its_rule_before_it_is_seen():
    with pytest.raises(UsageError, match="worse"):
        sealed(None, rules={k: v for k, v in RULES.items() if k != "worse"})
