"""Comparing methods over tables: what is claimed, what is refused, and the record it leaves."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dreamcheck.discovery import Library, get_specification
from dreamcheck.discovery.between import infer
from dreamcheck.discovery.comparing import compare_tables, own_thresholds, record_comparison
from dreamcheck.discovery.protocol import protocol_from
from dreamcheck.discovery.replay import ScoreTable
from dreamcheck.discovery.tables import NamedTable
from dreamcheck.errors import UsageError
from dreamcheck.evidence import Store
from dreamcheck.reports import verify_study, write_report
from dreamcheck.stats import needed_pairs

NAME = "iris-prefix-36"
PROTOCOL = protocol_from(
    {
        "name": "toy",
        "title": "t",
        "source": "ours",
        "methods": ["random", "gp-ucb", "beam"],
        "primary": "beam",
        "budgets": [5, 8],
        "seeds": {"restart": "0-7"},
    }  # fmt: skip
)


def table(seed, **measured):
    library = Library.build(get_specification(NAME))
    rng = np.random.default_rng(seed)
    return NamedTable(f"t{seed}", ScoreTable(library, 3 + rng.normal(size=36)), measured)


@pytest.fixture(scope="module")
def tables():
    return [table(s) for s in range(8)]


@pytest.fixture(scope="module")
def found(tables):
    return compare_tables(tables, PROTOCOL)


def test_needed_pairs_are_worked_by_hand():
    # 2^-4 = 0.0625 > 0.05 >= 2^-5; for two comparisons 2 x 2^-6 = 0.03125; for five 5 x 2^-7 = 0.039.
    assert [needed_pairs(comparisons=m) for m in (1, 2, 5)] == [6, 7, 8]
    assert needed_pairs(level=0.001) == 11  # 2^-10 = 0.00098


def test_one_table_gets_the_papers_tests_and_no_claim_beyond_it(tables):
    single = compare_tables(tables[:1], PROTOCOL)
    inference = single.inferences[-1]
    assert all(c.sign is None and c.flip_adjusted is None for c in inference.contests)
    assert "1 independent table: the smallest two-sided p is 1; 6 are needed" in inference.reason
    pair = single.tables[0].comparisons[-1].pairs[0]
    assert "conditional on that table" in pair.condition


def test_five_tables_are_refused_a_p_value_and_told_the_number(tables):
    inference = compare_tables(tables[:5], PROTOCOL).inferences[0]
    assert inference.contests[0].sign is None
    assert "0.0625; 6 are needed for one comparison, 7 for 2 after Holm" in inference.reason


def test_one_comparison_needs_no_holm(tables):
    pair = PROTOCOL.model_copy(update={"methods": ("random", "beam")})
    reason = compare_tables(tables[:2], pair).inferences[0].reason
    assert reason.endswith("the smallest two-sided p is 0.5; 6 are needed for one comparison")


def test_over_tables_the_table_is_the_unit(tables, found):
    """Made differences: the method wins every table against one comparator, half against the other."""
    comparisons = []
    for i, t in enumerate(found.tables):
        c = t.comparisons[0]
        best = {"beam": 10.0, "random": 9.0 - i, "gp-ucb": 10.0 + (-1) ** i}
        methods = tuple(replace(m, best=replace(m.best, mean=best[m.name])) for m in c.methods)
        comparisons.append(replace(c, methods=methods))
    inference = infer(tables, comparisons, method="beam")
    random, gp = inference.contests
    spread = tables[2].table.scores.std()
    assert random.differences[2] == pytest.approx((10 - 7) / spread)
    # 8 of 8: two-sided 2 x 2^-8 = 0.0078125 in both tests; Holm doubles the smaller of two.
    assert random.sign.p == random.flip.p == 2 / 256
    assert random.sign_adjusted == random.flip_adjusted == 4 / 256
    assert gp.sign.p == 1.0 and (gp.sign.wins, gp.sign.losses) == (4, 4)
    assert inference.reason == ""


def test_holm_may_need_more_tables_than_one_comparison(tables):
    inference = compare_tables(tables[:6], PROTOCOL).inferences[0]
    assert inference.contests[0].sign is not None
    assert (
        "after Holm over 2 comparisons the smallest p is 0.0625; 7 are needed" in inference.reason
    )


def test_one_table_named_twice_is_refused(tables):
    with pytest.raises(UsageError, match="'t1' and 't1' hold the same scores"):
        compare_tables([tables[1], tables[1]], PROTOCOL)
    a, b = (table(s, interface="i", seeds=[0, 1]) for s in (20, 21))
    with pytest.raises(UsageError, match="'t20' and 't21' were measured by one interface"):
        compare_tables([a, b], PROTOCOL)


def test_tables_that_rank_their_inputs_alike_are_said_to_be_hardly_two(tables, found):
    assert found.inferences[0].dependence == "" and found.inferences[0].most_alike < 0.6
    scores = tables[3].table.scores
    near = scores.copy()
    best, second = np.argsort(scores)[[-1, -2]]
    near[[best, second]] = near[[second, best]]
    twin = NamedTable("twin", ScoreTable(tables[3].table.library, near), {})
    inference = compare_tables([*tables[:4], twin], PROTOCOL).inferences[0]
    # Two neighbouring ranks exchanged: 1 - 6 (1 + 1) / (36 x 1295).
    assert inference.most_alike == pytest.approx(1 - 12 / (36 * 1295))
    assert "'t3' and 'twin' rank their inputs alike (Spearman 1.00)" in inference.dependence


def test_tables_of_different_libraries_meet_without_a_common_unit(tables):
    library = Library.build(get_specification("diamond-prefix-128"))
    scores = 1e4 * np.random.default_rng(5).random(len(library))
    other = NamedTable("other", ScoreTable(library, scores), {})
    inference = compare_tables([tables[0], other], PROTOCOL).inferences[0]
    assert inference.most_alike is None
    # Ten thousand times the scores, and still differences of a few standard deviations at most.
    assert all(abs(d) < 5 for c in inference.contests for d in c.differences)


def test_thresholds_of_a_protocol_without_any_are_the_tables_own():
    library = Library.build(get_specification(NAME))
    scores = np.arange(36) + 0.127
    # Top 5 % of 36 is 2 inputs, top 2 and 1 % are 1: they begin at 34.127 and 35.127.
    assert own_thresholds(ScoreTable(library, scores), (5, 2, 1)) == (3412, 3512)
    with pytest.raises(UsageError, match="--scale"):
        own_thresholds(ScoreTable(library, scores * 1e-4), (5, 1))


def test_a_table_of_another_library_is_refused(tables):
    other = PROTOCOL.model_copy(update={"specification": "pusht-576"})
    with pytest.raises(UsageError, match="is for the library 'pusht-576'.*of 'iris-prefix-36'"):
        compare_tables(tables[:1], other)


def test_the_record_becomes_a_section_whose_numbers_are_checked(tmp_path, found):
    record_comparison(tmp_path / "c", found)
    page = write_report(tmp_path / "c").read_text()
    assert "Which search finds more?" in page and "conditional on that table" in page
    assert "Over independent tables" in page and "Mean best so far" in page
    assert verify_study(tmp_path / "c").ok
    with Store.read(tmp_path / "c") as store:
        record = next(iter(store.records("diagnosis")))
        runs = store.artifacts.get_arrays(record.payload["artifacts"]["runs-0"])
    # The best of every run, from the kept queries, is the number in the record.
    best = runs["scores"][runs["queries-beam"]].max(axis=1)
    shown = record.payload["result"]["tables"][0]["budgets"][-1]["methods"][2]
    assert shown["name"] == "beam" and shown["best"]["mean"] == pytest.approx(best.mean())
    assert shown["bests"] == best.tolist()
    # The page's means, hit rates and sign tests are computed from those, not copied.
    named = {
        n["statistic"] for n in json.loads((tmp_path / "c/report.json").read_text())["numbers"]
    }
    assert {"search-best-mean", "search-best-sem", "search-hit-rate", "search-sign-test"} <= named


def test_a_threshold_that_nobody_crosses_is_said_on_the_page(tmp_path, tables):
    protocol = PROTOCOL.model_copy(update={"thresholds": (300, 9900)})
    record_comparison(tmp_path / "c", compare_tables(tables[:1], protocol))
    assert "No run of any method reaches 99" in write_report(tmp_path / "c").read_text()
