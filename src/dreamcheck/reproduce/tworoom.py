"""The TwoRoom planning paper's tables, recomputed from its released per-episode outcomes.

Definitions follow the ``conventions`` of the data's expected.json and protocol.md section 7:
success is the recorded flag, "farther" compares the stored two-decimal distances strictly,
"nontrivial" is ``trivial_start`` false, bands include their lower edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.reproduce.checks import Report, Tolerance, compare
from dreamcheck.reproduce.outcomes import Arm, read_arm, read_json, recorded_digests
from dreamcheck.stats import (
    PairedCounts,
    binomial_test,
    difference_paired_wald,
    difference_unpaired_wald,
    mcnemar_chi2,
    mcnemar_exact,
    mcnemar_power_at_rates,
    paired_counts,
    score_test,
    wilson_interval,
)

SECTIONS = ("arms", "pairs", "matched_pairs", "one_sample", "strata", "misc")
# The published difference intervals use the rounded quantile.
PUBLISHED_Z = 1.96
# Inputs quoted from the paper's Table 3, not in the released outcomes: the one-step error of each
# checkpoint over a frozen world, beside its arms at (offset, budget).
DISSOCIATION = {
    "precorrection": (
        0.829,
        {
            "25_50": "exp_run2_recal_25/cem",
            "100_50": "exp_run2_recal/cem",
            "100_150": "exp_ref_r2/cem",
        },
    ),
    "authors": (
        0.41,
        {
            "25_50": "exp_authors/authors_cem",
            "100_50": "exp_authors_100/authors_cem",
            "100_150": "exp_ref_protocol/authors_cem",
        },
    ),
    "corrected": (
        0.116,
        {
            "25_50": "exp_phase2_recal_25/cem",
            "100_50": "exp_phase2_recal/cem",
            "100_150": "exp_ref_p2/cem",
        },
    ),
}
CONTROL_100_50 = "exp_phase2_recal/random"
# In the order they were run: the registered primary first.
WALL_ARMS = ("exp_balanced_wall", "exp_wall_scaled", "exp_wall_recal")
NESTED = ("exp_phase2_recal_25/cem", "exp_authors/authors_cem")
SELECTION_25, SELECTION_100 = "exp_authors/authors_cem", "exp_authors_100/authors_cem"
TARGET_ALL = "exp_target_all/authors_cem"
NUM_EPISODES, NUM_ELIGIBLE_100, DRAW_SEED = 10_000, 6_056, 42
# The recorded power is a simulation of 4,000 trials: four standard errors at 0.81 are 0.025.
POWER_SIMULATION_TOLERANCE = 0.025

EXACT = Tolerance()
TOLERANCES: Mapping[str, Tolerance] = {
    **dict.fromkeys(("rate", "guard_paired_median", "p0"), Tolerance(absolute=1e-9)),
    **dict.fromkeys(("success_25_50", "success_100_50", "success_100_150"), Tolerance(1e-9)),
    **dict.fromkeys(("one_step_error", "recorded_power"), Tolerance(absolute=1e-9)),
    "wilson95": Tolerance(absolute=1e-6),
    **dict.fromkeys(
        (
            "mcnemar_exact_p",
            "chi2_continuity",
            "chi2_continuity_p",
            "chi2_uncorrected",
            "chi2_uncorrected_p",
            "exact_two_sided_p_minlike",
            "exact_two_sided_p_doubled_tail",
            "score_z_p",
            "exact_power",
        ),
        Tolerance(relative=1e-6),
    ),
    **dict.fromkeys(
        (
            "mean_final_dist",
            "mean_start_goal_dist",
            "median_start_goal_dist",
            "median_ratio_final_over_start_among_farther_misses",
            "median_steps_to_success",
            "median_within_pair_gap",
            "max_within_pair_gap",
            "median_same",
            "median_cross",
            "inner_failed_start_goal",
            "mean_final_100_50_minus_control",
        ),
        Tolerance(absolute=1e-6),
    ),
    **dict.fromkeys(
        ("difference_points", "ci95_unpaired_wald_points", "ci95_paired_wald_points"),
        Tolerance(absolute=1e-4),
    ),
}


def reproduce_tworoom(data_dir: Path | str) -> Report:
    """Every count, interval, test and mean of the TwoRoom paper, checked and computed.

    Args:
        data_dir: folder with ``ids.json``, ``expected.json``, ``balanced_episodes.json`` and one
            sub-folder per arm.

    Returns:
        A report whose ``checks`` hold one line per published field (and per file digest where
        SHA256SUMS lies beside the data), and whose ``values`` hold every entry of ids.json in the
        schema of expected.json, also those without a published value, and every further arm file
        found in the folder.

    Raises:
        UsageError: the folder, a listed file or a field is missing or malformed.
        EvidenceError: two arms that are to be paired were run on different episodes.
    """
    folder = Path(data_dir)
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder: pass the folder of the released TwoRoom runs with --data"
        )
    ids = read_json(folder / "ids.json")
    expected = read_json(folder / "expected.json")
    for name, content in (("ids.json", ids), ("expected.json", expected)):
        for section in SECTIONS:
            if not isinstance(content, dict) or not isinstance(content.get(section), list):
                raise UsageError(f"{folder / name} has no list {section!r}")

            for i, entry in enumerate(content[section]):
                if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
                    raise UsageError(f"{folder / name} {section}[{i}] has no id")

    try:
        return _reproduce(folder, ids, expected)
    except (KeyError, TypeError) as error:
        # Every arm is checked field by field; what is left are ids.json and the committed list.
        raise UsageError(
            f"{folder}: an entry of ids.json or balanced_episodes.json lacks {error}"
        ) from error


def _reproduce(folder: Path, ids: Mapping[str, Any], expected: Mapping[str, Any]) -> Report:
    arms = _read_arms(folder, ids["arms"])
    report = Report("TwoRoom planning paper")
    report.values = {
        "arms": [arm_values(arm) for arm in arms.values()],
        "pairs": [
            pair_values(e["id"], _arm(arms, e["a"]), _arm(arms, e["b"])) for e in ids["pairs"]
        ],
        "matched_pairs": [matched_values(_arm(arms, e["id"])) for e in ids["matched_pairs"]],
        "one_sample": [
            one_sample_values(e["id"], _arm(arms, e["arm"]), p0=e["p0"]) for e in ids["one_sample"]
        ],
        "strata": [strata_values(e["id"], _arm(arms, e["arm"]), e["bands"]) for e in ids["strata"]],
        "misc": [_misc(e["id"], arms, folder) for e in ids["misc"]],
    }
    for name, (recorded, here) in sorted(recorded_digests(folder).items()):
        report.checks.append(compare(f"files/{name}/sha256", recorded, here))
    for section in SECTIONS:
        computed = {entry["id"]: entry for entry in report.values[section]}
        for entry in expected[section]:
            report.checks.extend(_entry_checks(section, entry, computed.get(entry["id"])))
    report.notes = [
        "the one-step errors are quoted from the paper; nothing released recomputes them",
        "the published difference intervals are unpaired although the design is paired; both are "
        "printed",
        "exp_target_* arms share episodes with the offset-25 arms and not goals: their pairs "
        "compare goal constructions",
    ]
    return report


def _read_arms(folder: Path, listed: Sequence[Mapping[str, Any]]) -> dict[str, Arm]:
    arms = {e["id"]: read_arm(folder, e["file"], arm_id=e["id"]) for e in listed}
    known = {arm.file for arm in arms.values()}
    for path in sorted(folder.rglob("*_plan_*.json")):
        file = path.relative_to(folder).as_posix()
        if file not in known:
            arm_id = (
                f"{path.parent.relative_to(folder).as_posix()}/{path.stem.split('_plan_', 1)[1]}"
            )
            arms[arm_id] = read_arm(folder, file, arm_id=arm_id)
    return arms


def _arm(arms: Mapping[str, Arm], arm_id: str) -> Arm:
    if arm_id not in arms:
        raise UsageError(f"arm {arm_id!r} is named but not in the folder; {len(arms)} arms are")
    return arms[arm_id]


def _entry_checks(section: str, entry: Mapping[str, Any], got: Mapping[str, Any] | None) -> list:
    label = f"{section}/{entry['id']}"
    if got is None:
        return [compare(label, dict(entry), None)]
    return [
        compare(f"{label}/{name}", value, got.get(name), tolerance=TOLERANCES.get(name, EXACT))
        for name, value in entry.items()
        if name != "id"
    ]


def _median(values: Sequence[float]) -> float | None:
    """None for nothing: an arm without a success has no median number of steps."""
    return float(np.median(values)) if len(values) else None


def arm_values(arm: Arm) -> dict[str, Any]:
    """Counts, rate, Wilson interval and distances of one arm (protocol.md S1, S9, H2)."""
    outcomes, misses = arm.outcomes, arm.misses
    n = len(outcomes)
    farther = [o for o in misses if o.farther]
    nontrivial = [o for o in outcomes if not o.trivial_start]
    start = [o.start_goal_dist for o in outcomes]
    return {
        "id": arm.id,
        "file": arm.file,
        "n": n,
        "successes": arm.successes,
        "rate": arm.successes / n,
        "wilson95": list(wilson_interval(arm.successes, n)),
        "nontrivial_n": len(nontrivial),
        "nontrivial_successes": sum(o.success for o in nontrivial),
        "mean_final_dist": float(np.mean([o.final_dist for o in outcomes])),
        "mean_start_goal_dist": float(np.mean(start)),
        "median_start_goal_dist": _median(start),
        "misses": len(misses),
        "misses_farther_than_start": len(farther),
        "all_farther_than_start": sum(o.farther for o in outcomes),
        "median_ratio_final_over_start_among_farther_misses": _median(
            [o.final_dist / o.start_goal_dist for o in farther]
        ),
        "median_steps_to_success": _median([o.steps for o in outcomes if o.success]),
        "max_plans": max(o.plans for o in outcomes),
        "guard_paired_median": arm.guard_paired_median,
        "guard_status": arm.guard_status,
    }


def pair_values(pair_id: str, a: Arm, b: Arm) -> dict[str, Any]:
    """Paired counts and McNemar tests of two arms, episode by episode (protocol.md S3, S4).

    Raises:
        EvidenceError: the arms were run on different episodes, so there is nothing to pair.
    """
    if sorted(a.episodes) != sorted(b.episodes):
        raise EvidenceError(
            f"pair {pair_id!r}: {a.id} and {b.id} were run on different episodes and cannot be paired"
        )
    succeeded_b = {o.episode: o.success for o in b.outcomes}
    counts = paired_counts(
        [o.success for o in a.outcomes], [succeeded_b[o.episode] for o in a.outcomes]
    )
    corrected = mcnemar_chi2(counts.a_only, counts.b_only)
    plain = mcnemar_chi2(counts.a_only, counts.b_only, continuity=False)
    return {
        "id": pair_id,
        "a": a.id,
        "b": b.id,
        "n": counts.num_cases,
        "both": counts.both,
        "a_only": counts.a_only,
        "b_only": counts.b_only,
        "neither": counts.neither,
        "mcnemar_exact_p": mcnemar_exact(counts.a_only, counts.b_only),
        "chi2_continuity": corrected.statistic,
        "chi2_continuity_p": corrected.p,
        "chi2_uncorrected": plain.statistic,
        "chi2_uncorrected_p": plain.p,
    }


def matched_counts(arm: Arm) -> PairedCounts:
    """Same-room (a) against cross-wall (b) success inside each matched pair of one arm.

    Raises:
        EvidenceError: an episode has no pair, or a pair is not one same-room and one cross-wall.
    """
    by_pair: dict[int, dict[str, bool]] = {}
    for o in arm.outcomes:
        if o.pair_id is None or o.geometry not in ("same", "cross"):
            raise EvidenceError(f"{arm.file}: episode {o.episode} carries no pair and geometry")
        pair = by_pair.setdefault(o.pair_id, {})
        if o.geometry in pair:
            raise EvidenceError(f"{arm.file}: pair {o.pair_id} has two {o.geometry} episodes")
        pair[o.geometry] = o.success
    for pair_id, pair in by_pair.items():
        if len(pair) != 2:
            raise EvidenceError(f"{arm.file}: pair {pair_id} is incomplete")
    pairs = by_pair.values()
    return paired_counts([p["same"] for p in pairs], [p["cross"] for p in pairs])


def matched_values(arm: Arm) -> dict[str, Any]:
    """Same room minus cross wall in points, with both Wald intervals (protocol.md S3, S6)."""
    counts = matched_counts(arm)
    n = counts.num_cases
    same, cross = counts.both + counts.a_only, counts.both + counts.b_only
    unpaired = difference_unpaired_wald(same, n, cross, n, z=PUBLISHED_Z)
    paired = difference_paired_wald(counts, z=PUBLISHED_Z)
    return {
        "id": arm.id,
        "pairs": n,
        "same_successes": same,
        "cross_successes": cross,
        "difference_points": 100 * unpaired.difference,
        "ci95_unpaired_wald_points": [100 * b for b in unpaired.interval],
        "ci95_paired_wald_points": [100 * b for b in paired.interval],
        "same_only": counts.a_only,
        "cross_only": counts.b_only,
        "mcnemar_exact_p": mcnemar_exact(counts.a_only, counts.b_only),
    }


def one_sample_values(entry_id: str, arm: Arm, *, p0: float) -> dict[str, Any]:
    """One arm's success count against a quoted rate (protocol.md S2)."""
    k, n = arm.successes, len(arm.outcomes)
    return {
        "id": entry_id,
        "arm": arm.id,
        "k": k,
        "n": n,
        "p0": p0,
        "exact_two_sided_p_minlike": binomial_test(k, n, p0),
        "exact_two_sided_p_doubled_tail": binomial_test(k, n, p0, two_sided="doubled"),
        "score_z_p": score_test(k, n, p0).p,
        "wilson95_contains_p0": wilson_interval(k, n).holds(p0),
    }


def strata_values(entry_id: str, arm: Arm, bands: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Successes by start-goal distance; a band holds lo <= distance < hi (protocol.md S11).

    Raises:
        EvidenceError: an episode lies in no band: every band must be printed.
    """
    rows = []
    for lo, hi in bands:
        inside = [o for o in arm.outcomes if lo <= o.start_goal_dist < hi]
        rows.append(
            {"lo": lo, "hi": hi, "n": len(inside), "successes": sum(o.success for o in inside)}
        )
    if sum(r["n"] for r in rows) != len(arm.outcomes):
        raise EvidenceError(f"{entry_id}: bands {bands} do not hold every episode exactly once")
    return {"id": entry_id, "arm": arm.id, "bands": rows}


def _misc(entry_id: str, arms: Mapping[str, Arm], folder: Path) -> dict[str, Any]:
    if entry_id == "balanced_design":
        return balanced_design(arms, read_json(folder / "balanced_episodes.json"))
    makers = {
        "nested_failures": nested_failures,
        "selection_25": selection_25,
        "selection_100": selection_100,
        "identical_per_episode_results": identical_results,
        "dissociation": dissociation,
    }
    if entry_id not in makers:
        raise UsageError(f"ids.json asks for misc entry {entry_id!r}, which no rule here computes")
    return makers[entry_id](arms)


def balanced_design(arms: Mapping[str, Arm], committed: Mapping[str, Any]) -> dict[str, Any]:
    """The committed matched design and its power (protocol.md S12, S13)."""
    episodes = committed["episodes"]
    distance: dict[str, dict[int, float]] = {"same": {}, "cross": {}}
    for e in episodes:
        distance[e["geometry"]][e["pair_id"]] = e["sel_dist"]
    if set(distance["same"]) != set(distance["cross"]):
        raise EvidenceError("balanced_episodes.json: a pair lacks its same-room or cross-wall half")
    gaps = [abs(distance["same"][p] - distance["cross"][p]) for p in distance["same"]]
    listed = {(e["episode"], e["geometry"], e["pair_id"]) for e in episodes}
    evaluated = [
        {(o.episode, o.geometry, o.pair_id) for o in arm.outcomes}
        for arm in arms.values()
        if arm.id.split("/")[0] in WALL_ARMS
    ]
    rate_same, rate_cross = committed["assumed_rates"]
    return {
        "id": "balanced_design",
        "n_pairs": len(gaps),
        "unique_episodes": len({e["episode"] for e in episodes}),
        "median_within_pair_gap": _median(gaps),
        "max_within_pair_gap": max(gaps),
        "median_same": _median(list(distance["same"].values())),
        "median_cross": _median(list(distance["cross"].values())),
        "evaluated_set_equals_committed": bool(evaluated) and all(e == listed for e in evaluated),
        "recorded_power": committed["power"],
        "exact_power": mcnemar_power_at_rates(rate_same, rate_cross, num_pairs=len(gaps)),
        "power_simulation_tolerance": POWER_SIMULATION_TOLERANCE,
    }


def nested_failures(arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Whether one arm's failed set lies inside another's, with distances (protocol.md S10)."""
    inner, outer = (_arm(arms, a) for a in NESTED)
    failed = sorted(inner.misses, key=lambda o: o.episode)
    inside = [o.episode for o in failed]
    outside = sorted(o.episode for o in outer.misses)
    return {
        "id": "nested_failures",
        "inner": inner.id,
        "outer": outer.id,
        "inner_failed_episodes": inside,
        "outer_failed_episodes": outside,
        "inner_is_subset": set(inside) <= set(outside),
        "inner_failed_start_goal": [o.start_goal_dist for o in failed],
    }


def selection_25(arms: Mapping[str, Arm]) -> dict[str, Any]:
    """The seeded draw that every offset-25 run and the all-episode target run used (P9)."""
    drawn = np.random.default_rng(DRAW_SEED).choice(
        np.arange(NUM_EPISODES), len(_arm(arms, SELECTION_25).outcomes), replace=False
    )
    order = [int(e) for e in drawn]
    same = _arm(arms, TARGET_ALL)
    return {
        "id": "selection_25",
        "rule": "numpy default_rng(42).choice(arange(10000), 50, replace=False)",
        "first_five": order[:5],
        "equal_to_run_order": order == _arm(arms, SELECTION_25).episodes == same.episodes,
        "same_episodes_as": same.id,
    }


def selection_100(arms: Mapping[str, Arm]) -> dict[str, Any]:
    """The draw at offset 100: positions in a list of eligible episodes that is not released."""
    episodes = _arm(arms, SELECTION_100).episodes
    positions = np.random.default_rng(DRAW_SEED).choice(
        NUM_ELIGIBLE_100, len(episodes), replace=False
    )
    largest = int(positions.argmax())
    return {
        "id": "selection_100",
        "rule": "numpy default_rng(42).choice(6056, 50, replace=False) gives positions in the "
        "ascending list of eligible episodes; only the order isomorphism can be checked without "
        "the dataset",
        "order_isomorphic": bool((np.argsort(positions) == np.argsort(episodes)).all()),
        "max_position": int(positions[largest]),
        "episode_at_max_position": episodes[largest],
        "overlap_with_selection_25": len(set(episodes) & set(_arm(arms, SELECTION_25).episodes)),
    }


def identical_results(arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Groups of arms whose every episode came out the same: shared controls, unrealised options."""
    groups: dict[tuple, list[str]] = {}
    for arm in arms.values():
        groups.setdefault(arm.outcomes, []).append(arm.id)

    def run_order(arm_id: str) -> tuple[int, str]:
        folder = arm_id.split("/")[0]
        return (WALL_ARMS.index(folder) if folder in WALL_ARMS else -1, arm_id)

    shared = [
        (len(outcomes), max(o.plans for o in outcomes) == 0, sorted(members, key=run_order))
        for outcomes, members in groups.items()
        if len(members) > 1
    ]
    return {
        "id": "identical_per_episode_results",
        # Short runs before long ones, planners before random controls.
        "groups": [members for _, _, members in sorted(shared)],
    }


def dissociation(arms: Mapping[str, Arm]) -> dict[str, Any]:
    """One-step error against success at three protocols (protocol.md H1, H2)."""
    control = float(np.mean([o.final_dist for o in _arm(arms, CONTROL_100_50).outcomes]))
    errors = [error for error, _ in DISSOCIATION.values()]
    success: dict[str, list[float]] = {}
    for protocol in ("25_50", "100_50", "100_150"):
        chosen = [_arm(arms, by_protocol[protocol]) for _, by_protocol in DISSOCIATION.values()]
        success[protocol] = [a.successes / len(a.outcomes) for a in chosen]
    long_arms = [_arm(arms, by_protocol["100_50"]) for _, by_protocol in DISSOCIATION.values()]
    above = [float(np.mean([o.final_dist for o in a.outcomes])) - control for a in long_arms]
    flags = [
        gap > 0 and 2 * sum(o.farther for o in arm.misses) >= len(arm.misses)
        for gap, arm in zip(above, long_arms, strict=True)
    ]
    return {
        "id": "dissociation",
        "checkpoints": list(DISSOCIATION),
        "one_step_error": errors,
        **{f"success_{p}": s for p, s in success.items()},
        "monotone_25": monotone(errors, success["25_50"]),
        "monotone_100_50": monotone(errors, success["100_50"]),
        "monotone_100_150": monotone(errors, success["100_150"]),
        "mean_final_100_50_minus_control": above,
        "overshoot_flag": flags,
    }


def monotone(errors: Sequence[float], success: Sequence[float]) -> bool:
    """True iff success strictly rises as error strictly falls (protocol.md H1)."""
    ordered = sorted(zip(errors, success, strict=True), key=lambda pair: -pair[0])
    return all(e2 < e1 and s2 > s1 for (e1, s1), (e2, s2) in pairwise(ordered))
