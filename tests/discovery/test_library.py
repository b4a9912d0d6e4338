"""Libraries: counts, ids, normalisation, rules, nominal inputs."""

import itertools
import math
import time

import numpy as np
import pytest

from dreamcheck.digest import digest
from dreamcheck.discovery import (
    Library,
    get_specification,
    specification_from,
    specification_names,
)
from dreamcheck.errors import SpecificationError
from dreamcheck.tasks.tworoom.validity import RULES


def made(coordinates, **more):
    return specification_from(
        {"name": "t", "task": "t", "title": "t", "source": "t", "coordinates": coordinates, **more}
    )


def grid(name, values, kind="grid"):
    return {"name": name, "kind": kind, "values": values}


@pytest.mark.parametrize(
    ("name", "tuples", "valid"),
    [
        ("pusht-576", 729, 576),
        ("pusht-3510", 4096, 3510),
        ("pusht-12016", 15625, 12016),
        ("pusht-dino-512", 4096, 512),
        ("pusht-dino-384", 729, 384),
        ("pusht-combinatorial", 486, 431),
        ("pointmaze-480", 480, 480),
        ("diamond-prefix-128", 128, 128),
        ("iris-prefix-36", 36, 36),
    ],
)
def test_a_preset_has_exactly_the_published_size(name, tuples, valid):
    described = Library.build(get_specification(name)).describe()
    assert (described["tuples"], described["valid"]) == (tuples, valid)
    assert described["tuples"] - sum(described["removed"].values()) == described["valid"]


def test_the_576_library_is_what_a_plain_loop_over_tuples_finds():
    agent, block, goal = (96, 256, 416), (128, 256, 384), (96, 256, 416)
    expected = [
        t
        for t in itertools.product(agent, agent, block, block, goal, goal)
        if math.dist(t[:2], t[2:4]) >= 80 and math.dist(t[2:4], t[4:]) >= 80
    ]
    library = Library.build(get_specification("pusht-576"))
    assert [tuple(library.values(i).values()) for i in range(len(library))] == expected


@pytest.mark.parametrize("name", ["start-goal-prefix", "variations"])
def test_a_tworoom_preset_builds_with_the_tasks_own_rules(name):
    library = Library.build(get_specification(name), task_rules=RULES)
    if name == "variations":
        assert 10_000 <= len(library) <= 30_000
        # A door's half-extent must be 1.1 radii: size 10 lets radius 7 through, not radius 10.
        tight = (library.column("door.size") == 10) & (library.column("agent.radius") == 10)
        assert library.removed["door_fits"] > 0 and not tight.any()
    else:
        assert len(library) == 4720
        gap = np.hypot(
            library.column("start_x") - library.column("goal_x"),
            library.column("start_y") - library.column("goal_y"),
        )
        assert gap.min() >= 32


def test_every_shipped_specification_names_its_source():
    for name in specification_names():
        assert get_specification(name).source
    for name in ("pusht-combinatorial", "pusht-dense-start"):
        assert "not the paper's" in get_specification(name).source


def test_a_rule_reports_how_many_of_the_remaining_tuples_it_removed():
    specification = made(
        [grid("a", [0, 1, 2, 3]), grid("b", [0, 1, 2, 3])],
        rules=[{"rule": "even"}, {"rule": "min_distance", "a": ["a"], "b": ["b"], "min": 2}],
    )
    library = Library.build(
        specification, task_rules={"even": lambda c: (c["a"] + c["b"]) % 2 == 0}
    )
    # 16 tuples, 8 with an even sum; of these |a - b| >= 2 leaves (0,2), (1,3), (2,0), (3,1).
    assert list(library.removed.values()) == [8, 4] and len(library) == 4


def test_an_empty_library_names_the_rule_that_removed_the_last_tuples():
    specification = made(
        [grid("a", [0, 1, 2])], rules=[{"rule": "big"}, {"rule": "small"}, {"rule": "never"}]
    )
    rules = {
        "big": lambda c: c["a"] > 0,
        "small": lambda c: c["a"] < 1,
        "never": lambda c: c["a"] < -1,
    }
    with pytest.raises(SpecificationError, match="the last by 'small'"):
        Library.build(specification, task_rules=rules)


def test_a_rule_the_task_does_not_offer_is_named():
    with pytest.raises(SpecificationError, match="still_start.*task_rules"):
        Library.build(get_specification("start-goal-prefix"))


def test_an_unknown_specification_lists_the_known_ones():
    with pytest.raises(SpecificationError, match="pusht-577.*pusht-576"):
        get_specification("pusht-577")


@pytest.mark.parametrize(
    ("coordinate", "message"),
    [
        (grid("a", [3, 1]), "strictly increasing"),
        (grid("a", [1, "x"]), "finite numbers"),
        (grid("a", [1.5], "integer"), "'integer' but has"),
        (grid("a", ["x", "x"], "categorical"), "repeats a label"),
        (grid("a", []), "at least 1"),
        ({"name": "a", "kind": "grid", "values": [1], "unitt": "px"}, "unitt"),
    ],
)
def test_a_bad_coordinate_is_refused_with_its_reason(coordinate, message):
    with pytest.raises(SpecificationError, match=message):
        made([coordinate])


def test_an_id_is_the_hash_of_specification_and_typed_values():
    library = Library.build(get_specification("pusht-576"))
    values = list(library.values(41).values())
    assert library.id(41) == digest([library.specification.identity, values])[:20]
    assert library.index(library.id(41)) == 41 == library.find(library.values(41))
    assert len(set(library.ids())) == 576


def test_ids_ignore_titles_and_the_order_of_labels_but_not_values():
    def ids(labels, title="t", more=()):
        s = made([grid("a", [0, 1, *more]), grid("l", labels, "categorical")])
        return set(Library.build(s.model_copy(update={"title": title})).ids())

    assert ids(["x", "y"]) == ids(["y", "x"], title="another")
    assert not ids(["x", "y"]) & ids(["x", "y"], more=[2])


def test_an_unknown_id_and_an_inadmissible_value_are_named():
    library = Library.build(get_specification("pusht-576"))
    with pytest.raises(SpecificationError, match="'feed'"):
        library.index("feed")
    values = library.values(0)
    with pytest.raises(SpecificationError, match="agent_x = 97 is not admissible"):
        library.find({**values, "agent_x": 97})
    with pytest.raises(SpecificationError, match="removed it"):
        library.find({**values, "agent_x": 256, "agent_y": 256, "block_x": 256, "block_y": 256})


def test_psi_is_min_max_over_the_valid_library_and_a_constant_coordinate_is_zero():
    specification = made(
        [grid("a", [0, 10, 40, 99]), grid("c", [7]), grid("l", ["x", "y", "z"], "categorical")],
        rules=[{"rule": "short"}],
    )
    library = Library.build(specification, task_rules={"short": lambda c: c["a"] < 50})
    # 99 is valid nowhere, so the range is 0..40.
    assert sorted(set(library.psi[:, 0])) == [0.0, 0.25, 1.0]
    assert (library.psi[:, 1] == 0).all()
    # Two labels are one apart, as the ends of a grid are, whichever two they are.
    same = np.flatnonzero(library.column("a") == 0)
    distance = np.linalg.norm(library.psi[same][:, None] - library.psi[same][None], axis=2)
    assert np.allclose(distance, 1 - np.eye(3))


def test_the_nominal_input_is_the_nearest_in_grid_steps_with_ties_by_id():
    specification = made(
        [grid("a", [0, 10, 50]), grid("l", ["x", "y"], "categorical")],
        nominal={"a": 34, "l": "y"},
    )
    library = Library.build(specification)
    # 34 lies 0.6 of a step above 10 and 0.4 below 50, though it is nearer to 10 ... 24 against 16.
    assert library.values(library.index(library.nominal)) == {"a": 50, "l": "y"}
    tied = Library.build(specification.model_copy(update={"nominal": {"a": 5}}))
    ends = [tied.find({"a": a, "l": label}) for a in (0, 10) for label in "xy"]
    assert tied.nominal == min(tied.id(i) for i in ends)


def test_the_scout_is_the_beginning_of_one_shuffled_order():
    library = Library.build(get_specification("pusht-576"))
    assert library.scout(5, 3) == library.scout(5, 8)[:3]
    assert library.scout(5, 8) != library.scout(6, 8)
    assert sorted(library.shuffled(5)) == list(range(576))


def test_the_pointmaze_library_is_shuffled_once():
    shuffled = Library.build(get_specification("pointmaze-480"))
    specification = get_specification("pointmaze-480").model_copy(update={"shuffle_seed": None})
    plain = Library.build(specification)
    order = np.random.default_rng(13).permutation(480)
    assert (shuffled.codes == plain.codes[order]).all()
    assert shuffled.find(shuffled.values(100)) == 100


def test_a_million_tuples_build_in_seconds_and_hash_only_what_is_asked():
    specification = made([grid(f"c{i}", list(range(10))) for i in range(6)])
    start = time.process_time()
    library = Library.build(specification)
    library.id(123_456)
    assert len(library) == 1_000_000 and time.process_time() - start < 5
    assert len(library._ids) == 1
