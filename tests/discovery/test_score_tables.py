"""Score tables from files and studies, and what they are refused for."""

import numpy as np
import pytest

from dreamcheck.discovery import Library, Score, get_specification, make_method
from dreamcheck.discovery.compare import compare
from dreamcheck.discovery.coverage import top_set
from dreamcheck.discovery.methods import METHODS
from dreamcheck.discovery.replay import ScoreTable, replay
from dreamcheck.discovery.search import Failure
from dreamcheck.discovery.tables import read_table
from dreamcheck.errors import IncompleteError, SpecificationError, UsageError

NAME = "iris-prefix-36"


@pytest.fixture(scope="module")
def library():
    return Library.build(get_specification(NAME))


def written(path, library, rows, head="id,score,active,failure"):
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def rows_of(library):
    return [f"{library.id(i)},{i / 2},{'no' if i == 3 else ''}," for i in range(36)]


def test_a_csv_by_ids_is_read_in_any_order(tmp_path, library):
    rows = rows_of(library)
    rows[5] = f"{library.id(5)},,,time-out"
    named = read_table(
        written(tmp_path / "t.csv", library, rows[::-1]), specification=NAME, scale=2
    )
    table = named.table
    assert named.label == "t" and table.failed.nonzero()[0].tolist() == [5]
    assert np.isnan(table.scores[5]) and table.scores[7] == 7.0  # 3.5 times the scale
    assert not table.active[3] and table.active[4] and not table.active[5]
    assert table.outcome(5) == Failure("failed in the score table") and table.outcome(4) == Score(
        4.0
    )


def test_a_csv_by_coordinates_is_the_same_table(tmp_path, library):
    names = library.names
    rows = [",".join([*(str(library.values(i)[n]) for n in names), f"{i / 2}"]) for i in range(36)]
    by_values = read_table(
        written(tmp_path / "v.csv", library, rows, head=",".join([*names, "score"])),
        specification=NAME,
    )
    plain = [f"{library.id(i)},{i / 2},," for i in range(36)]
    by_ids = read_table(written(tmp_path / "i.csv", library, plain), specification=NAME)
    assert by_values.table.digest == by_ids.table.digest


def test_an_npz_in_library_order_or_by_ids(tmp_path, library):
    scores = np.arange(36.0)
    scores[2] = np.nan
    failed = np.isnan(scores)
    np.savez(tmp_path / "o.npz", scores=scores, failed=failed)
    order = np.random.default_rng(0).permutation(36)
    np.savez(
        tmp_path / "i.npz", id=np.array(library.ids(order)), scores=scores[order],
        failed=failed[order],
    )  # fmt: skip
    a, b = (read_table(tmp_path / f, specification=NAME).table for f in ("o.npz", "i.npz"))
    assert a.digest == b.digest and a.failed[2]
    np.savez(tmp_path / "m.npz", scores=scores)
    with pytest.raises(IncompleteError, match=f"lacks 1 of 36.*{library.id(2)}"):
        read_table(tmp_path / "m.npz", specification=NAME)
    np.savez(tmp_path / "s.npz", scores=scores[:30])
    with pytest.raises(UsageError, match="does not fit a library of 36"):
        read_table(tmp_path / "s.npz", specification=NAME)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r: r.pop(4), IncompleteError, "lacks 1 of 36 inputs; the first is"),
        (lambda r: r.__setitem__(4, r[5]), UsageError, "line 7: the input .* already"),
        (
            lambda r: r.__setitem__(4, r[4].split(",")[0] + ",nan,,"),
            IncompleteError,
            "line 6: input .* has the score 'nan'",
        ),
        (lambda r: r.__setitem__(4, r[4] + "crash"), UsageError, "and the failure 'crash'"),
        (lambda r: r.__setitem__(4, "elsewhere,1,,"), SpecificationError, "elsewhere"),
        (lambda r: r.__setitem__(4, r[4][:-1] + "perhaps,"), UsageError, "neither true nor false"),
        (lambda r: r.__setitem__(4, "one,two"), UsageError, "another number of cells"),
    ],
)
def test_the_first_bad_row_is_named(tmp_path, library, change, error, message):
    rows = rows_of(library)
    change(rows)
    with pytest.raises(error, match=message):
        read_table(written(tmp_path / "t.csv", library, rows), specification=NAME)


def test_a_file_needs_a_library_and_its_columns(tmp_path, library):
    path = written(tmp_path / "t.csv", library, ["1,2"], head="seed,score")
    with pytest.raises(UsageError, match="which library"):
        read_table(path)
    with pytest.raises(UsageError, match="neither a column 'id' nor all coordinates"):
        read_table(path, specification=NAME)
    with pytest.raises(UsageError, match="does not exist"):
        read_table(tmp_path / "none.csv")


def test_a_failed_row_spends_budget_and_teaches_nothing(library):
    scores = np.arange(36.0)
    failed = np.zeros(36, bool)
    failed[library.shuffled(0)[:5]] = True  # the scout of restart 0, and two more
    table = ScoreTable(library, np.where(failed, np.nan, scores), failed=failed)
    found = replay(table, methods=["random", "gp-ucb"], restarts=[0, 1], budget=12)
    online = make_method("gp-ucb", library, seed=0, budget=12)
    while ids := online.ask():
        i = library.index(ids[0])
        online.tell(ids, [Failure("crash") if failed[i] else Score(scores[i])])
    run = found.runs["gp-ucb"]
    assert [library.id(i) for i in run.queries[0]] == list(online.queries)
    assert np.isnan(run.scores[0, :3]).all() and np.isfinite(run.best).all()
    # No failed input is a top input, and the top share counts measured inputs: ceil(.1 x 31) = 4.
    assert top_set(library, table.scores, percent=10, failed=failed).tolist() == sorted(
        np.flatnonzero(~failed)[-4:].tolist(), reverse=True
    )
    assert np.isfinite(compare(found, thresholds=(2000,)).method("random").best.mean)
    with pytest.raises(UsageError, match="restart 0 of 'random' has no score: all 3 queries"):
        found.first(3)


def test_a_table_refuses_scores_of_failures_and_nothing_but_failures(library):
    with pytest.raises(UsageError, match="is marked failed"):
        ScoreTable(library, np.zeros(36), failed=np.arange(36) == 4)
    with pytest.raises(UsageError, match="every measurement"):
        ScoreTable(library, np.full(36, np.nan), failed=np.ones(36, bool))


@pytest.mark.parametrize("name", METHODS)
def test_a_smaller_budget_is_the_beginning_of_a_larger_one(name, library):
    table = ScoreTable(library, np.sin(np.arange(36.0)))
    large = replay(table, methods=[name], restarts=range(3), budget=14)
    small = replay(table, methods=[name], restarts=range(3), budget=7)
    assert (large.first(7).runs[name].queries == small.runs[name].queries).all()
    assert (large.first(7).runs[name].best == small.runs[name].best).all()


def test_exceptional_restarts_keep_their_own_scout(library):
    from dataclasses import replace

    from dreamcheck.discovery import SearchParameters

    table = ScoreTable(library, np.sin(np.arange(36.0)))
    base = SearchParameters()
    both = replay(
        table, methods=["random", "basinlens"], restarts=[0, 1], budget=9,
        exceptions={1: replace(base, scout=6)},
    )  # fmt: skip
    alone = replay(
        table, methods=["basinlens"], restarts=[1], budget=9, parameters=replace(base, scout=6)
    )
    assert (both.runs["basinlens"].queries[1] == alone.runs["basinlens"].queries[0]).all()
    assert both.scout == 3


SMALL = """
name = "six"
task = "tworoom"
title = "six inputs"
source = "this test"
coordinates = [
  {name = "start_x", kind = "grid", values = [40, 60, 80], unit = "px"},
  {name = "start_y", kind = "grid", values = [60, 120], unit = "px"},
  {name = "goal_x", kind = "grid", values = [180], unit = "px"},
  {name = "goal_y", kind = "grid", values = [112], unit = "px"},
]
"""


def test_a_study_is_a_table_once_its_library_is_measured_whole(tmp_path):
    import small_study
    from dreamcheck.study import Study
    from dreamcheck.study.searching import evaluate

    spec = tmp_path / "six.toml"
    spec.write_text(SMALL)
    search = {
        "specification": str(spec), "methods": ["random"], "primary": "random", "budget": 3,
        "restart_seeds": [0],
    }  # fmt: skip
    with Study.at(
        tmp_path / "s", small_study.config(searches=[search]), small_study.bench()
    ) as study:
        (searched,) = study.config.searches
        inputs = study.library(searched)
        told = {i: evaluate(study, searched, i) for i in inputs.ids()[:-1]}
    with pytest.raises(IncompleteError, match=f"lacks 1 of 6.*{inputs.id(5)}.*part of a library"):
        read_table(tmp_path / "s", specification=str(spec))
    with Study.at(
        tmp_path / "s", small_study.config(searches=[search]), small_study.bench()
    ) as study:
        told[inputs.id(5)] = evaluate(study, searched, inputs.id(5))
    named = read_table(tmp_path / "s", specification=str(spec))
    assert named.label == "s" and named.measured_on["seeds"] == [0, 1]
    assert [named.table.outcome(i) for i in range(6)] == [told[i] for i in inputs.ids()]
    # A study that searched one library needs no --specification, whatever it is called.
    for given in (None, "six"):
        again = read_table(tmp_path / "s", specification=given)
        assert again.table.digest == named.table.digest
    with pytest.raises(UsageError, match="no evaluations of 'pusht-576'"):
        read_table(tmp_path / "s", specification="pusht-576")
