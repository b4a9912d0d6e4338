"""Replacement and adjacency neighbourhoods against brute force."""

import numpy as np
import pytest

from dreamcheck.discovery import Graph, Library, get_specification, specification_from


def small(shuffle_seed=None):
    return Library.build(
        specification_from(
            {
                "name": "g",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": "a", "kind": "grid", "values": [0, 1, 2, 3, 4]},
                    {"name": "b", "kind": "integer", "values": [0, 1, 2]},
                    {"name": "l", "kind": "categorical", "values": ["x", "y", "z"]},
                ],
                "rules": [{"rule": "min_distance", "a": ["a"], "b": ["b"], "min": 1}],
                "shuffle_seed": shuffle_seed,
            }
        )
    )


@pytest.mark.parametrize("shuffle_seed", [None, 3])
def test_replacements_are_the_tuples_that_differ_in_one_coordinate(shuffle_seed):
    library = small(shuffle_seed)
    graph = Graph(library)
    for i in range(len(library)):
        differing = (library.digits != library.digits[i]).sum(axis=1)
        assert graph.replacements(i).tolist() == np.flatnonzero(differing == 1).tolist()


@pytest.mark.parametrize("shuffle_seed", [None, 3])
def test_adjacent_tuples_are_one_ordered_step_away(shuffle_seed):
    library = small(shuffle_seed)
    graph = Graph(library)
    digits = library.digits.astype(int)
    for i in range(len(library)):
        step = np.abs(digits - digits[i])
        near = (step.sum(axis=1) == 1) & (step[:, 2] == 0)
        assert graph.adjacent(i).tolist() == np.flatnonzero(near).tolist()


def test_distance_goes_around_invalid_tuples():
    library = small()
    graph = Graph(library)
    start = library.find({"a": 1, "b": 0, "l": "x"})
    goal = library.find({"a": 0, "b": 1, "l": "x"})
    # Two edits apart on the grid, but |a - b| >= 1 removes (0, 0), (1, 1) and (2, 2): the two sides
    # of that diagonal are not joined at all.
    assert graph.distances(start)[goal] == -1
    far = library.find({"a": 4, "b": 2, "l": "x"})
    assert graph.distances(start)[far] == 5


def test_a_neighbourhood_holds_its_centre_and_its_radius():
    library = Library.build(get_specification("pusht-3510"))
    graph = Graph(library)
    distances = graph.distances(17)
    for radius in (0, 1, 2, 3):
        expected = np.flatnonzero((distances >= 0) & (distances <= radius))
        assert graph.within(17, radius).tolist() == expected.tolist()
    assert graph.within(17, 1).tolist() == sorted([17, *graph.adjacent(17).tolist()])


def test_a_category_has_replacements_but_no_adjacency():
    library = small()
    graph = Graph(library)
    i = library.find({"a": 4, "b": 0, "l": "y"})
    labels = {library.values(j)["l"] for j in graph.replacements_of(i, "l").tolist()}
    assert labels == {"x", "z"}
    assert all(library.values(j)["l"] == "y" for j in graph.adjacent(i).tolist())


def test_a_million_inputs_need_no_matrix():
    library = Library.build(
        specification_from(
            {
                "name": "m",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": f"c{i}", "kind": "grid", "values": list(range(10))} for i in range(6)
                ],
            }
        )
    )
    graph = Graph(library)
    assert len(graph.replacements(555_555)) == 54
    assert len(graph.within(555_555, 2)) == 1 + 12 + 72


def test_an_input_whose_every_neighbour_is_invalid_is_isolated():
    # |a - b| >= 2 on {0, 1, 2} x {0, 1, 2} leaves (0, 2) and (2, 0); every step from them breaks it.
    rule = [{"rule": "min_distance", "a": ["a"], "b": ["b"], "min": 2}]
    coordinates = [{"name": n, "kind": "grid", "values": [0, 1, 2]} for n in ("a", "b")]
    data = {"name": "t", "task": "t", "title": "t", "source": "t", "coordinates": coordinates}
    apart = Graph(Library.build(specification_from({**data, "rules": rule})))
    assert len(apart.library) == 2 and apart.isolated().tolist() == [0, 1]
    assert Graph(Library.build(specification_from(data))).isolated().tolist() == []


def test_isolated_is_what_adjacent_says_of_every_input():
    graph = Graph(Library.build(get_specification("pusht-dino-384")))
    slow = [i for i in range(len(graph.library)) if not len(graph.adjacent(i))]
    assert graph.isolated().tolist() == slow
