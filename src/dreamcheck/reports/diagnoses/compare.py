"""The section of `dreamcheck compare`: which search finds more, per table and over tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.discovery.comparing import score_format
from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.search_charts import cumulative_hits, mean_best
from dreamcheck.reports.svg import series_css

ORDER = 50
TITLE = "Which search finds more?"
MOST_CHARTS = 3
"""Cumulative-hit charts of one table; the table below has every threshold."""


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    protocol = reader.inputs["protocol"]
    parts = [
        f'<p class="lead">Search protocol <b>{reader.text(protocol["name"])}</b> '
        f"({reader.text(protocol['source'])}), replayed over "
        f"{reader.statistic('length', id='tables', path='result.tables')} measured "
        f"librar{'y' if len(reader.result['tables']) == 1 else 'ies'}: every method reads the same "
        "stored scores, begins with the same scout, and differs only in what it asks next.</p>",
        *(
            _in_turn(reader)
            if len(reader.result["tables"]) > 1
            else (_table(reader, 0), _across(reader))
        ),
        '<div class="reading"><h4>How to read it</h4><p>Restarts over one table differ in the '
        "search's own randomness only. The p-values beside them are the paper's, one-sided and "
        "conditional on that table; they say nothing about other checkpoints, tasks or seeds. A claim "
        "that one method beats another needs independent tables, which are the units of the "
        "two-sided tests. Coverage counts top inputs of one connected group; a first hit that never came "
        "counts as one step beyond the budget.</p></div>",
    ]
    return "\n".join(p for p in parts if p)


def _in_turn(reader: DiagnosisReader) -> list[str]:
    """What several tables say together, then each, folded away but for the first."""
    return [
        _across(reader),
        *(
            f"<details{'' if i else ' open'}><summary>Table {reader.text(t['label'])}</summary>"
            f"{_table(reader, i)}</details>"
            for i, t in enumerate(reader.result["tables"])
        ),
    ]


def _table(reader: DiagnosisReader, i: int) -> str:
    t = reader.result["tables"][i]
    at = f"tables.{i}"
    failed = (
        f", {reader.number(f'{at}.num_failed')} of them failed: asked, they spend budget and teach "
        "nothing"
        if t["num_failed"]
        else ""
    )
    own = (
        " The protocol has no thresholds: these lie where the table's own top 5, 2 and 1 % begin."
        if t["from_table"]
        else ""
    )
    keys = " ".join(
        f'<span class="key {series_css(k)}">{reader.text(c["method"])}</span>'
        for k, c in enumerate(t["curves"])
    )
    reached = [k for k in range(len(t["thresholds"])) if _reached(t, k)][:MOST_CHARTS]
    unit = reader.inputs["protocol"]["unit"]
    charts = "".join(
        f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"
        for chart, caption in (
            (mean_best(t["curves"], unit=unit), f"Mean best so far, ± one SEM. {keys}"),
            *(
                (
                    cumulative_hits(t["curves"], k),
                    f"Share of restarts that found a score of {t['thresholds'][k] / 100:g} or more.",
                )
                for k in reached
            ),
        )
    )
    budgets = list(range(len(t["budgets"])))
    last = _budget(reader, f"{at}.budgets.{budgets[-1]}", t["budgets"][-1], t)
    earlier = "".join(
        f"<details><summary>Budget {reader.number(f'{at}.budgets.{b}.budget')}</summary>"
        f"{_budget(reader, f'{at}.budgets.{b}', t['budgets'][b], t)}</details>"
        for b in budgets[:-1]
    )
    return (
        f"<h3>{reader.text(t['label'])}</h3><p>{reader.number(f'{at}.num_inputs')} inputs of "
        f"{reader.text(t['specification'])}{failed}; {reader.number(f'{at}.num_restarts')} paired "
        f"restarts, shared scout of {reader.number(f'{at}.scout')}.{own}</p>"
        f'<div class="pair">{charts}</div>{last}{earlier}'
    )


def _reached(t: Mapping[str, Any], k: int) -> bool:
    return any(c["hits"][k]["share"][-1] > 0 for c in t["curves"])


def _budget(reader: DiagnosisReader, at: str, b: Mapping[str, Any], t: Mapping[str, Any]) -> str:
    n = reader.number
    first = b["methods"][0]
    heads = [f"{x['threshold'] / 100:g}" for x in first["thresholds"]]
    tops = [x["percent"] for x in first["tops"]]
    rows = []
    for i, m in enumerate(b["methods"]):
        row = f"{at}.methods.{i}"
        cells = [
            _best(reader, row, m["best"]),
            *(
                reader.statistic(
                    "search-hit-rate",
                    "{:.3f}",
                    id=f"{row}.hit.{x['threshold']}",
                    path=f"result.{row}.bests",
                    threshold=x["threshold"],
                )
                for x in m["thresholds"]
            ),
            n(f"{row}.averaged_hits.mean", "{:.3f}"),
            *(n(f"{row}.thresholds.{k}.first_hit.mean", "{:.1f}") for k in range(len(heads))),
            *(
                n(f"{row}.tops.{k}.{what}", digits)
                for k in range(len(tops))
                for what, digits in (
                    ("hit", "{:.3f}"),
                    ("count.mean", "{:.2f}"),
                    ("coverage.mean", "{:.2f}"),
                )
            ),
        ]
        rows.append(_row(reader.text(m["name"]), cells))
    head = [
        "best ± SEM",
        *(f"hit ≥ {h}" for h in heads),
        "averaged",
        *(f"first ≥ {h}" for h in heads),
        *(x for q in tops for x in (f"top {q}% hit", f"top {q}% count", f"top {q}% coverage")),
    ]
    ended = (
        "<p>The budget is larger than the library: every run ended early.</p>"
        if b["exhausted"]
        else ""
    )
    never = "".join(
        f"<p>No run of any method reaches {v / 100:g}: its rates are zero for all.</p>"
        for v in b["never_crossed"]
    )
    caption = f"Budget {n(f'{at}.budget')}"
    return (
        f"{ended}{_html(caption, 'method', head, rows)}{never}{_pairs(reader, at, b, heads, tops)}"
    )


def _pairs(
    reader: DiagnosisReader, at: str, b: Mapping[str, Any], heads: list[str], tops: list[int]
) -> str:
    if not b["pairs"]:
        return ""
    n = reader.number
    rows = []
    places = {m["name"]: f"result.{at}.methods.{k}.bests" for k, m in enumerate(b["methods"])}
    for i, p in enumerate(b["pairs"]):
        row = f"{at}.pairs.{i}"

        def tested(part: str, digits: str = "{}", *, pair: Any = p, at: str = row) -> str:
            return reader.statistic(
                "search-sign-test",
                digits,
                id=f"{at}.{part}",
                path=places[pair["method"]],
                other=places[pair["comparator"]],
                part=part,
            )

        cells = [
            n(f"{row}.difference", "{:+.4g}"),
            "/".join(tested(part) for part in ("wins", "losses", "ties")),
            tested("p", "{:.2g}"),
            *(n(f"{row}.thresholds.{k}.p_hit", "{:.2g}") for k in range(len(heads))),
            n(f"{row}.p_averaged_hits", "{:.2g}"),
            *(n(f"{row}.thresholds.{k}.p_first_hit", "{:.2g}") for k in range(len(heads))),
            *(
                n(f"{row}.tops.{k}.{what}", "{:.2g}")
                for k in range(len(tops))
                for what in ("p_hit", "p_coverage")
            ),
        ]
        rows.append(_row(reader.text(p["comparator"]), cells))
    head = [
        "best",
        "W/L/T",
        "p best",
        *(f"p hit ≥ {h}" for h in heads),
        "p averaged",
        *(f"p first ≥ {h}" for h in heads),
        *(x for q in tops for x in (f"p top {q}% hit", f"p top {q}% coverage")),
    ]
    return _html(n("condition"), f"{b['pairs'][0]['method']} against", head, rows)


def _across(reader: DiagnosisReader) -> str:
    found = reader.result["across"]
    if not found[0]["contests"]:
        return ""
    n = reader.number
    if len(found[0]["tables"]) == 1:
        return (
            "<h3>Over independent tables</h3><p>One table: no claim about methods in general. "
            f"{n('across.0.needed')} independent tables are needed for one comparison at level 0.05, "
            f"{n('across.0.needed_after_holm')} for all of these after Holm.</p>"
        )
    parts = [f"<h3>Over independent tables</h3><p>Endpoint: {n('endpoint')}.{_alike(reader)}</p>"]
    for i, a in enumerate(found):
        rows = []
        for k, c in enumerate(a["contests"]):
            row = f"across.{i}.contests.{k}"
            tested = c["sign"] is not None
            cells = [
                n(f"{row}.mean", "{:+.3f}"),
                "/".join(n(f"{row}.sign.{w}") for w in ("wins", "losses", "ties"))
                if tested
                else "–",
                n(f"{row}.sign.p", "{:.2g}") if tested else "–",
                n(f"{row}.sign_adjusted", "{:.2g}") if tested else "–",
                n(f"{row}.flip.p", "{:.2g}") if tested else "–",
                n(f"{row}.flip_adjusted", "{:.2g}") if tested else "–",
            ]
            rows.append(_row(reader.text(c["comparator"]), cells))
        parts.append(
            _html(
                f"Budget {n(f'across.{i}.budget')}, two-sided, the table as the unit",
                f"{a['method']} against",
                ["mean difference", "W/L/T", "p sign", "Holm", "p sign-flip", "Holm"],
                rows,
            )
        )
        if a["reason"]:
            parts.append(f"<p>{n(f'across.{i}.reason')}.</p>")
    return "\n".join(parts)


def _alike(reader: DiagnosisReader) -> str:
    if reader.at("across.0.most_alike") is None:
        return ""
    rho = reader.number("across.0.most_alike", "{:.2f}")
    said = f" The two most alike tables of one library have a rank correlation of {rho}."
    warning = reader.at("across.0.dependence")
    return f"{said} Note: {reader.text(warning)}." if warning else said


def _best(reader: DiagnosisReader, row: str, best: Mapping[str, Any]) -> str:
    """Mean best ± SEM of one method, from its restarts; no SEM for a single restart."""
    path = f"result.{row}.bests"
    mean = reader.statistic(
        "search-best-mean", score_format(best["mean"]), id=f"{row}.best", path=path
    )
    if best["sem"] is None:
        return mean
    sem = reader.statistic(
        "search-best-sem", score_format(best["sem"]), id=f"{row}.best-sem", path=path
    )
    return f"{mean} ± {sem}"


def _row(name: str, cells: list[str]) -> str:
    return f"<tr><td>{name}</td>" + "".join(f'<td class="r">{c}</td>' for c in cells) + "</tr>"


def _html(caption: str, first: str, head: list[str], rows: list[str]) -> str:
    heads = "".join(f'<th class="r">{h}</th>' for h in head)
    return (
        f'<div class="scroll"><table class="sortable"><caption>{caption}</caption><thead><tr>'
        f"<th>{first}</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
