"""The smallest change and the basin radius on landscapes whose answers are worked by hand.

Every seed gives the same loss, so a bound is the risk itself and a verdict is a comparison: an input
is confirmed where its risk lies above the random references', which all have risk 1.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import small_study
from dreamcheck.discovery import Graph, Library, specification_from
from dreamcheck.evidence import Statistic
from dreamcheck.progress import Progress
from dreamcheck.study.basins import basins, shells
from dreamcheck.study.editing import edit_path
from dreamcheck.study.measuring import Aggregate, Asked
from dreamcheck.study.reselecting import Fresh

SEEDS = {"search": (0, 1), "validation": tuple(range(16, 32)), "neighbourhood": (48, 49),
         "reselection": tuple(range(64, 80))}  # fmt: skip
SEARCH = SimpleNamespace(specification="hand")


def library(names, side, *, nominal=None, rules=()):
    coordinates = [{"name": n, "kind": "grid", "values": list(range(side))} for n in names]
    data = {"name": "hand", "task": "t", "title": "t", "source": "t", "coordinates": coordinates}
    extra = {"nominal": nominal} if nominal else {}
    return Library.build(specification_from({**data, "rules": list(rules), **extra}))


class Landscape:
    """What the two stages use of a study: a library, and a risk for every tuple."""

    def __init__(self, lib, risk, *, floor=None, **checks):
        self._library, self._graph, self.risk, self.floor = lib, Graph(lib), risk, floor
        self.config = small_study.config(
            seeds={k: list(v) for k, v in SEEDS.items()},
            checks={"top_k": 3, "references": 20, **checks},
        )
        self.statistic = Statistic()
        self.progress, self.interface = Progress(quiet=True), "interface"
        self.store = SimpleNamespace(records=lambda *_, **__: [])
        self.kept, self.measured_on = {}, []

    def library(self, _):
        return self._library

    def graph(self, _):
        return self._graph

    def seeds(self, partition):
        return SEEDS[partition]

    def asked(self, _, ids):
        return [Asked(i, self._library.values(self._library.index(i))) for i in ids]

    def measured(self, asked, seeds, *, partition, stage=None):
        self.measured_on += [(a.id, partition) for a in asked]
        return {a.id: aggregate(self.risk(**a.values), seeds, floor=self.floor) for a in asked}

    def keep(self, kind, key, payload):
        self.kept[kind, key] = payload

    def id(self, **values):
        return self._library.id(self._library.find(values))

    def finding(self, **values):
        return {"group": "shortlist", "verdict": "confirmed", "risk": self.risk(**values),
                "input": self.id(**values), "values": values,
                "numbers": {"threshold": 1.0}}  # fmt: skip

    def change(self, *failures):
        references = tuple(aggregate(1.0, SEEDS["reselection"]) for _ in range(20))
        found = [self.finding(**f) for f in failures]
        return edit_path(self, SEARCH, found, Fresh(references[0], references))


def aggregate(risk, seeds, *, floor=None):
    return Aggregate(
        seeds=tuple(seeds), losses=(risk,) * len(seeds), measurements=("m",) * len(seeds),
        risk=risk, frozen=1.0, floor=floor, activity={}, support={}, stratum="in", failure=None,
    )  # fmt: skip


ORIGIN = {"a": 0, "b": 0, "c": 0}


def cube(risk, **checks):
    return Landscape(library("abc", 3, nominal=ORIGIN), risk, **checks)


def corner(a, b, c):
    """Fails where a and b are both 2, whatever c is."""
    return 10.0 if a == b == 2 else 1.0


def test_the_path_keeps_only_the_edits_that_the_failure_needs():
    study = cube(corner)
    path = study.change({"a": 2, "b": 2, "c": 2})
    # The found failure is three edits away; c plays no part in it.
    assert path["found"] and path["num_edits"] == 2 and path["alternatives"] == []
    assert [s["values"] for s in path["steps"]] == [
        ORIGIN, {"a": 2, "b": 0, "c": 0}, {"a": 2, "b": 2, "c": 0},
    ]  # fmt: skip
    assert [s["edits"] for s in path["steps"][1:]] == [
        [{"name": "a", "before": 0, "after": 2}], [{"name": "b", "before": 0, "after": 2}],
    ]  # fmt: skip
    assert [s["verdict"] for s in path["steps"]] == ["inconclusive", "inconclusive", "confirmed"]
    assert study.kept["edit-path", "hand"] is path


def test_every_step_of_the_path_is_measured_on_the_third_seeds():
    study = cube(corner)
    path = study.change({"a": 2, "b": 2, "c": 2})
    fresh = {i for i, partition in study.measured_on if partition == "reselection"}
    assert {s["input"] for s in path["steps"]} <= fresh
    assert {p for _, p in study.measured_on} == {"search", "reselection"}


def test_the_mixtures_of_nominal_and_failure_come_first_so_a_small_budget_suffices():
    # Mixtures of (0,0,0) and (2,2,2): three of one change, three of two; (2,2,0) is the fourth.
    assert cube(corner, edit_budget=6).change({"a": 2, "b": 2, "c": 2})["evaluated"] == 6
    found = cube(corner, edit_budget=4).change({"a": 2, "b": 2, "c": 2})
    assert found["found"] and found["evaluated"] == 4
    # Three pay for single changes only, and none of them fails.
    short = cube(corner, edit_budget=3).change({"a": 2, "b": 2, "c": 2})
    assert not short["found"] and short["evaluated"] == 3
    assert "no input within 3 edits that was evaluated failed" in short["reason"]


def test_rings_count_what_lies_at_each_distance():
    path = cube(corner).change({"a": 2, "b": 2, "c": 2})
    # One of three coordinates changed to one of two values: 3 x 2; two of them: 3 x 2 x 2.
    assert [(r["distance"], r["inputs"], r["evaluated"], r["above"], r["confirmed"])
            for r in path["rings"]] == [(1, 6, 6, 0, 0), (2, 12, 12, 1, 1)]  # fmt: skip


def test_the_worst_of_several_smallest_changes_leads_and_the_others_are_given():
    def two(a, b, c):
        return 10.0 if a == b == 2 else 4.0 if (b, c) == (1, 2) else 1.0

    path = cube(two).change({"a": 2, "b": 2, "c": 0})
    assert path["steps"][-1]["values"] == {"a": 2, "b": 2, "c": 0}
    (other,) = path["alternatives"]
    assert other["values"] == {"a": 0, "b": 1, "c": 2} and other["risk"] == 4.0
    assert {e["name"] for e in other["edits"]} == {"b", "c"}


def test_a_nominal_input_that_fails_itself_needs_no_edit():
    path = cube(lambda a, b, c: 5.0).change({"a": 2, "b": 2, "c": 2})
    assert path["found"] and path["num_edits"] == 0 and len(path["steps"]) == 1


def test_a_nominal_input_whose_every_replacement_is_invalid_says_so_and_names_it():
    # |a - b| >= 2 on {0, 1, 2}^2 leaves (0, 2) and (2, 0), which differ in both coordinates.
    rule = {"rule": "min_distance", "a": ["a"], "b": ["b"], "min": 2}
    lib = library("ab", 3, nominal={"a": 0, "b": 2}, rules=[rule])
    path = Landscape(lib, lambda a, b: 5.0).change({"a": 2, "b": 0})
    assert not path["found"] and "a=0, b=2 is invalid" in path["reason"]


def line(levels, *, floor=0.0, **checks):
    """One coordinate; risk by distance from its middle, 4."""
    return Landscape(library("x", 9), lambda x: levels[abs(x - 4)], floor=floor, **checks)


def radius(study):
    (basin,) = basins(study, SEARCH, [study.finding(x=4)])
    return basin


def test_the_basin_ends_where_excess_is_half_of_the_anchors():
    basin = radius(line([8.0, 6.0, 2.0, 1.0, 1.0], floor=0.0))
    # Half of 8 is 4, halfway between 6 at distance 1 and 2 at distance 2.
    assert basin["radius"] == pytest.approx(1.5) and basin["reach"] == 4
    assert basin["curve"] == [
        {"distance": 0, "mean": 8.0, "num_inputs": 1}, {"distance": 1, "mean": 6.0, "num_inputs": 2},
        {"distance": 2, "mean": 2.0, "num_inputs": 2}, {"distance": 3, "mean": 1.0, "num_inputs": 2},
        {"distance": 4, "mean": 1.0, "num_inputs": 2},
    ]  # fmt: skip


def test_what_the_environment_explains_is_taken_off_before_halving():
    # Excess 6, 4, 0: half of 6 is 3, a quarter of the way from 4 to 0.
    basin = radius(line([8.0, 6.0, 2.0, 2.0, 2.0], floor=2.0))
    assert basin["radius"] == pytest.approx(1.25) and basin["floor_measured"]


def test_a_basin_wider_than_what_was_measured_has_no_radius_and_says_so():
    basin = radius(line([8.0, 7.0, 7.0, 7.0, 7.0], shell_radius=2))
    assert basin["radius"] is None and basin["reach"] == 2
    assert "stays above half" in basin["reason"]


def test_shells_hold_at_most_their_size_and_never_an_invalid_input():
    lib = library("ab", 5)
    rings = shells(
        lib, Graph(lib), lib.id(lib.find({"a": 2, "b": 2})), radius=2, size=3, root_seed=0
    )
    # On a grid four inputs are one step away and eight are two steps away; three are drawn of each.
    assert [len(r) for r in rings] == [1, 3, 3]
    for distance, ring in enumerate(rings):
        for i in ring:
            v = lib.values(lib.index(i))
            assert abs(v["a"] - 2) + abs(v["b"] - 2) == distance


def test_an_anchor_whose_every_neighbour_is_invalid_has_no_basin():
    rule = {"rule": "min_distance", "a": ["a"], "b": ["b"], "min": 2}
    study = Landscape(library("ab", 3, rules=[rule]), lambda a, b: 8.0, floor=0.0)
    (basin,) = basins(study, SEARCH, [study.finding(a=0, b=2)])
    assert basin["radius"] is None and "every neighbour of this input is invalid" in basin["reason"]
