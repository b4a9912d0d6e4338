"""Search protocols: the published ledgers, and what a protocol file is refused for."""

import pytest

from dreamcheck.discovery import Library, get_specification
from dreamcheck.discovery.comparing import with_changes
from dreamcheck.discovery.protocol import (
    get_protocol,
    protocol_from,
    protocol_names,
    protocol_text,
    whole_numbers,
)
from dreamcheck.errors import UsageError

PARTITIONS = ("restart", "search", "validation", "neighbourhood")

# spec/discovery.md section 6, "Seed ledgers" (the paper's Table D.2), and the seeds of Appendices
# D, J and K: first and last of each partition, inclusive.
LEDGERS = {
    "pusht-576-search": ((32, 127), (0, 7), None, None),
    "pusht-576-pooled": ((0, 127), (0, 7), (16, 31), None),
    "pusht-3510-a": ((192, 255), (0, 7), (32, 47), (48, 63)),
    "pusht-3510-b": ((256, 383), (16, 23), (80, 95), (96, 111)),
    "pusht-12016": ((384, 447), (24, 31), None, None),
    "pusht-dino-512": ((0, 127), (16, 23), None, None),
    "pusht-dino-384": ((0, 127), (4, 7), None, None),
    "pointmaze-480": ((0, 127), None, None, None),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_published_ledger_is_the_papers(name):
    seeds = get_protocol(name).seeds
    for partition, ends in zip(PARTITIONS, LEDGERS[name], strict=True):
        expected = () if ends is None else tuple(range(ends[0], ends[1] + 1))
        assert getattr(seeds, partition) == expected, partition


def test_budgets_restarts_and_scouts_are_the_papers():
    # (budgets, restarts, scout): Tables D.2, E.1, J.1, J.2, J.4, K.2 and Appendix K.
    expected = {
        "pusht-576-search": ((32,), 96, 3),
        "pusht-576-pooled": ((32,), 128, 3),
        "pusht-3510-a": ((32,), 64, 3),
        "pusht-3510-b": ((32,), 128, 3),
        "pusht-12016": ((16, 32, 64), 64, 3),
        "pusht-combinatorial": ((8, 16, 32), 512, 3),
        "pusht-dino-512": ((16, 32), 128, 8),
        "pusht-dino-384": ((32,), 128, 8),
        "pointmaze-480": ((4, 8, 16, 32), 128, 2),
        "diamond-prefix-128": ((16,), 8, 3),
        "iris-prefix-36": ((6,), 4, 3),
    }
    for name, numbers in expected.items():
        p = get_protocol(name)
        assert (p.budgets, len(p.seeds.restart), p.search_parameters.scout) == numbers, name
    assert set(protocol_names()) == {*expected, "default", "pusht-dense-start"}


def test_the_pooled_restarts_have_thirty_two_scouts_of_four():
    p = get_protocol("pusht-576-pooled")
    special = p.exceptional_parameters
    assert sorted(special) == list(range(32))
    assert {v.scout for v in special.values()} == {4} and p.search_parameters.scout == 3
    assert special[0].beta == p.search_parameters.beta


def test_thresholds_are_given_only_where_the_paper_gives_them():
    large = get_protocol("pusht-12016")
    assert large.thresholds == (155, 160, 162) and large.averaged == tuple(range(150, 166))
    others = [get_protocol(n) for n in protocol_names() if n != "pusht-12016"]
    assert not any(p.thresholds or p.averaged for p in others)


def test_task_activity_is_part_of_every_pusht_protocol_and_no_other():
    rules = {n: get_protocol(n).activity for n in protocol_names()}
    assert {n for n, r in rules.items() if r == "dino-pusht"} == {
        "pusht-dino-512",
        "pusht-dino-384",
    }
    assert {n for n, r in rules.items() if r is None} == {
        "default", "pointmaze-480", "diamond-prefix-128", "iris-prefix-36",
    }  # fmt: skip


def test_pointmaze_top_shares_are_its_top_five_ten_and_tenth():
    p = get_protocol("pointmaze-480")
    size = len(Library.build(get_specification(p.specification)))
    assert [-(-q * size // 100) for q in p.top_percents] == [5, 10, 48]


@pytest.mark.parametrize("name", protocol_names())
def test_what_is_ours_says_so_and_the_library_exists(name):
    p = get_protocol(name)
    if p.specification is not None:
        assert get_specification(p.specification).name == p.specification
    # Table D.2 and the appendices name restart seeds of these; all others are ours.
    assert ("ours" in p.source) == (name not in LEDGERS)
    assert f'name = "{name}"' in protocol_text(name)


def test_numbers_are_read_from_lists_and_ranges():
    assert whole_numbers("0-3, 8") == (0, 1, 2, 3, 8) == whole_numbers([0, 1, 2, 3, 8])
    for bad, why in (("7-3", "backwards"), ("a", "no number"), ([1, 1], "twice"), (0.5, "neither")):
        with pytest.raises(ValueError, match=why):
            whole_numbers(bad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 3}, "mine.toml: budget: there is no such field; known: name"),
        (
            {"seeds": {"restarts": "0-3"}},
            "mine.toml: seeds.restarts: there is no such field; known: restart, search",
        ),
        (
            {"seeds": {"restart": "0", "search": "0-7", "validation": "7-9"}},
            "seed 7 is in partitions 'search' and 'validation'",
        ),
        ({"methods": ["basinlense"]}, "no search method is called 'basinlense'"),
        ({"primary": "cem"}, "primary = 'cem' is not among the methods"),
        ({"budgets": [8, 8]}, "strictly increasing"),
        ({"parameters": {"bta": 1}}, "no field 'bta'"),
        ({"parameters": {"beta": "high"}}, "beta = 'high' is not a number"),
        ({"exceptions": [{"restart": "9", "parameters": {}}]}, "restart 9, which is no restart"),
        ({"exceptions": [{"restart": "1", "parameter": {}}]}, "known: restart, parameters"),
    ],
)
def test_a_bad_protocol_names_its_field(change, message):
    good = {
        "name": "mine", "title": "t", "source": "ours", "methods": ["random"],
        "primary": "random", "budgets": [4], "seeds": {"restart": "0-3"},
    }  # fmt: skip
    protocol_from(good)
    with pytest.raises(UsageError, match=message):
        protocol_from({**good, **change}, origin="mine.toml")


def test_restart_seeds_may_equal_environment_seeds():
    # They are of another kind: the paper's 576 protocol restarts 0-127 and searches on seeds 0-7.
    assert get_protocol("pusht-576-pooled").seeds.environment.keys() == {"search", "validation"}


def test_an_unknown_protocol_lists_the_known_ones(tmp_path):
    with pytest.raises(UsageError, match="pusht-3510-b"):
        get_protocol("pusht-3510")
    (tmp_path / "p.toml").write_text("name = ")
    with pytest.raises(UsageError, match="not valid TOML"):
        get_protocol(str(tmp_path / "p.toml"))


def test_changes_are_checked_again_and_named():
    base = get_protocol("pusht-576-pooled")
    changed = with_changes(base, {"restart": "30-33", "budgets": (4,), "methods": None})
    assert changed.name == "pusht-576-pooled, changed"
    assert sorted(changed.exceptional_parameters) == [30, 31]
    assert with_changes(base, {"restart": None}) is base
    with pytest.raises(UsageError, match="'basinlens', is not among the methods beam, cem"):
        with_changes(base, {"methods": ["beam", "cem"]})
    assert with_changes(base, {"methods": ["beam", "cem"], "primary": "cem"}).primary == "cem"
    with pytest.raises(UsageError, match="strictly increasing"):
        with_changes(base, {"budgets": (4, 2)})
