"""The TwoRoom tables: hand-worked arms, and the released data altered one outcome at a time."""

import json
import math
import shutil
from pathlib import Path

import pytest

from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.reproduce import reproduce_tworoom
from dreamcheck.reproduce.outcomes import Arm, Outcome, read_arm
from dreamcheck.reproduce.tworoom import (
    SECTIONS,
    arm_values,
    identical_results,
    matched_values,
    monotone,
    pair_values,
    strata_values,
)

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "tworoom_runs"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the released TwoRoom runs are not beside the repository"
)


def outcome(episode, success, final, start, **more):
    fields = {
        "steps": 10,
        "trivial_start": start < 16,
        "plans": 2,
        "geometry": None,
        "pair_id": None,
    }
    return Outcome(
        episode=episode,
        success=success,
        final_dist=final,
        start_goal_dist=start,
        **{**fields, **more},
    )


def arm(outcomes, name="x/cem"):
    return Arm(name, "f.json", tuple(outcomes), "pass", 0.01)


def test_an_arm_by_hand():
    values = arm_values(
        arm(
            [
                outcome(1, True, 10.0, 50.0, steps=20),
                outcome(2, True, 12.0, 10.0, steps=31),  # trivial start, ended farther
                outcome(3, False, 90.0, 60.0),  # farther, ratio 1.5
                outcome(4, False, 40.0, 40.0),  # not strictly farther
                outcome(5, False, 100.0, 40.0, plans=6),  # farther, ratio 2.5
            ]
        )
    )
    assert (values["n"], values["successes"], values["rate"]) == (5, 2, 0.4)
    assert (values["nontrivial_n"], values["nontrivial_successes"]) == (4, 1)
    assert values["misses"] == 3
    assert (values["misses_farther_than_start"], values["all_farther_than_start"]) == (2, 3)
    assert values["median_ratio_final_over_start_among_farther_misses"] == 2.0
    assert values["median_steps_to_success"] == 25.5
    assert values["mean_final_dist"] == pytest.approx(50.4) and values["max_plans"] == 6
    assert (values["mean_start_goal_dist"], values["median_start_goal_dist"]) == (40.0, 40.0)


def test_an_arm_without_a_success_has_no_median_steps():
    values = arm_values(arm([outcome(1, False, 10.0, 50.0)]))
    assert values["median_steps_to_success"] is None
    assert values["median_ratio_final_over_start_among_farther_misses"] is None
    assert values["wilson95"][0] == 0.0 and values["wilson95"][1] > 0.5


def test_pairs_join_on_the_episode_and_not_on_the_position():
    a = arm([outcome(1, True, 1, 20), outcome(2, True, 1, 20), outcome(3, False, 9, 20)])
    b = arm([outcome(3, False, 9, 20), outcome(1, True, 1, 20), outcome(2, False, 9, 20)])
    values = pair_values("p", a, b)
    assert [values[k] for k in ("both", "a_only", "b_only", "neither")] == [1, 1, 0, 1]
    assert values["mcnemar_exact_p"] == 1.0 and values["chi2_continuity"] == 0.0
    assert values["chi2_uncorrected"] == 1.0


def test_arms_on_different_episodes_are_not_paired():
    with pytest.raises(EvidenceError, match="different episodes"):
        pair_values("p", arm([outcome(1, True, 1, 20)]), arm([outcome(2, True, 1, 20)]))


def test_matched_pairs_by_hand():
    outcomes = []
    for pair, (same, cross) in enumerate([(1, 1), (1, 0), (1, 0), (0, 1)]):
        for geometry, success in (("cross", cross), ("same", same)):
            outcomes.append(
                outcome(len(outcomes), bool(success), 1, 20, geometry=geometry, pair_id=pair)
            )
    values = matched_values(arm(outcomes))
    assert (values["same_successes"], values["cross_successes"]) == (3, 2)
    assert (values["same_only"], values["cross_only"]) == (2, 1)
    assert values["difference_points"] == 25.0
    # unpaired: 1.96 sqrt(0.75 0.25 / 4 + 0.25 / 4); paired: 1.96 sqrt(3 - 1/4) / 4
    half = 196 * math.sqrt(0.1875 / 4 + 0.25 / 4)
    assert values["ci95_unpaired_wald_points"] == pytest.approx([25 - half, 25 + half])
    half = 196 * math.sqrt(2.75) / 4
    assert values["ci95_paired_wald_points"] == pytest.approx([25 - half, 25 + half])
    with pytest.raises(EvidenceError, match="incomplete"):
        matched_values(arm(outcomes[:-1]))


def test_a_band_holds_its_lower_edge_only_and_none_is_left_out():
    a = arm([outcome(1, True, 1, 60.0), outcome(2, False, 9, 59.99)])
    rows = strata_values("s", a, [[0, 60], [60, 100]])["bands"]
    assert [(r["n"], r["successes"]) for r in rows] == [(1, 0), (1, 1)]
    with pytest.raises(EvidenceError, match="every episode"):
        strata_values("s", a, [[0, 60]])


def test_monotone_needs_both_strict():
    assert monotone([0.8, 0.4, 0.1], [0.1, 0.2, 0.3])
    assert monotone([0.1, 0.8, 0.4], [0.3, 0.1, 0.2])  # order of listing is irrelevant
    assert not monotone([0.8, 0.4, 0.1], [0.1, 0.1, 0.3])
    assert not monotone([0.8, 0.4, 0.1], [0.3, 0.2, 0.1])


def test_identical_arms_are_found_by_their_episodes():
    same = [outcome(1, True, 1, 20)]
    arms = {n: arm(o, n) for n, o in (("b", same), ("a", same), ("c", [outcome(1, False, 1, 20)]))}
    assert identical_results(arms)["groups"] == [["a", "b"]]


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="not a folder"):
        reproduce_tworoom(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="ids.json does not exist"):
        reproduce_tworoom(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"success": 1}, "success = 1"),
        ({"final_dist": float("nan")}, "final_dist"),
        ({"steps": None}, "steps"),
        ({"episode": True}, "episode = True"),
    ],
)
def test_a_bad_field_is_named_with_its_place(tmp_path, change, message):
    good = {
        "episode": 3,
        "success": True,
        "steps": 4,
        "final_dist": 2.0,
        "start_goal_dist": 20.0,
        "trivial_start": False,
        "plans": 1,
    }
    content = {"guard": {"status": "pass", "paired_median": 0.1}, "results": [good]}
    path = tmp_path / "arm.json"
    path.write_text(json.dumps(content))
    assert read_arm(tmp_path, "arm.json", arm_id="x").successes == 1
    content["results"] = [good, {**good, "episode": 4, **change}]
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"results\[1\].*" + message):
        read_arm(tmp_path, "arm.json", arm_id="x")


def test_an_episode_twice_is_refused(tmp_path):
    r = dict(episode=3, success=True, steps=4, final_dist=2.0, start_goal_dist=20.0)
    r |= dict(trivial_start=False, plans=1)
    content = {"guard": {"status": "pass", "paired_median": 0.1}, "results": [r, r]}
    (tmp_path / "arm.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="episode 3 twice"):
        read_arm(tmp_path, "arm.json", arm_id="x")


@needs_data
def test_every_published_value_is_reproduced_and_every_listed_entry_computed():
    report = reproduce_tworoom(DATA)
    assert report.ok, report.lines(only_misses=True)[:10]
    assert len(report.checks) > 900
    ids = json.loads((DATA / "ids.json").read_text())
    expected = json.loads((DATA / "expected.json").read_text())
    for section in SECTIONS:
        values = {e["id"]: e for e in report.values[section]}
        assert set(values) >= {e["id"] for e in ids[section]}
        schema = [set(e) for e in expected[section]]
        if section != "misc":  # one schema for all entries, published or not
            assert all(set(e) == schema[0] for e in values.values())


@needs_data
def test_one_altered_outcome_is_named(tmp_path):
    copy = tmp_path / "runs"
    shutil.copytree(DATA, copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    file = copy / "exp_ref_p2" / "realenv_plan_cem.json"
    content = json.loads(file.read_text())
    content["results"][7]["success"] = not content["results"][7]["success"]
    file.write_text(json.dumps(content))
    missed = {c.id for c in reproduce_tworoom(copy).misses}
    assert "files/exp_ref_p2/realenv_plan_cem.json/sha256" in missed
    assert {"arms/exp_ref_p2/cem/successes", "strata/strata:exp_ref_p2/cem/bands"} <= missed
    assert "misc/dissociation/success_100_150" in missed
    assert not any(
        "exp_ref_r2" in name and "strata" not in name for name in missed if "arms" in name
    )


@needs_data
def test_an_arm_file_that_no_list_names_is_computed_too(tmp_path):
    copy = tmp_path / "runs"
    shutil.copytree(DATA, copy)
    copy.chmod(0o755)
    new = copy / "exp_new"
    new.mkdir()
    shutil.copy(copy / "exp_ref_p2" / "realenv_plan_cem.json", new / "realenv_plan_cem.json")
    arms = {a["id"]: a for a in reproduce_tworoom(copy).values["arms"]}
    assert arms["exp_new/cem"]["successes"] == arms["exp_ref_p2/cem"]["successes"]
