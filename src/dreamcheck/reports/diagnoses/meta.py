"""The section of `dreamcheck meta`: whether any metric ranks a pool, beside what costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.score_charts import rank_dots

ORDER = 31
TITLE = "Does any metric rank these checkpoints?"


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    tasks: Sequence[str] = reader.result["tasks"]
    parts = [
        f'<p class="lead">Pool <b>{reader.text(reader.subject["pool"])}</b>: '
        f"{reader.statistic('length', id='rows', path='result.rows.labels')} checkpoints of "
        f"{reader.statistic('length', id='runs', path='subject.runs')} training runs. A row of a "
        "table is a metric; the last one is the epoch number, which costs nothing.</p>",
        *(_task(reader, t) for t in tasks),
        _pooled(reader),
        _small(reader),
        _transfer(reader),
        '<div class="reading"><h4>How to read it</h4><p>Checkpoints of one run are not independent: '
        "intervals resample runs, and one checkpoint per run is the honest view. A calibration error "
        "means something only beside the constant's. Labels that spread no more than their own "
        "standard error (†) rank nothing, and are correlated with nothing here.</p></div>",
    ]
    return "\n".join(p for p in parts if p)


def _rows_of(reader: DiagnosisReader, task: str) -> list[tuple[int, Mapping[str, Any]]]:
    return [(i, r) for i, r in enumerate(reader.result["task_rows"]) if r["task"] == task]


def _task(reader: DiagnosisReader, task: str) -> str:
    rows = _rows_of(reader, task)
    at = f"task_rows.{rows[0][0]}"
    spread = reader.number(f"{at}.resolvability", "{:.2f}")
    if task in reader.result["unresolvable"]:
        return (
            f"<h3>{reader.text(task)} †</h3><p>Label resolvability {spread}: the labels spread no "
            "more than the standard error of one label, so nothing can be ranked. Evaluate more "
            "episodes per checkpoint.</p>"
        )
    body = []
    for i, r in rows:
        cells = "".join(
            f'<td class="r">{reader.number(f"task_rows.{i}.{path}", "{:+.2f}")}</td>'
            for path in ("rho", "partial_given_epoch", "one_per_run.rho", "fixed_epoch.rho")
        )
        counts = (
            f'<td class="r">{reader.number(f"task_rows.{i}.num_rows")}</td>'
            f'<td class="r">{reader.number(f"task_rows.{i}.num_runs")}</td>'
        )
        body.append(f"<tr><td>{reader.text(r['metric'])}</td>{cells}{counts}</tr>")
    chart = rank_dots(task, [r for _, r in rows])
    return (
        f"<h3>{reader.text(task)}</h3>{_epoch_alone(reader, rows)}"
        f'<div class="pair"><figure>{chart}<figcaption>Rank correlation with success. '
        '<span class="key c3">metric</span> <span class="key c1">the same given the epoch</span> '
        '<span class="key neutral">epoch alone, also the dashed rule</span></figcaption></figure>'
        f'<div class="scroll"><table class="sortable"><caption>Label resolvability {spread}, '
        f"{reader.number('episodes')} episodes a label</caption><thead><tr><th>metric</th>"
        '<th class="r">rho</th><th class="r">given epoch</th><th class="r">one per run</th>'
        '<th class="r">fixed epoch</th><th class="r">rows</th><th class="r">runs</th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></div>"
    )


def _epoch_alone(reader: DiagnosisReader, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> str:
    """The sentence that the epoch number ranks at least as well, where it does."""
    epoch = next(((i, r["rho"]) for i, r in rows if r["metric"] == "epoch"), None)
    if epoch is None or epoch[1] is None:
        return ""
    beaten = [
        f"{reader.text(r['metric'])} ({reader.number(f'task_rows.{i}.rho', '{:+.3f}')})"
        for i, r in rows
        if r["metric"] != "epoch" and r["rho"] is not None and epoch[1] >= r["rho"]
    ]
    if not beaten:
        return ""
    alone = reader.number(f"task_rows.{epoch[0]}.rho", "{:+.3f}")
    return (
        f'<p class="worst">The epoch number alone ({alone}) ranks at least as well as '
        f"{', '.join(beaten)}.</p>"
    )


def _pooled(reader: DiagnosisReader) -> str:
    rows = []
    for i, r in enumerate(reader.result["pooled_rows"]):
        at = f"pooled_rows.{i}"
        rows.append(
            f"<tr><td>{reader.text(r['metric'])}</td>"
            f'<td class="r">{reader.number(f"{at}.rho", "{:+.2f}")}</td>'
            f'<td class="r">{_interval(reader, f"{at}.rho_interval", "{:+.2f}")}</td>'
            f'<td class="r">{reader.number(f"{at}.calibration", "{:.1f}")}</td>'
            f'<td class="r">{_interval(reader, f"{at}.calibration_interval", "{:.1f}")}</td>'
            f'<td class="r">{reader.number(f"{at}.constant_reference", "{:.1f}")}</td>'
            f'<td class="r">{reader.number(f"{at}.num_rows")}</td>'
            f'<td class="r">{reader.number(f"{at}.num_runs")}</td></tr>'
        )
    return (
        "<h3>All tasks together</h3>"
        '<div class="scroll"><table class="sortable"><caption>Intervals resample runs '
        f"({reader.input_number('resamples')} times); every task is predicted from the others; "
        "errors in percentage points</caption><thead><tr><th>metric</th>"
        '<th class="r">pooled rho</th><th class="r">interval</th><th class="r">calibration error'
        '</th><th class="r">interval</th><th class="r">constant</th><th class="r">rows</th>'
        f'<th class="r">runs</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _interval(reader: DiagnosisReader, path: str, digits: str) -> str:
    if reader.at(f"{path}.low") is None:
        return '<span class="quiet">–</span>'
    return f"{reader.number(f'{path}.low', digits)} – {reader.number(f'{path}.high', digits)}"


def _small(reader: DiagnosisReader) -> str:
    tables = []
    if reader.result["ablation"]:
        rows = "".join(
            f"<tr><td>{reader.text(a['factors'])}</td>"
            f'<td class="r">{reader.number(f"ablation.{i}.rho", "{:+.2f}")}</td>'
            f'<td class="r">{reader.number(f"ablation.{i}.calibration", "{:.1f}")}</td></tr>'
            for i, a in enumerate(reader.result["ablation"])
        )
        tables.append(
            '<div class="scroll"><table class="sortable"><caption>Factor ablation</caption><thead>'
            '<tr><th>factors</th><th class="r">pooled rho</th><th class="r">calibration error</th>'
            f"</tr></thead><tbody>{rows}</tbody></table></div>"
        )
    if reader.result["frozen"]:
        rows = "".join(
            f"<tr><td>{reader.text(f['metric'])}</td>"
            f'<td class="r">{reader.number(f"frozen.{i}.error", "{:.1f}")}</td>'
            f'<td class="r">{reader.number(f"frozen.{i}.reference", "{:.1f}")}</td>'
            f'<td class="r">{reader.number(f"frozen.{i}.num_used")}</td></tr>'
            for i, f in enumerate(reader.result["frozen"])
        )
        tables.append(
            '<div class="scroll"><table class="sortable"><caption>Maps fitted on '
            f"{reader.text(reader.result['frozen'][0]['fit'])} and applied unchanged</caption>"
            '<thead><tr><th>metric</th><th class="r">error</th><th class="r">constant</th>'
            f'<th class="r">rows</th></tr></thead><tbody>{rows}</tbody></table></div>'
        )
    return f'<div class="pair">{"".join(tables)}</div>' if tables else ""


def _transfer(reader: DiagnosisReader) -> str:
    found = reader.result["transfer"]
    if not found:
        return ""
    tasks = list(dict.fromkeys(t for r in found for t in r["rho"]))
    rows = []
    for i, r in enumerate(found):
        cells = []
        for t in tasks:
            mute = not (r["resolvability"].get(t) or 0) > 1
            shown = "†" if mute else reader.number(f"transfer.{i}.rho.{t}", "{:+.2f}")
            cells.append(f'<td class="r">{shown}</td>')
        rows.append(
            f"<tr><td>{reader.text(r['planner'])}</td><td>{reader.text(r['metric'])}</td>"
            f"{''.join(cells)}"
            f'<td class="r">{reader.number(f"transfer.{i}.rho_pooled", "{:+.2f}")}</td>'
            f'<td class="r">{reader.number(f"transfer.{i}.calibration", "{:.1f}")}</td>'
            f'<td class="r">{reader.number(f"transfer.{i}.constant_reference", "{:.1f}")}</td></tr>'
        )
    head = "".join(f'<th class="r">{reader.text(t)}</th>' for t in tasks)
    return (
        '<h3>Transfer across planners</h3><div class="scroll"><table class="sortable"><caption>'
        "Every planner's own success, and the score with the search matched to it</caption><thead>"
        f'<tr><th>planner</th><th>metric</th>{head}<th class="r">pooled rho</th>'
        '<th class="r">calibration error</th><th class="r">constant</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
