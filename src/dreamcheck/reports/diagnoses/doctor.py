"""The section of `dreamcheck doctor`: every check's verdict, evidence and fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.reports.diagnoses.reader import DiagnosisReader

ORDER = 20
TITLE = "Before any number: the doctor"

MARKS = {"wrong": "✗", "warn": "!", "cannot tell": "?", "fine": "✓", "skipped": "–"}


def body(reader: DiagnosisReader) -> str:
    """The section's HTML: what is wrong first, then everything examined, then what was not."""
    rows = list(enumerate(reader.result["findings"]))
    done = [(i, f) for i, f in rows if f["verdict"] != "skipped"]
    bad = [(i, f) for i, f in done if f["verdict"] != "fine"]
    bad.sort(key=lambda r: list(MARKS).index(r[1]["verdict"]))
    skipped = [(i, f) for i, f in rows if f["verdict"] == "skipped"]
    return "\n".join(
        [
            _lead(reader),
            *(_block(reader, i, f) for i, f in bad),
            _table(reader, done),
            _skipped(reader, skipped),
        ]
    )


def _lead(reader: DiagnosisReader) -> str:
    text, subject = reader.text, reader.subject
    counts = ", ".join(
        f"{reader.number(f'counts.{v}')} {text(v)}" for v, n in reader.result["counts"].items() if n
    )
    parts = [f"model <b>{text(subject['model'])}</b>" if subject["model"] else "no model"]
    if subject["task"]:
        parts.append(f"simulator <b>{text(subject['task'].split()[0])}</b>")
    if subject["episodes_from"]:
        parts.append(f"episodes {text(subject['episodes_from'])}")
    return (
        f'<p class="lead">Worst verdict: <b>{text(reader.result["worst"])}</b>. {counts}. Examined: '
        f"{'; '.join(parts)}. Thresholds: {text(reader.inputs['thresholds'])}.</p>"
    )


def _measured(reader: DiagnosisReader, i: int, f: Mapping[str, Any], j: int = 0) -> str:
    if len(f["measured"]) <= j:
        return ""
    m = f["measured"][j]
    number = reader.number(f"findings.{i}.measured.{j}.value", _format(m["value"]))
    return f"{number} {reader.text(m['unit'])}"


def _block(reader: DiagnosisReader, i: int, f: Mapping[str, Any]) -> str:
    text = reader.text
    threshold = ""
    if f["threshold"] is not None:
        threshold = (
            f"; threshold {reader.number(f'findings.{i}.threshold.value', '{}')} "
            f"{text(f['threshold']['unit'])}"
        )
    fix = f"<p><b>Fix.</b> {_words(reader, f['fix'], f'findings.{i}.fix')}</p>" if f["fix"] else ""
    lines = "".join(
        f"<li>{_words(reader, line, f'findings.{i}.evidence.{k}')}</li>"
        for k, line in enumerate(f["evidence"])
    )
    return (
        f"<h3>{MARKS[f['verdict']]} {text(f['verdict'])}. Asked: {text(f['title'])}?</h3>"
        f"<p>{_measured(reader, i, f)}{threshold}. {_operating(reader, i, f)}</p>"
        f"<ul>{lines}</ul>{fix}"
    )


def _words(reader: DiagnosisReader, line: str, path: str) -> str:
    """A recorded sentence; marked as a whole where it holds a digit."""
    return reader.number(path) if any(c.isdigit() for c in line) else reader.text(line)


def _operating(reader: DiagnosisReader, i: int, f: Mapping[str, Any]) -> str:
    o = f["operating"]
    if o is None:
        return "Its false-alarm rate has not been measured."
    at = f"findings.{i}.operating"
    smallest = (
        "no graded fault was found every time"
        if o["smallest_found"] is None
        else f"found every fault from {reader.number(f'{at}.smallest_found', '{:.3g}')} "
        f"{_words(reader, o['unit'], f'{at}.unit')} up"
    )
    return (
        f"On known cases: {reader.number(f'{at}.false_alarms')} false alarms on "
        f"{reader.number(f'{at}.clean')} clean ones, {smallest}."
    )


def _table(reader: DiagnosisReader, done: list[tuple[int, Mapping[str, Any]]]) -> str:
    rows = "".join(
        f"<tr><td>{MARKS[f['verdict']]} {reader.text(f['verdict'])}</td>"
        f"<td>{reader.text(f['title'])}</td><td>{_measured(reader, i, f)}</td>"
        f"<td>{_operating(reader, i, f)}</td></tr>"
        for i, f in done
    )
    return (
        '<div class="wide"><table><thead><tr><th>verdict</th><th>check</th><th>measured</th>'
        f"<th>how good the check is</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _skipped(reader: DiagnosisReader, skipped: list[tuple[int, Mapping[str, Any]]]) -> str:
    if not skipped:
        return ""
    items = "".join(
        f"<li>{reader.text(f['title'])}: needs "
        f"{_words(reader, f['needs'], f'findings.{i}.needs')}</li>"
        for i, f in skipped
    )
    return f"<details><summary>Not examined, and what it would need</summary><ul>{items}</ul></details>"


def _format(value: Any) -> str:
    return "{:.3g}" if isinstance(value, (int, float)) else "{}"
