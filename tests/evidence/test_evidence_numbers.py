import json
import math

import numpy as np
import pytest
from evidence_toys import (
    IDS,
    INTERFACE,
    PROTOCOL,
    SEEDS,
    entries,
    loss_of,
    measurement,
    score_of,
)

from dreamcheck.errors import Abstention, InterfaceMismatch, UsageError
from dreamcheck.evidence import Interface, Measurement, Numbers, Store, check_page, statistic
from dreamcheck.evidence.statistics import find

SEARCH = {"kind": "measurement", "where": {"partition": "search"}}
LOSSES = [loss_of(i, s) for i in IDS for s in SEEDS["search"]]


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "s", protocol=PROTOCOL, seeds=SEEDS) as store:
        store.commit(list(entries(store)))
        yield store


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("count", {}, 32),
        ("mean", {"path": "loss"}, np.mean(LOSSES)),
        ("median", {"path": "loss"}, np.median(LOSSES)),
        ("max", {"path": "loss"}, max(LOSSES)),
        ("min", {"path": "loss"}, min(LOSSES)),
        ("sum", {"path": "loss"}, np.sum(LOSSES)),
        ("std", {"path": "loss"}, np.std(LOSSES, ddof=1)),
        ("std", {"path": "loss", "ddof": 0}, np.std(LOSSES)),
        ("quantile", {"path": "loss", "q": 0.95}, np.quantile(LOSSES, 0.95)),
        # alpha n = 12.8 of 32: the 12 largest and 0.8 of the next.
        ("cvar", {"path": "loss", "alpha": 0.4},
         (sum(sorted(LOSSES)[-12:]) + 0.8 * sorted(LOSSES)[-13]) / 12.8),
        ("cvar", {"path": "loss", "alpha": 0.4, "estimator": "ceil"},
         sum(sorted(LOSSES)[-13:]) / 13),
        ("share-above", {"path": "loss", "threshold": 1.0}, np.mean(np.array(LOSSES) > 1.0)),
        ("share-equal", {"path": "input", "value": "in-1"}, 4 / 32),
        ("count-distinct", {"path": "input"}, 8),
        ("seeds", {"path": "seed"}, "0-3"),
        # Every frozen loss is 4 and every floor 0.25.
        ("ratio", {"path": "loss", "over": "frozen_loss"}, np.mean(LOSSES) / 4),
        ("difference", {"path": "loss", "minus": "floor"}, np.mean(LOSSES) - 0.25),
    ],
)  # fmt: skip
def test_a_statistic_agrees_with_numpy_on_the_losses(store, name, params, expected):
    shown = Numbers(store).number("n", name, query=SEARCH, params=params)
    if isinstance(expected, str | int):
        assert shown.value == expected
    else:
        assert math.isclose(shown.value, expected, rel_tol=1e-12)


def test_the_worst_input_is_a_ranked_record(store):
    numbers = Numbers(store)
    order = sorted(IDS, key=lambda i: (-score_of(i), i))
    for rank in (1, 2, 8):
        shown = numbers.number(
            f"worst.{rank}", "ranked", query={"kind": "evaluation"},
            params={"by": "score", "rank": rank, "path": "input"},
        )  # fmt: skip
        assert shown.value == order[rank - 1]
    low = numbers.number(
        "best", "ranked", query={"kind": "evaluation"},
        params={"by": "score", "rank": 1, "path": "score", "ascending": True},
    )  # fmt: skip
    assert low.value == min(map(score_of, IDS))


def test_a_field_of_one_record_and_the_sizes_of_lists(store):
    numbers = Numbers(store)
    query = {"kind": "finding", "keys": ["in-2"]}
    assert (
        numbers.number("v", "field", query=query, params={"path": "verdict"}).text == "inconclusive"
    )
    lists = numbers.number("q", "length", query={"kind": "trace"}, params={"path": "queries"})
    assert lists.value == 8
    both = numbers.number("b", "count", query=[{"kind": "trace"}, {"kind": "validation"}])
    assert both.value == 5
    seeds = numbers.number("s", "seeds", query={"kind": "validation"})
    assert seeds.value == "16-19"


def test_what_cannot_be_measured_is_not_measured_with_its_reason(store):
    numbers = Numbers(store)
    nothing = numbers.number(
        "x", "mean", query={"kind": "measurement", "where": {"seed": 999}}, params={"path": "loss"}
    )
    assert nothing.value is None and nothing.text == "not measured"
    assert "no record holds a number" in nothing.reason
    assert 'value=""' in nothing.element() and "no record holds" in nothing.element()
    absent = numbers.number("y", "mean", query=SEARCH, params={"path": "readout_error"})
    assert "holds None at 'readout_error'" in absent.reason
    single = numbers.number(
        "z", "std", query={"kind": "measurement", "where": {"seed": 0, "input": "in-1"}},
        params={"path": "loss"},
    )  # fmt: skip
    assert single.value is None and "no spread" in single.reason
    assert numbers.number("k", "count", query={"kind": "note", "keys": ["gone"]}).value is None


def test_failures_are_left_out_and_counted(store):
    store.commit(
        [measurement("in-1", 48, "confirmation", loss=None,
                     failure={"kind": "nan", "reason": "step 2"}),
         measurement("in-2", 48, "confirmation", loss=1.5)]
    )  # fmt: skip
    numbers = Numbers(store)
    query = {"kind": "measurement", "where": {"partition": "confirmation"}}
    assert numbers.number("m", "mean", query=query, params={"path": "loss"}).value == 1.5
    entry = numbers.manifest()["numbers"][0]
    assert (entry["num_records"], entry["num_failed"]) == (2, 1)


def test_risks_of_two_interfaces_are_never_pooled(store):
    other = Interface(**{**INTERFACE.payload, "target": "pixels"})
    store.commit(
        [other, Measurement.measured(other, values={"x": 1}, seed=0, input="in-1",
                                     partition="search", loss=0.5)]
    )  # fmt: skip
    numbers = Numbers(store)
    with pytest.raises(InterfaceMismatch, match="would pool 2 prediction interfaces"):
        numbers.number("m", "mean", query=SEARCH, params={"path": "loss"})
    assert numbers.number("c", "count", query=SEARCH).value == 33
    one = {"kind": "measurement", "where": {"interface": other.digest}}
    assert numbers.number("m", "mean", query=one, params={"path": "loss"}).value == 0.5


def test_one_id_has_one_definition(store):
    numbers = Numbers(store)
    first = numbers.number("a", "count", query=SEARCH)
    assert numbers.number("a", "count", query=SEARCH) == first == numbers["a"]
    assert len(numbers) == 1
    with pytest.raises(UsageError, match="another definition"):
        numbers.number("a", "count", query={"kind": "trace"})
    with pytest.raises(UsageError, match="number id"):
        numbers.number("a b", "count", query=SEARCH)
    with pytest.raises(UsageError, match="statistic 'average' is not registered; known: "):
        numbers.number("b", "average", query=SEARCH)
    with pytest.raises(UsageError, match="needs parameter 'path'"):
        numbers.number("c", "mean", query=SEARCH)
    with pytest.raises(UsageError, match="record query"):
        numbers.number("d", "count", query={"kinds": "trace"})


def test_a_room_registers_its_own_statistic_once():
    @statistic("test-first-loss")
    def first(records, params):
        return records[0].at("loss")

    assert find("test-first-loss").function is first and find("test-first-loss").module == __name__
    with pytest.raises(UsageError, match="already registered by"):

        @statistic("test-first-loss")
        def another(records, params):
            raise Abstention("never")


def page(numbers: Numbers) -> str:
    worst = numbers.number(
        "worst.risk", "max", query={"kind": "evaluation"}, params={"path": "risk"},
        format="{:.2f} px",
    )  # fmt: skip
    share = numbers.number(
        "share", "share-above", query=SEARCH, params={"path": "loss", "threshold": 1.0},
        format="{:.0%}",
    )  # fmt: skip
    rows = "\n".join(f"<tr><td>row {i}</td><td>{i * 7}</td></tr>" for i in range(5))
    data = ",".join(str(i) for i in range(3000))
    return (
        f"<!doctype html>\n<html><head><title>Toy &amp; co</title></head><body>\n"
        f"<p>The worst risk is {worst.element()} on 4 seeds.</p>\n"
        f"<p>A share of {share.element()} lies above 1 px; again {worst.element(copy=1)}.</p>\n"
        f"<table>\n{rows}\n</table>\n<script>const data = [{data}];</script>\n</body></html>\n"
    )


@pytest.fixture
def written(store, tmp_path):
    numbers = Numbers(store)
    text = page(numbers)
    numbers.write(tmp_path / "report.json", page=text)
    return text, json.loads((tmp_path / "report.json").read_text())


def test_an_untouched_page_agrees_with_its_report(written):
    text, report = written
    assert check_page(text, report) == []
    assert report["page"]["numbers"] == ["worst.risk", "share", "worst.risk~1"]
    entry = report["numbers"][0]
    assert {"id", "value", "text", "statistic", "params", "query", "records_digest"} <= set(entry)


def test_an_altered_number_is_named_by_its_id(written):
    text, report = written
    shown = report["numbers"][1]["text"]
    assert shown[:-1].isdigit()
    other = str((int(shown[:-1]) + 1) % 100) + "%"
    (problem,) = check_page(text.replace(f">{shown}<", f">{other}<"), report)
    assert problem.number == "share"
    assert problem.message == f"number share shows {other!r}; the records give {shown!r}"


def test_every_digit_of_the_page_is_guarded(written):
    text, report = written
    digits = [i for i, c in enumerate(text) if c.isdigit()]
    rng = np.random.default_rng(0)
    for i in sorted(rng.choice(digits, 60, replace=False)):
        altered = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        assert check_page(altered, report), f"digit {i} of the page was altered unseen"


def test_an_altered_digit_outside_the_numbers_is_named_by_place(written):
    text, report = written
    (row,) = check_page(text.replace("<td>21</td>", "<td>27</td>"), report)
    assert row.number is None
    line = text[: text.index("<td>21</td>")].count("\n") + 1
    assert f"line {line}, after number worst.risk" in row.message
    assert "now says 'row 327'" in row.message and "written as 'row 321'" in row.message
    (script,) = check_page(text.replace(",2500,", ",2501,"), report)
    assert "line" in script.message and "2501" not in script.message[:20]


def test_lines_added_or_removed_are_told_once(written):
    text, report = written
    (gone,) = check_page(text.replace("<tr><td>row 2</td><td>14</td></tr>\n", ""), report)
    assert "row 214" in gone.message
    (added,) = check_page(text.replace("<table>", "<p>It never fails.</p><table>"), report)
    assert "It never fails." in added.message
    truncated = check_page(text[: text.index("<table>")], report)
    assert len(truncated) == 1


def test_a_number_taken_off_the_page_or_carrying_another_value_is_named(written):
    text, report = written
    i, j = text.index('<data class="num" id="n:share"'), text.index("lies above")
    assert check_page(text[:i] + text[j:], report)[0].number == "share"
    value = repr(report["numbers"][0]["value"])
    (problem,) = check_page(text.replace(f'value="{value}"', 'value="1.5"', 1), report)
    assert problem.number == "worst.risk" and "carries value '1.5'" in problem.message


def test_a_page_that_shows_what_was_not_computed_is_not_written(store, tmp_path):
    numbers = Numbers(store)
    text = page(numbers)
    stray = '<data class="num" id="n:stray" value="3">3</data>'
    with pytest.raises(UsageError, match="no such number"):
        numbers.write(tmp_path / "report.json", page=text + stray)
    with pytest.raises(UsageError, match="the page disagrees"):
        numbers.write(tmp_path / "report.json", page=text.replace(" px</data>", " m</data>", 1))
    assert not (tmp_path / "report.json").exists()


def test_an_element_escapes_what_it_shows(store):
    numbers = Numbers(store)
    shown = numbers.number("a", "count", query=SEARCH, format='<b>{}</b> & "all"')
    text = f"<p>{shown.element()}</p>"
    assert "<b>" not in text
    assert check_page(text, numbers.manifest(page=text)) == []
