"""Paths of single-coordinate edits, worked by hand on a library with holes."""

from dreamcheck.discovery import Graph, Library, specification_from
from dreamcheck.discovery.edits import Edit, EditDistances, edits_between, mixtures


def library(minimum):
    # Tuples (a, b) in {0, 1, 2}^2 with |a - b| >= minimum: the diagonal is missing for 1, and
    # only (0, 2) and (2, 0) are left for 2.
    return Library.build(
        specification_from(
            {
                "name": "e",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": "a", "kind": "integer", "values": [0, 1, 2]},
                    {"name": "b", "kind": "integer", "values": [0, 1, 2]},
                ],
                "rules": [{"rule": "min_distance", "a": ["a"], "b": ["b"], "min": minimum}],
            }
        )
    )


def test_every_input_on_a_path_is_valid_so_a_hole_makes_it_longer():
    lib = library(1)
    start, end = lib.find({"a": 0, "b": 1}), lib.find({"a": 1, "b": 0})
    reach = EditDistances(Graph(lib), start, most=4)
    # Both mixtures, (1, 1) and (0, 0), are invalid: by way of (0, 2), (1, 2) it takes three edits,
    # or by way of (2, 1), (2, 0).
    assert reach.distances[end] == 3 and reach.complete
    path = reach.path(end)
    assert path[0] == start and path[-1] == end and len(path) == 4
    for here, there in zip(path, path[1:], strict=False):
        assert len(edits_between(lib, here, there)) == 1
    assert list(mixtures(lib, start, end)) == []


def test_beyond_the_most_edits_nothing_is_reached():
    lib = library(1)
    start, end = lib.find({"a": 0, "b": 1}), lib.find({"a": 1, "b": 0})
    assert EditDistances(Graph(lib), start, most=2).distances[end] == -1


def test_an_input_whose_every_neighbour_is_invalid_reaches_nothing():
    lib = library(2)
    reach = EditDistances(Graph(lib), lib.find({"a": 0, "b": 2}), most=4)
    assert sorted(reach.distances.tolist()) == [-1, 0] and not len(reach.ring(1))


def test_edits_and_mixtures_name_what_changed():
    lib = library(1)
    a, b = lib.find({"a": 0, "b": 1}), lib.find({"a": 1, "b": 2})
    assert edits_between(lib, a, b) == [Edit("a", 0, 1), Edit("b", 1, 2)]
    # (1, 1) is invalid; (0, 2) is what is left.
    assert [lib.values(i) for i in mixtures(lib, a, b)] == [{"a": 0, "b": 2}]
