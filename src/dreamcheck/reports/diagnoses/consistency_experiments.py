"""The section of the consistency experiments: what ACPC predicts, and what would fool a radius."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.experiments_charts import (
    collapse_chart,
    drift_chart,
    geometry_chart,
    regret_chart,
    sensitivity_chart,
)
from dreamcheck.reports.svg import Chart

ORDER = 41
TITLE = "What does consistency predict?"


def body(reader: DiagnosisReader) -> str:
    """The section's HTML: one line and one picture an experiment, then the tables."""
    parts = [("drift", _drift), ("planner", _planner), ("geometry", _geometry),
             ("collapse", _collapse), ("sensitivity", _sensitivity)]  # fmt: skip
    shown = [draw(reader) for name, draw in parts if reader.result[name] is not None]
    return "\n".join([*shown, _left_out(reader)])


def _reduction(reader: DiagnosisReader, at: str) -> str:
    n = reader.number
    value = n(f"{at}.value", "{:z.0%}")
    if reader.at(f"{at}.low") is None:
        return value
    return f"{value} [{n(f'{at}.low', '{:z.0%}')}, {n(f'{at}.high', '{:z.0%}')}]"


def _mean(reader: DiagnosisReader, path: str) -> str:
    """A mean error, recomputed from the errors of every row."""
    return reader.statistic("mean", "{:.3f}", id=f"mae.{path}", path=f"result.{path}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    heads = "".join(f"<th{' class=r' if i else ''}>{h}</th>" for i, h in enumerate(head))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{' class=r' if i else ''}>{c}</td>" for i, c in enumerate(r))
        + "</tr>"
        for r in rows
    )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _beside(chart: Chart | None, words: str) -> str:
    """A chart with what is said of it at its side, below it on a narrow screen."""
    if chart is None:
        return words
    return f'<div class="pair"><figure>{chart.render()}</figure><div>{words}</div></div>'


def _drift(reader: DiagnosisReader) -> str:
    n = reader.number
    rows: list[list[str]] = []
    for i, c in enumerate(reader.result["drift"]["cells"]):
        at = f"drift.cells.{i}"
        control = f"{at}.errors.{c['best_control']}"
        rows.append(
            [
                reader.text(c["name"]),
                _mean(reader, f"{at}.errors.base"),
                f"{_mean(reader, control)} ({n(f'{at}.best_control')})",
                _mean(reader, f"{at}.errors.acpc"),
                _reduction(reader, f"{at}.vs_base"),
                _reduction(reader, f"{at}.vs_control"),
                f"{n(f'{at}.folds_over_control')} of {n(f'{at}.folds')}",
            ]
        )
    words = (
        "<p>Held-out error of predicting the change in "
        f"prediction error on {n('drift.windows')} windows, each left out once: from severity, "
        "encoder shift and one-step consistency alone, with consistency under destroyed actions "
        "(the best of three kinds), and with consistency under the recorded ones.</p>"
    )
    return (
        "<h3>How far the prediction error drifts</h3>"
        + _beside(drift_chart(reader.result["drift"]["cells"]), words)
        + _table(
            ["checkpoint", "base", "+ best control", "+ ACPC", "less than base",
             "less than control", "windows won"],
            rows,
        )
    )  # fmt: skip


def _planner(reader: DiagnosisReader) -> str:
    n = reader.number
    rows = []
    for name, key in (("as defined", "regression"), ("as released", "released")):
        at = f"planner.{key}"
        rows.append(
            [
                name,
                _mean(reader, f"{at}.errors.baseline"),
                _mean(reader, f"{at}.errors.expanded"),
                _reduction(reader, f"{at}.reduction"),
                f"{n(f'{at}.groups_improved')} of {n(f'{at}.num_groups')}",
            ]
        )
    words = (
        "<p>Held-out error of log1p regret over "
        f"{n('planner.regression.num_groups')} histories, without and with the plan-length "
        "consistency of the pool that both searches share. Regret is the model's cost, not a return.</p>"
        + _table(["features", "without", "with", "reduction", "improved"], rows)
    )
    return "<h3>What a perturbed history costs the planner</h3>" + _beside(
        regret_chart(reader.result["planner"]["regret"]), words
    )


def _geometry(reader: DiagnosisReader) -> str:
    n = reader.number
    found = reader.result["geometry"]["rows"]
    rows = []
    for i, r in enumerate(found):
        at = f"geometry.rows.{i}"
        rows.append(
            [
                f"{reader.text(r['name'])}, {n(f'{at}.space')}",
                n(f"{at}.median_ratio", "{:.2f}"),
                n(f"{at}.below_fraction", "{:.0%}"),
                n(f"{at}.disjoint_fraction", "{:.0%}"),
                n(f"{at}.num_coinciding"),
            ]
        )
    left, right = (geometry_chart(found, s).render() for s in ("encoder", "rollout"))
    return (
        "<h3>Views of a scene among other scenes</h3><p>Each dot is one of "
        f"{n('geometry.rows.0.num_scenes')} scenes: the farthest of its "
        f"{n('geometry.rows.0.num_views')} perturbed views against its nearest other scene, on "
        "logarithmic axes; above the line a view may lie nearer to another scene. A picture, never a "
        "screen: a collapsed encoder makes every radius small.</p>"
        f'<div class="pair"><figure>{left}<figcaption>After the encoder.</figcaption></figure>'
        f"<figure>{right}<figcaption>After the last imagined step.</figcaption></figure></div>"
        + _table(
            ["checkpoint, space", "median radius / nearest", "radius below it", "disjoint",
             "coinciding"],
            rows,
        )
    )  # fmt: skip


def _collapse(reader: DiagnosisReader) -> str:
    n = reader.number
    found = reader.result["collapse"]["rows"]
    rows = []
    for i, r in enumerate(found):
        at = f"collapse.rows.{i}"
        clean = ""
        if r["clean"] is not None:
            low, high = (n(f"{at}.clean.{k}", "{:.0%}") for k in ("low", "high"))
            clean = f"{n(f'{at}.clean.value', '{:.0%}')} [{low}, {high}]"
        rows.append(
            [
                reader.text(r["name"]),
                "" if r["weight"] is None else n(f"{at}.weight", "{:g}"),
                clean,
                n(f"{at}.spread", "{:.3g}"),
                n(f"{at}.ir_raw", "{:.3f}"),
                "" if r["sr"] is None else n(f"{at}.sr", "{:.3f}"),
            ]
        )
    words = (
        "<p>Radius and separation under severity "
        f"{n('collapse.severity', '{:g}')}. Spread is the median distance between clean scenes at "
        "the last observed frame: where it vanishes a small radius means nothing, and the separation "
        "rate is what shows it.</p>"
        + _table(["checkpoint", "weight", "clean success", "spread", "radius", "separation"], rows)
    )
    return "<h3>Collapse by weight of the regulariser</h3>" + _beside(collapse_chart(found), words)


def _sensitivity(reader: DiagnosisReader) -> str:
    n = reader.number
    result = reader.result["sensitivity"]
    rows = []
    for i, r in enumerate(result["rows"]):
        at = f"sensitivity.rows.{i}"
        rows.append(
            [
                reader.text(r["name"]),
                n(f"{at}.horizon"),
                n(f"{at}.quantile", "{:g}"),
                n(f"{at}.ir_raw", "{:.3f}"),
                "" if r["ratio"] is None else n(f"{at}.ratio", "{:.3f}"),
            ]
        )
    words = (
        f"<p>Severity {n('sensitivity.severity', '{:g}')}; the ratio is to the reference's radius at "
        "the same horizon and quantile.</p>"
        + _table(["checkpoint", "horizon", "quantile", "radius", "ratio"], rows)
    )
    return "<h3>The radius by horizon and quantile</h3>" + _beside(
        sensitivity_chart(result["rows"], reader.result["reference"]), words
    )


def _left_out(reader: DiagnosisReader) -> str:
    n = reader.number
    parts = [
        f"{reader.text(c['name'])}: {n(f'checkpoints.{i}.role')}"
        for i, c in enumerate(reader.result["checkpoints"])
    ]
    said = [f"Checkpoints: {'; '.join(parts)}."]
    said += [
        f"{name.capitalize()}: {n(f'skipped.{name}')}." for name in sorted(reader.result["skipped"])
    ]
    said.append(
        "Intervals resample whole held-out groups; the regressions are not fitted anew in them."
    )
    return f'<p class="quiet">{" ".join(said)}</p>'
