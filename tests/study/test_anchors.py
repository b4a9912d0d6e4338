"""Anchor groups of the neighbourhood test, worked by hand on eight and on thirty-six inputs."""

from types import SimpleNamespace

import numpy as np
import pytest

from dreamcheck.discovery import Library, get_specification
from dreamcheck.evidence import Evaluation, SearchTrace
from dreamcheck.study import selecting
from dreamcheck.study.selecting import anchors_of, best_of_restarts, central, random_anchors


def evaluation(name, score, *, penalty=0.0):
    return Evaluation.of(
        input=name, spec="s", interface="i", seeds=(0,), losses=(score + penalty,),
        measurements=("m",), risk=score + penalty, score=score,
    )  # fmt: skip


def trace(method, restart, scores):
    """A trace that asked these inputs in this order; its shortlist is best first."""
    return SearchTrace.of(
        method=method, spec="s", interface="i", restart_seed=restart, budget=len(scores),
        scout=(), queries=tuple(scores), acquisition=(None,) * len(scores),
        outcomes=tuple(scores.values()), algorithm_version="1",
        top=tuple(sorted((i for i in scores if scores[i] is not None), key=lambda i: -scores[i])),
    )  # fmt: skip


def test_the_centre_is_that_of_the_task_active_scores():
    scores = {"a": 9, "b": 8, "c": 7, "d": 6, "e": 5, "f": 4, "g": 3}
    rows = [evaluation(i, v) for i, v in scores.items()]
    # Seven downwards, three central: two above, two below.
    assert central(rows, size=3) == ["c", "d", "e"]
    # Inactive c and d (their score paid a penalty) leave a b e f g: centre b e f.
    rows[2:4] = [evaluation("c", 7.0, penalty=20.0), evaluation("d", 6.0, penalty=1e-6)]
    assert central(rows, size=3) == ["b", "e", "f"]
    # Four of five: (5 - 4) // 2 = 0, the longer half is below.
    assert central(rows, size=4) == ["a", "b", "e", "f"]
    # Equal scores stay in source order, and a repeated input counts once, with its last score.
    tied = [evaluation(i, 1.0) for i in "zyx"] + [evaluation("y", 2.0)]
    assert central(tied, size=3) == ["y", "z", "x"]
    assert central(tied, size=8) == ["y", "z", "x"]  # never padded


def test_the_top_group_is_the_best_of_each_restart():
    traces = [
        trace("basinlens", 0, {"a": 3.0, "b": 9.0, "c": 8.0}),
        trace("basinlens", 1, {"d": 5.0, "b": 9.0}),
        trace("basinlens", 2, {"e": 7.0, "f": None, "g": 6.5}),
        trace("gp-ucb", 0, {"h": 99.0}),
    ]
    # c (8.0) beats e (7.0) but is only the second of its restart; b is found twice.
    assert best_of_restarts(traces, method="basinlens", size=8) == [("b", 9.0), ("e", 7.0)]
    assert best_of_restarts(traces, method="basinlens", size=1) == [("b", 9.0)]


@pytest.fixture
def library():
    return Library.build(get_specification("iris-prefix-36"))


def test_random_anchors_follow_the_papers_seed(library):
    order = np.random.default_rng(20260601).permutation(36)
    without = library.ids(order[[0, 2]].tolist())
    drawn = random_anchors(library, size=4, without=without)
    assert drawn == library.ids(order[[1, 3, 4, 5]].tolist())


def test_the_groups_exclude_each_other(library, monkeypatch):
    ids = library.ids()
    best = {ids[i]: float(20 - i) for i in range(10)}  # the searches asked the first ten
    traces = [
        trace("basinlens", r, {i: best[i] for i in ids[3 * r : 3 * r + 3]}) for r in range(2)
    ] + [trace("gp-ucb", 0, {i: best[i] for i in ids[6:10]})]
    rows = {i: evaluation(i, best[i]) for i in best}
    rows[ids[9]] = evaluation(ids[9], best[ids[9]], penalty=1.0)
    # An evaluation that no search asked (a whole library measured besides) is no online one.
    rows[ids[30]] = evaluation(ids[30], 15.5)
    monkeypatch.setattr(selecting, "traces_of", lambda *_: traces)
    monkeypatch.setattr(selecting, "evaluations_of", lambda *_: rows)
    study = SimpleNamespace(
        config=SimpleNamespace(mode="paper", checks=SimpleNamespace(anchors=4)),
        library=lambda _: library,
    )
    found = anchors_of(study, SimpleNamespace(primary="basinlens"))
    # Best of each restart: input 0 and input 3. GP-UCB's: input 6.
    assert found.top == (ids[0], ids[3])
    # Nine active ones by score are 0..8; (9 - 4) // 2 = 2, so 2 3 4 5; 3 is a top anchor.
    assert found.mid == (ids[2], ids[4], ids[5])
    taken = {0, 3, 6, 2, 4, 5}
    order = [int(i) for i in np.random.default_rng(20260601).permutation(36)]
    assert found.random == tuple(library.ids([i for i in order if i not in taken][:4]))
