"""The section of `dreamcheck gate`: what the new checkpoint fixed, kept, and broke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.reports.diagnoses.reader import DiagnosisReader

ORDER = 60
TITLE = "Gate: the new checkpoint on old failures"
WORDS = ("fixed", "unchanged", "worse", "new", "not_comparable")


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    r = reader.result
    verdict = (
        "<b>regressed</b>: it must not replace the old one"
        if r["regressed"]
        else "<b>not regressed</b>"
    )
    counts = ", ".join(
        f"{reader.number(f'counts.{w}')} {w.replace('_', ' ')}" for w in WORDS if w in r["counts"]
    )
    parts = [
        f'<p class="lead">{reader.text(r["new_label"])} against {reader.text(r["old_label"])}, '
        f"both measured again on {reader.statistic('length', id='seeds', path='result.seeds')} "
        f"seeds that the bank never saw: {verdict}. {counts}.</p>",
        _roles(reader, r),
        _cases(reader, r),
    ]
    if r["null"]:
        null = ", ".join(f"{reader.number(f'null.{w}')} {w.replace('_', ' ')}" for w in r["null"])
        parts.append(
            f"<p>What the chance of training alone does: a second run of the old recipe "
            f"({reader.text(r['null_label'])}) against the old checkpoint gives {null}.</p>"
        )
    parts += [f"<p>{reader.text(note)}.</p>" for note in r["notes"]]
    levels = ", ".join(
        f"{reader.number(f'levels.{name}', '{:.2f}')} ({reader.text(name)})" for name in r["levels"]
    )
    parts.append(
        f"<p>An input fails above {levels} {reader.text(r['unit'])}. Fixed and worse are exact "
        "one-sided sign tests over seeds, with Holm over the bank; new is an input that passed "
        "with the old checkpoint on these seeds. Old failures fall towards the mean when they are "
        "measured again: the old checkpoint's own fall is the part no training earned.</p>"
    )
    return "\n".join(parts)


def _roles(reader: DiagnosisReader, r: Mapping[str, Any]) -> str:
    rows = []
    for role in r["mean_risk"]:
        cells = "".join(
            f'<td class="r">{reader.number(f"mean_risk.{role}.{of}", "{:.2f}")}</td>'
            if r["mean_risk"][role][of] is not None
            else '<td class="quiet">none</td>'
            for of in ("bank", "old", "new")
        )
        rows.append(f"<tr><td>{reader.text(role)}</td>{cells}</tr>")
    return (
        '<div class="scroll"><table class="sortable"><caption>Mean risk, '
        f"{reader.text(r['unit'])}</caption><thead><tr><th>cases</th>"
        '<th class="r">when the bank was made</th><th class="r">old, again</th>'
        f'<th class="r">new</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _cases(reader: DiagnosisReader, r: Mapping[str, Any]) -> str:
    rows = []
    for i, c in enumerate(r["cases"]):
        at = f"cases.{i}"
        where = "default reset"
        if c["values"]:
            where = ", ".join(
                f"{reader.text(k)} {reader.number(f'{at}.values.{k}')}"
                if "." not in k
                else reader.text(k)
                for k in c["values"]
            )
        risks = "".join(
            f'<td class="r">{reader.number(f"{at}.{n}_risk", "{:.2f}")}</td>'
            if c[f"{n}_risk"] is not None
            else '<td class="quiet">failed</td>'
            for n in ("bank", "old", "new")
        )
        rows.append(
            f"<tr><td>{reader.text(c['word'])}</td><td>{reader.text(c['role'])}</td>{risks}"
            f'<td class="r">{reader.number(f"{at}.lower")}</td>'
            f'<td class="r">{reader.number(f"{at}.higher")}</td><td>{where}</td></tr>'
        )
    return (
        '<div class="scroll"><table class="sortable"><caption>Every case</caption><thead><tr>'
        '<th>verdict</th><th>role</th><th class="r">bank</th><th class="r">old</th>'
        '<th class="r">new</th><th class="r">seeds lower</th><th class="r">seeds higher</th>'
        f'<th style="min-width:16em">input</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
