"""The section of `dreamcheck discover --data`: where recorded windows are imagined worst."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.reports.diagnoses.reader import DiagnosisReader

ORDER = 30
TITLE = "Where logged windows are imagined worst"


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    slices = list(enumerate(reader.result["slices"]))
    tested = [(i, s) for i, s in slices if not s["reason"]]
    rest = [(i, s) for i, s in slices if s["reason"]]
    return "\n".join([_lead(reader), _table(reader, tested), _rest(reader, rest), _skipped(reader)])


def _lead(reader: DiagnosisReader) -> str:
    text, number = reader.text, reader.number
    none = (
        ""
        if reader.result["confirmed"]
        else " That is no proof that there are none: few episodes confirm only large effects."
    )
    return (
        f'<p class="lead">{number("confirmed")} of {number("tested")} tested slices of '
        f"<b>{text(reader.subject['data'])}</b> are confirmed for "
        f"<b>{text(reader.subject['model'])}</b> at a false-discovery rate of 5 %.{none}</p>"
        f'<p class="sub">{number("considered")} slices were considered on '
        f"{number('windows.searched')} windows of {number('episodes.searched')} episodes; the worst "
        f"were measured on {number('windows.heldout')} windows of {number('episodes.heldout')} "
        "episodes that the choice never saw. Errors are distances in the model's own latent space, "
        f"{reader.input_number('settings.horizon')} steps ahead on the recorded actions; altogether "
        f"{number('ratio_to_frozen_world', '{:.1%}')} of the error of a world that stands still. "
        "Excess is the error beyond that share of the slice's own motion, inside minus outside; "
        "intervals and tests draw whole episodes.</p>"
    )


def _table(reader: DiagnosisReader, rows: list[tuple[int, Mapping[str, Any]]]) -> str:
    if not rows:
        return "<p>No slice had enough held-out episodes to be tested.</p>"

    def cells(i: int, s: Mapping[str, Any]) -> str:
        def show(name: str, format: str = "{:.3g}") -> str:
            return reader.number(f"slices.{i}.{name}", format)

        verdict = (
            '<span class="badge confirmed">confirmed</span>'
            if s["confirmed"]
            else '<span class="badge inconclusive">not confirmed</span>'
        )
        return (
            f'<tr><td class="mono input">{show("slice", "{}")}</td><td>{verdict}</td>'
            f'<td class="r">{show("excess_effect", "{:+.3g}")}</td>'
            f'<td class="r">{show("low")} to {show("high")}</td>'
            f'<td class="r">{show("p_adjusted")}</td><td class="r">{show("error")}</td>'
            f'<td class="r">{show("frozen")}</td><td class="r">{show("windows", "{}")}</td>'
            f'<td class="r">{show("episodes", "{}")}</td></tr>'
        )

    return (
        '<div class="scroll"><table class="sortable"><caption>Slices on held-out episodes, '
        'latent units</caption><thead><tr><th>slice</th><th>verdict</th><th class="r">excess</th>'
        '<th class="r">95 % interval</th><th class="r">adjusted p</th><th class="r">error</th>'
        '<th class="r">frozen world</th><th class="r">windows</th><th class="r">episodes</th></tr>'
        f"</thead><tbody>{''.join(cells(i, s) for i, s in rows)}</tbody></table></div>"
    )


def _rest(reader: DiagnosisReader, rows: list[tuple[int, Mapping[str, Any]]]) -> str:
    if not rows:
        return ""
    items = "".join(
        f"<li>{reader.number(f'slices.{i}.slice')}: {reader.number(f'slices.{i}.reason')}</li>"
        for i, _ in rows
    )
    return f"<details><summary>Not tested, and why</summary><ul>{items}</ul></details>"


def _skipped(reader: DiagnosisReader) -> str:
    skipped = reader.result["skipped"]
    if not skipped:
        return ""
    items = "".join(f"<li>{reader.number(f'skipped.{i}')}</li>" for i in range(len(skipped)))
    return f"<details><summary>Left out of the data</summary><ul>{items}</ul></details>"
