"""The report's charts, each from records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dreamcheck.reports.svg import PALETTE, Chart, heat, series_css

GROUP_NAMES = {
    "shortlist": "found by the search",
    "random-shortlist": "random shortlist",
    "reference": "random inputs",
    "default-reset": "default reset",
}


def arena(
    picture: str | None,
    evaluated: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    *,
    unit: str,
    side: float = 224.0,
) -> str:
    """The arena seen from above: every evaluated start, coloured by its worst risk.

    Args:
        picture: data URI of the empty arena, or None.
        evaluated: rows with "values" (start_x, start_y) and "risk".
        found: strips to draw: "number", "path", "imagined", "history_end".
    """
    chart = Chart(int(side), int(side), "Map of evaluated starts and found failures")
    if picture:
        chart.raw(f'<image href="{picture}" x="0" y="0" width="{side}" height="{side}"/>')
    else:
        chart.raw(f'<rect class="plain" x="0" y="0" width="{side}" height="{side}"/>')
    starts: dict[tuple[float, float], list[float]] = {}
    for row in evaluated:
        values = row["values"]
        if row["risk"] is None or "start_x" not in values or "start_y" not in values:
            continue
        starts.setdefault((float(values["start_x"]), float(values["start_y"])), []).append(
            row["risk"]
        )
    worst = max((max(v) for v in starts.values()), default=0.0)
    for (x, y), risks in sorted(starts.items()):
        share = max(risks) / worst if worst else 0.0
        title = (
            f"start ({x:g}, {y:g}): {len(risks)} inputs evaluated, worst {max(risks):.2f} {unit}"
        )
        chart.raw(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.2" fill="{heat(share)}" '
            f'stroke="#0006" stroke-width=".5"><title>{title}</title></circle>'
        )
    for strip in found:
        path, imagined = strip["path"], strip["imagined"]
        true = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        chart.raw(f'<polyline class="true-path" points="{true}"/>')
        if imagined:
            dreamt = " ".join(f"{x:.1f},{y:.1f}" for x, y in [strip["history_end"], *imagined])
            chart.raw(f'<polyline class="dream-path" points="{dreamt}"/>')
            x, y = imagined[-1]
            chart.raw(f'<circle class="dream-end" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        x, y = path[0]
        chart.raw(
            f'<circle class="found" cx="{x:.1f}" cy="{y:.1f}" r="7.5"/>'
            f'<text class="found-text" x="{x:.1f}" y="{y + 3.2:.1f}" text-anchor="middle">'
            f"{strip['number']}</text>"
        )
    return chart.render()


def legend_bar(worst: float, unit: str) -> str:
    """The arena's colour scale."""
    chart = Chart(224, 34, "Colour scale of risk")
    for i in range(56):
        chart.raw(f'<rect x="{i * 4}" y="2" width="4.2" height="10" fill="{heat(i / 55)}"/>')
    chart.text(0, 28, "0")
    chart.text(224, 28, f"{worst:.1f} {unit}", anchor="end")
    chart.text(112, 28, "worst risk at this start", anchor="middle")
    return chart.render()


def error_by_step(curves: Sequence[Mapping[str, Any]], *, unit: str, frameskip: int) -> str:
    """Error by forecast step: "name", "css", "rows" [seeds][steps], each with its range."""
    chart = Chart(460, 250, "Error by forecast step", left=50)
    tables = [np.array(c["rows"], dtype=float) for c in curves]
    steps = max(t.shape[1] for t in tables)
    top = max(float(t.mean(axis=0).max()) for t in tables)
    top = max(top, *(float(np.quantile(t, 0.9, axis=0).max()) for t in tables)) * 1.08 or 1.0
    ax, ay = chart.axes(
        (1, max(steps, 2)),
        (0.0, top),
        x_label=f"forecast step (of {frameskip} environment steps each)",
        y_label=unit,
        x_ticks=list(range(1, steps + 1)),
    )
    for curve, table in zip(curves, tables, strict=True):
        xs = [ax(k + 1) for k in range(table.shape[1])]
        low, high = np.quantile(table, [0.1, 0.9], axis=0)
        if len(table) > 1 and curve.get("band", True):
            chart.band(
                [(x, ay(min(v, top))) for x, v in zip(xs, high, strict=True)],
                [(x, ay(v)) for x, v in zip(xs, low, strict=True)],
                curve["css"],
            )
        mean = table.mean(axis=0)
        chart.line([(x, ay(v)) for x, v in zip(xs, mean, strict=True)], curve["css"])
        for k, (x, v) in enumerate(zip(xs, mean, strict=True)):
            chart.dot(
                x,
                ay(v),
                curve["css"],
                r=2.6,
                title=f"{curve['name']}, step {k + 1}: {v:.2f} {unit}",
            )
    return chart.render()


def error_removed(curves: Sequence[Mapping[str, Any]], *, unit: str) -> str:
    """Error removed after step k, by k: "name", "css", "rows" of {"step", "mean", "low", "high"}."""
    chart = Chart(460, 250, "Error removed by replacing one step", left=50)
    values = [
        v
        for c in curves
        for r in c["rows"]
        for v in (r["mean"], r["low"], r["high"])
        if v is not None
    ]
    low, high = min(0.0, *values), max(0.0, *values) or 1.0
    steps = max(len(c["rows"]) for c in curves)
    margin = 0.06 * (high - low)
    ax, ay = chart.axes(
        (1, max(steps, 2)),
        (low - margin if low < 0 else 0.0, high + margin),
        x_label="forecast step that is replaced",
        y_label=unit,
        x_ticks=list(range(1, steps + 1)),
    )
    for shift, curve in zip((0.0, 3.0, -3.0), curves, strict=False):
        rows = curve["rows"]
        xs = [ax(r["step"]) + shift for r in rows]
        chart.line([(x, ay(r["mean"])) for x, r in zip(xs, rows, strict=True)], curve["css"])
        for x, r in zip(xs, rows, strict=True):
            if r["low"] is not None:
                chart.segment(x, ay(r["low"]), x, ay(r["high"]), f"whisker {curve['css']}")
            chart.dot(
                x,
                ay(r["mean"]),
                curve["css"],
                r=2.6,
                title=f"{curve['name']}, step {r['step']}: {r['mean']:.2f} {unit}",
            )
    return chart.render()


def best_so_far(traces: Sequence[Mapping[str, Any]], *, unit: str) -> str:
    """Best risk found by number of queries: every restart thin, every method's mean bold."""
    chart = Chart(460, 250, "Worst risk found so far, by number of queries", left=50)
    methods = list(dict.fromkeys(t["method"] for t in traces))
    curves = {
        m: [
            np.maximum.accumulate([-np.inf if o is None else o for o in t["outcomes"]])
            for t in traces
            if t["method"] == m
        ]
        for m in methods
    }
    longest = max((len(c) for cs in curves.values() for c in cs), default=1)
    top = max((float(c[-1]) for cs in curves.values() for c in cs if len(c)), default=1.0)
    if not np.isfinite(top) or top <= 0:
        top = 1.0
    ax, ay = chart.axes(
        (1, max(longest, 2)), (0.0, top * 1.08), x_label="distinct inputs asked", y_label=unit
    )
    for place, method in enumerate(methods):
        css = series_css(place)
        for curve in curves[method]:
            points = [(ax(i + 1), ay(v)) for i, v in enumerate(curve) if np.isfinite(v)]
            if points:
                chart.line(points, f"{css} thin")
        shortest = min(len(c) for c in curves[method])
        if shortest:
            mean = np.mean([c[:shortest] for c in curves[method]], axis=0)
            points = [(ax(i + 1), ay(v)) for i, v in enumerate(mean) if np.isfinite(v)]
            chart.line(points, f"{css} bold", title=f"{method}: mean over restarts")
    return chart.render()


def held_out(
    groups: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    threshold: float | None,
    median: float | None,
    unit: str,
) -> str:
    """Validation risk by group: random references as a cloud, shortlisted ones with intervals."""
    chart = Chart(1080, 270, "Risk on held-out seeds, by group", left=150, bottom=40)
    risks = [r["risk"] for rows in groups.values() for r in rows if r["risk"] is not None]
    highs = [r["high"] for rows in groups.values() for r in rows if r.get("high") is not None]
    top = max([*risks, *highs, 1e-9]) * 1.06
    ax, _ = chart.axes((0.0, top), (0.0, 1.0), x_label=f"risk on held-out seeds, {unit}")
    # The vertical axis only separates groups: its numbers mean nothing and are taken out again.
    chart.marks = [m for m in chart.marks if 'class="grid"' not in m]
    present = [g for g in GROUP_NAMES if groups.get(g)]
    height = (chart.height - chart.top - chart.bottom) / max(len(present), 1)
    for value, css, name in (
        (median, "rule soft", "median of random inputs"),
        (threshold, "rule", "95th percentile of random inputs"),
    ):
        if value is not None:
            x = ax(value)
            chart.segment(
                x,
                chart.top,
                x,
                chart.height - chart.bottom,
                css,
                title=f"{name}: {value:.2f} {unit}",
            )
    for place, group in enumerate(present):
        middle = chart.top + height * (place + 0.5)
        chart.text(chart.left - 10, middle + 4, GROUP_NAMES[group], "axis", anchor="end")
        rows = [r for r in groups[group] if r["risk"] is not None]
        for i, row in enumerate(rows):
            # A fixed low-discrepancy offset spreads the cloud without a random number.
            spread = ((i * 0.618034) % 1.0 - 0.5) * height * 0.7
            y = middle + (spread if len(rows) > 1 else 0.0)
            css = {"confirmed": "c1", "refuted": "c3", "inconclusive": "c2"}.get(
                row.get("verdict") or "", "neutral"
            )
            if row.get("low") is not None and row.get("high") is not None:
                chart.segment(ax(max(row["low"], 0.0)), y, ax(row["high"]), y, f"whisker {css}")
            chart.dot(ax(row["risk"]), y, css, r=3.6, title=row["title"])
    return chart.render()


def shrinkage(rows: Sequence[Mapping[str, Any]], *, unit: str) -> str:
    """Search score against validation risk of the shortlist; the diagonal is 'no shrinkage'."""
    chart = Chart(300, 250, "Search score against validation risk", left=50)
    pairs = [
        (r["search_score"], r["risk"], r["title"])
        for r in rows
        if r["search_score"] is not None and r["risk"] is not None
    ]
    top = max((max(a, b) for a, b, _ in pairs), default=1.0) * 1.08
    ax, ay = chart.axes(
        (0.0, top), (0.0, top), x_label=f"score during search, {unit}", y_label="held-out risk"
    )
    chart.segment(ax(0), ay(0), ax(top), ay(top), "rule soft", title="no shrinkage")
    for a, b, title in pairs:
        chart.dot(ax(a), ay(b), "c1", title=title)
    return chart.render()


def neighbourhoods(groups: Mapping[str, Sequence[float]], *, unit: str) -> str:
    """Mean over each fresh neighbourhood, one dot per anchor or unit, group by group."""
    chart = Chart(460, 210, "Mean over fresh neighbourhoods", left=150, bottom=40)
    values = [v for rows in groups.values() for v in rows]
    low, top = min([0.0, *values]), max([*values, 1e-9]) * 1.06
    ax, _ = chart.axes((low, top), (0.0, 1.0), x_label=unit)
    chart.marks = [m for m in chart.marks if 'class="grid"' not in m]
    height = (chart.height - chart.top - chart.bottom) / max(len(groups), 1)
    for place, (name, rows) in enumerate(groups.items()):
        middle = chart.top + height * (place + 0.5)
        chart.text(chart.left - 10, middle + 4, name, "axis", anchor="end")
        css = PALETTE[place % len(PALETTE)]
        for i, value in enumerate(rows):
            y = middle + ((i * 0.618034) % 1.0 - 0.5) * height * 0.5
            chart.dot(ax(value), y, css, r=4, title=f"{name}: {value:.2f} {unit}")
        if rows:
            mean = float(np.mean(rows))
            chart.segment(
                ax(mean), middle - height * 0.32, ax(mean), middle + height * 0.32,
                f"mean {css}", title=f"mean of {name}: {mean:.2f} {unit}",
            )  # fmt: skip
    return chart.render()
