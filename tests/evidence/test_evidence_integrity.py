import pytest
from evidence_toys import (
    IDS,
    INTERFACE,
    PROTOCOL,
    SEEDS,
    ball,
    edit,
    entries,
    evaluation,
    loss_of,
    measurement,
    neighbourhood,
    score_of,
    trace,
    validation,
)

from dreamcheck.evidence import Evaluation, Record, Store, check_all, integrity, verify


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "s", protocol=PROTOCOL, seeds=SEEDS) as store:
        store.commit(list(entries(store)))
        yield store


def test_a_sound_study_has_no_findings(store):
    assert check_all(store, regenerate=ball) == []
    assert store.count("trace") == 2 and store.count("neighbourhood") == 2


def test_more_queries_than_the_budget(store):
    store.commit([trace("cem", "in-0", budget=3)])
    (found,) = integrity.budgets(store)
    assert "4 queries exceed the budget 3" in found.message and found.kind == "trace"


def test_an_id_queried_twice_and_a_top_never_queried(store):
    queries = ("in-0", "in-1", "in-2", "in-2")
    store.commit([trace("cem", "in-7", queries=queries, outcomes=[score_of(q) for q in queries])])
    messages = [f.message for f in integrity.unique_queries(store)]
    assert messages == ["queried twice: ['in-2']", "in the top, never queried: ['in-7']"]


def test_queries_that_do_not_begin_with_the_scout(store):
    store.commit([trace("cem", "in-0", scout=("in-3",))])
    assert "do not begin with the scout" in integrity.unique_queries(store)[0].message


def test_an_id_outside_the_library(store):
    queries = ("in-0", "in-1", "in-2", "stranger")
    store.commit([trace("cem", "in-0", queries=queries, outcomes=[0.0] * 4)])
    (found,) = integrity.ids_in_library(store)
    assert "not in the valid library: ['stranger']" in found.message


def test_a_library_whose_table_is_lost_is_named_with_what_needs_it(store):
    ref = next(store.records("library")).at("artifacts.table")
    store.artifacts.path(ref).unlink()
    found = integrity.ids_in_library(store)
    assert found[0].kind == "library" and "is missing" in found[0].message
    assert {f.kind for f in found[1:]} == {"trace", "evaluation", "validation", "neighbourhood"}


def test_scouts_that_differ_in_ids_or_values(store):
    queries = ("in-1", "in-0", "in-2", "in-3")
    outcomes = [score_of(q) for q in queries]
    store.commit([trace("cem", "in-0", scout=queries[:2], queries=queries, outcomes=outcomes)])
    assert "differs from ('in-0', 'in-1') of random" in integrity.common_scouts(store)[0].message
    wrong = [score_of("in-0"), 99.0, score_of("in-2"), score_of("in-3")]
    store.commit([trace("beam", "in-0", outcomes=wrong)])
    assert any("in-1 scored 99.0 here" in f.message for f in integrity.common_scouts(store))


def test_cached_values_that_differ_between_methods_or_from_the_evaluation(store):
    outcomes = [score_of(q) for q in ("in-0", "in-1", "in-2")] + [5.25]
    store.commit([trace("cem", "in-0", outcomes=outcomes)])
    messages = [f.message for f in integrity.cached_values(store)]
    assert len(messages) == 2
    assert "in-3 scored 5.25 here and" in messages[0]
    assert "in-3 scored 5.25; its evaluation record says" in messages[1]


def test_a_validation_on_search_seeds_is_found_even_if_it_got_in(store):
    # The store refuses it at commit, so it is put in behind its back.
    changed = edit(
        store.directory,
        "UPDATE records SET payload = replace(payload, '[16,17,18,19]', '[0,17,18,19]') "
        "WHERE kind = 'validation' AND payload LIKE '%\"input\":\"in-2\"%'",
    )
    assert changed == 1
    messages = [str(f) for f in integrity.disjoint_seeds(store)]
    assert any("seeds [0] are not in partition 'validation'" in m for m in messages)
    assert any("evaluation *: shares seeds [0] with validations" in m for m in messages)


def test_a_neighbourhood_that_does_not_regenerate(store):
    rows = [[measurement(i, s, "neighbourhood") for s in SEEDS["neighbourhood"]]
            for i in ("in-2", "in-1", "in-7")]  # fmt: skip
    store.commit([m for row in rows for m in row])
    store.commit([neighbourhood("in-2", "mid", rows, ids=("in-2", "in-1", "in-7"))])
    (found,) = integrity.neighbourhoods(store, ball)
    assert "stored but not generated ['in-7'], generated but not stored ['in-3']" in found.message


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"risk": 9.0, "score": 8.0}, "risk 9.0 is stored, "),
        ({"score": 0.5}, "score 0.5 is stored, "),
    ],
)
def test_a_risk_or_score_that_does_not_follow(store, fields, told):
    done = [measurement("in-1", s, "search") for s in SEEDS["search"]]
    store.commit([evaluation("in-1", done, activity_rule="other", **fields)])
    messages = [f.message for f in integrity.recomputed(store)]
    assert len(messages) == 1 and messages[0].startswith(told)


def test_losses_that_are_not_those_of_the_measurements(store):
    done = [measurement("in-1", s, "validation") for s in SEEDS["validation"]]
    store.commit(done)
    losses = [done[0].loss + 1.0, *(m.loss for m in done[1:])]
    store.commit([validation("in-1", "reference", done, losses=losses)])
    messages = [f.message for f in integrity.recomputed(store)]
    assert f"on seed 16, but measurement {done[0].key} says {done[0].loss}" in messages[0]
    assert messages[1].startswith("risk ")
    swapped = [done[1], done[0], *done[2:]]
    keys = [m.key for m in swapped]
    store.commit([validation("in-1", "random-shortlist", done, measurements=keys)])
    assert any("of another interface, input or seed" in str(f) for f in integrity.recomputed(store))


def test_a_failed_seed_leaves_no_risk_and_is_no_finding(store):
    failed = measurement(
        "in-1", 48, "confirmation", loss=None, failure={"kind": "crash", "reason": "gone"}
    )
    store.commit([failed])
    complete = Evaluation.of(
        input="in-1", spec=trace("x", "in-0").spec, interface=INTERFACE.digest,
        partition="confirmation", seeds=[48], losses=[None], measurements=[failed.key],
        risk=None, score=None, failure="crash on seed 48: gone",
    )  # fmt: skip
    store.commit([complete])
    assert check_all(store, regenerate=ball) == []


def test_a_wrong_mean_of_a_neighbourhood_is_found(store):
    rows = [[measurement(i, s, "neighbourhood") for s in SEEDS["neighbourhood"]]
            for i in ball("in-4")]  # fmt: skip
    store.commit([m for row in rows for m in row])
    store.commit([neighbourhood("in-4", "mid", rows, mean_risk=1.0)])
    assert "mean_risk 1.0 is stored" in integrity.recomputed(store)[0].message


def test_one_unreadable_record_costs_one_record(store):
    store.commit([Record.make("note", "n", {})])
    edit(store.directory, "UPDATE records SET kind = 'evaluation' WHERE kind = 'note'")
    assert check_all(store, regenerate=ball) == []
    problems = list(verify(store.directory, regenerate=ball))
    assert {p.where for p in problems} == {"evaluation n"}


def test_toy_losses_differ_so_that_the_checks_above_can_fail():
    assert len({loss_of(i, s) for i in IDS for s in range(4)}) > 10
