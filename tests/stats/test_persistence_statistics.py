"""Persistence: units, matching, basin radius, and the simulation on smooth fields."""

import itertools

import numpy as np
import pytest

from dreamcheck.stats import (
    NotTestable,
    StatisticsInputError,
    basin_radius,
    match_controls,
    merge_touching,
    paper_persistence,
    permutation_test,
    persistence_test,
)
from dreamcheck.streams import stream


def test_neighbourhoods_that_share_an_input_are_one_group_also_through_others():
    groups = merge_touching({"a": ["x", "y"], "b": ["z"], "c": ["y", "w"], "d": ["w"], "e": []})
    assert groups == [("a", "c", "d"), ("b",), ("e",)]


def test_an_anchor_inside_another_neighbourhood_touches_it():
    assert merge_touching({"a": ["b"], "b": ["q"]}) == [("a", "b")]


def test_an_edge_between_neighbourhoods_touches_only_when_the_graph_is_given():
    hoods = {"a": ["a1"], "b": ["b1"]}
    assert merge_touching(hoods) == [("a",), ("b",)]
    edges = {"a1": ["b1"]}
    assert merge_touching(hoods, adjacent=lambda i: edges.get(i, [])) == [("a", "b")]


def test_matching_minimises_the_total_distance():
    rng = stream(0, "match")
    top = {f"t{i}": rng.random(2) for i in range(3)}
    pool = {f"c{i}": rng.random(2) for i in range(6)}
    chosen = match_controls(top, pool)
    spread = np.array(list(pool.values())).std(axis=0)

    def total(names):
        return sum(
            np.linalg.norm((top[t] - pool[c]) / spread)
            for t, c in zip(sorted(top), names, strict=True)
        )

    best = min(itertools.permutations(pool, 3), key=total)
    assert [chosen[t] for t in sorted(top)] == list(best)


def test_a_caliper_leaves_the_unmatchable_out_and_keeps_the_rest():
    pool = {"c0": [0.0], "c1": [1.0], "c2": [2.0]}
    assert match_controls({"far": [50.0], "near": [1.1]}, pool, caliper=1.0) == {"near": "c1"}
    with pytest.raises(NotTestable, match="2 top anchors"):
        match_controls({"a": [0], "b": [1]}, {"c": [0]})


def separate(prefix, values):
    """Anchors with disjoint neighbourhoods of two inputs each, and their fresh values."""
    hoods, fresh = {}, {}
    for i, v in enumerate(values):
        hoods[f"{prefix}{i}"] = [f"{prefix}{i}", f"{prefix}{i}l", f"{prefix}{i}r"]
        fresh[f"{prefix}{i}"] = 1000.0  # the anchor's own value must never be used
        fresh[f"{prefix}{i}l"], fresh[f"{prefix}{i}r"] = v - 0.1, v + 0.1
    return hoods, fresh


def test_anchors_are_left_out_and_the_units_go_into_the_exact_test():
    top, f1 = separate("t", [3.0, 4.0, 5.0, 6.0])
    control, f2 = separate("c", [1.0, 2.0, 3.5, 0.0, 1.5])
    result = persistence_test(top, control, {**f1, **f2}, value="excess risk")
    assert [u.mean for u in result.top] == pytest.approx([3, 4, 5, 6])
    assert [u.num_inputs for u in result.top] == [2, 2, 2, 2]
    oracle = permutation_test([3, 4, 5, 6], [1, 2, 3.5, 0, 1.5], alternative="greater")
    assert result.test.p == pytest.approx(oracle.p) and result.reason == ""


def test_touching_anchors_are_one_unit_and_three_units_have_no_p_value():
    top, f1 = separate("t", [3.0, 4.0, 5.0, 6.0])
    top["t1"] = [*top["t1"], "t0l"]  # t0 and t1 now touch
    control, f2 = separate("c", [1.0, 2.0, 3.0, 0.0])
    result = persistence_test(top, control, {**f1, **f2}, value="relative risk")
    assert result.test is None and "3 unit(s)" in result.reason and "4 of each" in result.reason
    assert result.top[0].anchors == ("t0", "t1") and result.top[0].num_inputs == 4


def test_a_control_that_touches_a_top_neighbourhood_is_dropped_and_named():
    top, f1 = separate("t", [3.0, 4.0, 5.0, 6.0])
    control, f2 = separate("c", [1.0, 2.0, 3.0, 0.0, 1.0])
    control["c2"] = [*control["c2"], "t3r"]
    result = persistence_test(top, control, {**f1, **f2}, value="excess risk")
    assert result.dropped == ("c2",) and len(result.control) == 4 and result.test is not None


def test_raw_risk_is_not_accepted():
    top, f1 = separate("t", [1.0] * 4)
    with pytest.raises(StatisticsInputError, match="paper_persistence"):
        persistence_test(top, {}, f1, value="risk")


def test_a_neighbour_without_a_fresh_value_is_named():
    top, f1 = separate("t", [1.0] * 4)
    control, f2 = separate("c", [1.0] * 4)
    del f1["t2r"]
    with pytest.raises(StatisticsInputError, match="'t2r'"):
        persistence_test(top, control, {**f1, **f2}, value="excess risk")


def test_no_controls_at_all_give_a_reason_instead_of_a_crash():
    top, f1 = separate("t", [1.0] * 4)
    result = persistence_test(top, {}, f1, value="excess risk")
    assert result.test is None and "4 of each" in result.reason


def test_the_basin_radius_is_where_excess_halves():
    # Means 8, 6, 2: half of 8 is 4, halfway between distance 1 (6) and 2 (2).
    result = basin_radius([0, 1, 1, 2, 2], [8.0, 5.0, 7.0, 1.0, 3.0])
    assert result.value == pytest.approx(1.5)
    assert "stays above" in basin_radius([0, 1], [8.0, 7.0]).reason
    assert "no positive excess" in basin_radius([0, 1], [-1.0, 0.0]).reason


# --- the simulation of evidence.md section 4 ---------------------------------------------------

SIDE, AXES = 4, 6
GRID = np.array(list(itertools.product(range(SIDE), repeat=AXES)))  # [4096, 6]
STRIDES = SIDE ** np.arange(AXES - 1, -1, -1)


def neighbours(index):
    """Radius-1 neighbourhood on the grid, the input itself included."""
    found = [index]
    for axis in range(AXES):
        for step in (-1, 1):
            if 0 <= GRID[index, axis] + step < SIDE:
                found.append(index + step * STRIDES[axis])
    return found


def smooth_field(rng):
    """A smooth positive difficulty: six random plane waves of long wavelength."""
    waves = rng.normal(0, 0.6, (6, AXES))
    phase = rng.uniform(0, 2 * np.pi, 6)
    return np.exp(0.5 * np.cos(GRID @ waves.T + phase).sum(axis=1))


def study(seed, failure=None):
    """One study on one field: paper p-value, default result.

    Risk is difficulty times noise, frozen risk is the same difficulty with its own noise: the
    model fails exactly where the world moves, and nowhere more than that, except in ``failure``.
    """
    rng = stream(seed, "smooth-field")
    difficulty = smooth_field(rng)
    model = difficulty if failure is None else difficulty * failure(rng)

    def measured(level):
        return level * rng.lognormal(0, 0.25, level.size)

    # The paper's anchors: the eight best scores of the search.
    search = measured(model)
    order = np.argsort(-search)
    paper_top = order[:8]
    paper_random = rng.choice(order[64:], 8, replace=False)
    fresh_raw = measured(model)

    def hood_means(anchors):
        return [fresh_raw[neighbours(i)].mean() for i in anchors]

    paper = paper_persistence(hood_means(paper_top), hood_means(paper_random))

    # Default: relative risk, spread-out anchors by relative search score, controls matched on
    # displacement, a covariate that tells difficulty up to noise.
    relative_search = search / measured(difficulty)
    covariate = np.log(measured(difficulty))
    ranked = np.argsort(-relative_search)
    top = [int(i) for i in ranked[:16]]
    pool = [int(i) for i in rng.choice(ranked[400:], 200, replace=False)]
    pairs = match_controls(
        {str(i): [covariate[i]] for i in top}, {str(i): [covariate[i]] for i in pool}
    )
    relative = fresh_raw / measured(difficulty)
    fresh = {str(i): float(relative[i]) for i in range(relative.size)}
    default = persistence_test(
        {str(i): [str(j) for j in neighbours(i)] for i in top},
        {c: [str(j) for j in neighbours(int(c))] for c in pairs.values()},
        fresh,
        value="relative risk",
    )
    return paper.p, default


def test_on_smooth_fields_the_papers_test_rejects_always_and_the_default_holds_its_level():
    fields = 180
    paper_rejections = default_rejections = testable = 0
    for seed in range(fields):
        p, default = study(seed)
        paper_rejections += p <= 0.05
        if default.test is not None:
            testable += 1
            default_rejections += default.test.p <= 0.05
    assert paper_rejections == fields
    assert testable >= fields // 2  # the level is not held by never testing
    assert default_rejections / testable <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / testable)


def test_the_default_still_sees_failures_that_difficulty_does_not_explain():
    def failure(rng):
        level = np.ones(len(GRID))
        for centre in rng.choice(len(GRID), 24, replace=False):
            distance = np.abs(GRID - GRID[centre]).sum(axis=1)
            level = np.maximum(level, np.where(distance <= 1, 3.0, 1.0))
        return level

    results = [study(seed, failure)[1] for seed in range(12)]
    seen = [r.test.p <= 0.05 for r in results if r.test is not None]
    assert len(seen) >= 8 and sum(seen) >= 0.8 * len(seen)
