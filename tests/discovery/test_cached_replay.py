"""Cached replay, its comparison, and reference-component coverage."""

import math

import numpy as np
import pytest

from dreamcheck.discovery import Library, Score, get_specification, make_method, specification_from
from dreamcheck.discovery.compare import compare
from dreamcheck.discovery.coverage import reference_components, top_set
from dreamcheck.discovery.replay import ScoreTable, replay
from dreamcheck.errors import IncompleteError, SpecificationError, UsageError


@pytest.fixture(scope="module")
def table():
    library = Library.build(get_specification("pusht-combinatorial"))
    x = library.psi
    return ScoreTable(
        library, 1.2 + 0.2 * np.sin(3 * x[:, 0] + 2 * x[:, 2]) + 0.3 * x[:, 1] * x[:, 4]
    )


@pytest.fixture(scope="module")
def played(table):
    return replay(
        table, methods=["random", "interaction", "beam"], restarts=range(40, 64), budget=16
    )


def test_a_replay_asks_what_the_method_asks_online(table, played):
    for row in (0, 5):
        method = make_method("beam", table.library, seed=40 + row, budget=16)
        while ids := method.ask():
            method.tell(ids, [Score(float(table.scores[table.library.index(ids[0])]))])
        asked = [table.library.id(i) for i in played.runs["beam"].queries[row]]
        assert asked == list(method.queries)


def test_workers_do_not_change_a_replay(table):
    alone = replay(table, methods=["random", "cem"], restarts=range(20), budget=6)
    shared = replay(table, methods=["random", "cem"], restarts=range(20), budget=6, workers=2)
    for name in alone.runs:
        assert (alone.runs[name].queries == shared.runs[name].queries).all()


def test_methods_of_a_replay_share_their_scout(played):
    first = played.runs["random"].queries[:, :3]
    assert all((r.queries[:, :3] == first).all() for r in played.runs.values())


def test_summaries_are_those_of_the_unrounded_runs(table, played):
    comparison = compare(played, thresholds=(150, 160), method="interaction", top_percents=(5,))
    for summary in comparison.methods:
        best = table.scores[played.runs[summary.name].queries].max(axis=1)
        assert summary.best.mean == pytest.approx(best.mean())
        assert summary.best.sem.value == pytest.approx(best.std(ddof=1) / math.sqrt(24))
        assert summary.hit_rates[160] == (best >= 1.6).mean()
        assert summary.averaged_hits.mean == pytest.approx(
            np.mean([(best >= t / 100).mean() for t in range(150, 166)])
        )
        scores = table.scores[played.runs[summary.name].queries]
        steps = [next((s for s, v in enumerate(row, 1) if v >= 1.6), 17) for row in scores]
        assert summary.first_hit[160].mean == np.mean(steps)
    pair = next(p for p in comparison.pairs if p.comparator == "random")
    a, b = played.runs["interaction"].best, played.runs["random"].best
    wins, losses = int((a > b).sum()), int((a < b).sum())
    tail = sum(math.comb(wins + losses, k) for k in range(wins, wins + losses + 1))
    assert (pair.best.wins, pair.best.losses) == (wins, losses)
    assert pair.best.p == pytest.approx(tail / 2 ** (wins + losses))
    assert "conditional on that table" in pair.condition


def test_a_threshold_that_nobody_crosses_is_named(played):
    assert compare(played, thresholds=(150, 999)).never_crossed == (999,)


def test_best_so_far_and_cumulative_hits_never_fall(played):
    runs = played.runs["random"]
    assert (np.diff(runs.best_so_far(), axis=1) >= 0).all()
    hits = runs.cumulative_hits(150)
    assert (np.diff(hits) >= 0).all() and hits[-1] == (runs.best >= 1.5).mean()


def test_a_missing_row_is_named_by_its_first_input(table):
    scores = {table.library.id(i): Score(1.0) for i in range(len(table.library)) if i not in (7, 9)}
    with pytest.raises(IncompleteError, match=f"lacks 2 of 431.*{table.library.id(7)}"):
        ScoreTable.from_scores(table.library, scores)
    with pytest.raises(SpecificationError, match="other"):
        ScoreTable.from_scores(table.library, {"other": Score(1.0)})


def test_bad_requests_are_refused(table):
    with pytest.raises(UsageError, match="nonsense"):
        replay(table, methods=["nonsense"], restarts=[0], budget=3)
    with pytest.raises(UsageError, match="distinct"):
        replay(table, methods=["random"], restarts=[0, 0], budget=3)


def test_a_budget_beyond_the_library_says_exhausted():
    library = Library.build(get_specification("iris-prefix-36"))
    result = replay(
        ScoreTable(library, np.arange(36.0)), methods=["random"], restarts=[0], budget=40
    )
    assert result.exhausted
    assert sorted(result.runs["random"].queries[0, :36]) == list(range(36))
    assert (result.runs["random"].queries[0, 36:] == -1).all()
    assert result.runs["random"].best[0] == 35.0


def test_the_reported_best_is_task_active_when_a_run_has_any():
    library = Library.build(get_specification("iris-prefix-36"))
    scores = np.arange(36.0)
    active = np.zeros(36, dtype=bool)
    active[:4] = True
    result = replay(
        ScoreTable(library, scores, active=active),
        methods=["random"],
        restarts=range(10),
        budget=4,
    )
    for queries, best in zip(
        result.runs["random"].queries, result.runs["random"].best, strict=True
    ):
        some = [scores[q] for q in queries if active[q]]
        assert best == max(some or scores[queries])


def test_coverage_counts_the_most_evaluated_inputs_of_one_component():
    library = Library.build(
        specification_from(
            {
                "name": "plane",
                "task": "t",
                "title": "t",
                "source": "t",
                "coordinates": [
                    {"name": "x", "kind": "grid", "values": list(range(10))},
                    {"name": "y", "kind": "grid", "values": list(range(10))},
                ],
            }
        )
    )
    scores = np.zeros(100)
    row = [library.find({"x": x, "y": 0}) for x in (0, 4, 9)]  # one component: same y
    lone = [library.find({"x": 2, "y": 5}), library.find({"x": 3, "y": 7})]  # two of one
    scores[row], scores[lone] = 2.0, 1.0
    reference = reference_components(library, scores, percent=5)
    assert sorted(reference.sizes) == [1, 1, 3]
    assert reference.coverage([row[0], row[2], *lone, 55]) == 2
    assert reference.coverage([55, 56]) == 0
    assert reference.coverage(range(100)) == 3


def test_the_top_set_takes_ties_by_id():
    library = Library.build(get_specification("iris-prefix-36"))
    scores = np.zeros(36)
    scores[4] = 1.0
    # 10 % of 36 is 3.6, so four inputs: the best one and three of 35 equal ones.
    expected = [4, *sorted((i for i in range(36) if i != 4), key=library.id)[:3]]
    assert top_set(library, scores, percent=10).tolist() == expected
