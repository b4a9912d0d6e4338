"""Drawings of the consistency experiments: one chart each, and all of them as one SVG file."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.svg import Chart
from dreamcheck.reports.sweep_chart import STYLE

WIDTH, HEIGHT, GAP = 360, 270, 14
SERIES = ("c1", "c3", "c2")
"""Colours of checkpoints, the reference's first."""
REGRESSIONS = (("base_mae", "c2", "Base"), ("best_control_mae", "c3", "+ best control"),
               ("acpc_mae", "c1", "+ ACPC"))  # fmt: skip


def drift_chart(cells: Sequence[Mapping[str, Any]]) -> Chart:
    """Held-out error of the three regressions, one row a checkpoint."""
    chart = Chart(WIDTH, HEIGHT, "Held-out error of the error drift", left=104, top=38)
    top = max(c[key] for c in cells for key, _, _ in REGRESSIONS) * 1.1
    ax, _ = chart.axes((0.0, top), (0.0, 1.0), x_label="held-out error of the drift, latent units")
    chart.marks = [m for m in chart.marks if 'class="grid"' not in m]
    step = (chart.height - chart.top - chart.bottom) / len(cells)
    for i, c in enumerate(cells):
        y = chart.top + step * (i + 0.5)
        chart.segment(ax(0), y, ax(top), y, "grid")
        chart.text(chart.left - 8, y + 4, str(c["name"])[:14], anchor="end")
        for key, css, name in REGRESSIONS:
            chart.dot(ax(c[key]), y, css, r=5, title=f"{c['name']}, {name}: {c[key]:.3f}")
    _key(chart, [(css, name) for _, css, name in REGRESSIONS])
    return chart


def regret_chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Median regret by severity, one line a checkpoint."""
    chart = Chart(WIDTH, HEIGHT, "Selection regret by severity", left=62, top=38)
    names = list(dict.fromkeys(r["name"] for r in rows))
    severities = sorted({r["severity"] for r in rows})
    top = max(max(r["median"] for r in rows), 1e-9) * 1.1
    ax, ay = chart.axes(
        (0.0, max(severities) * 1.05), (0.0, top), x_label="severity", y_label="median regret",
        x_ticks=severities,
    )  # fmt: skip
    for css, name in zip(SERIES, names, strict=False):
        points = [(r["severity"], r["median"]) for r in rows if r["name"] == name]
        chart.line([(ax(x), ay(y)) for x, y in points], css)
        for x, y in points:
            chart.dot(ax(x), ay(y), css, title=f"{name}, severity {x:g}: {y:.3g}")
    _key(chart, list(zip(SERIES, names, strict=False)))
    return chart


def geometry_chart(rows: Sequence[Mapping[str, Any]], space: str) -> Chart:
    """Radius of the views against the nearest other scene, both as powers of ten."""
    where = "encoder" if space == "encoder" else "after the last imagined step"
    chart = Chart(WIDTH, HEIGHT, f"Local geometry, {where}", left=62, top=38)
    shown = [r for r in rows if r["space"] == space]

    def power(value: float) -> float:
        return math.log10(max(value, 1e-12))

    across = [power(v) for r in shown for v in r["nearest"]]
    up = [power(v) for r in shown for v in r["radius"]]
    low, high = min(*across, *up) - 0.1, max(*across, *up) + 0.1
    ax, ay = chart.axes(
        (low, high), (low, high), x_label="nearest other scene, log10",
        y_label="farthest view, log10",
    )  # fmt: skip
    chart.segment(ax(low), ay(low), ax(high), ay(high), "rule", title="radius = distance")
    for css, r in zip(SERIES, shown, strict=False):
        for nearest, radius in zip(r["nearest"], r["radius"], strict=True):
            chart.dot(ax(power(nearest)), ay(power(radius)), css, r=2.2)
    _key(chart, list(zip(SERIES, [r["name"] for r in shown], strict=False)))
    return chart


def collapse_chart(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Spread (over the largest), separation rate and clean success by the regulariser's weight."""
    if len({r["weight"] for r in rows} - {None}) < 2:
        return None
    chart = Chart(WIDTH, HEIGHT, "Collapse by weight of the regulariser", left=62, top=38)
    known = [r for r in rows if r["weight"] is not None]
    weights = [r["weight"] for r in known]
    end = max(weights)
    ax, ay = chart.axes(
        (-0.04 * end, 1.04 * end), (0.0, 1.0), x_label="weight of the regulariser",
        y_label="share", x_ticks=sorted(set(weights)),
    )  # fmt: skip
    most = max(r["spread"] for r in known) or 1.0
    series = [
        ("c2", "spread / largest", [r["spread"] / most for r in known]),
        ("c3", "separation", [r["sr"] for r in known]),
        ("c1", "success", [None if r["clean"] is None else r["clean"]["value"] for r in known]),
    ]
    drawn = []
    for css, name, values in series:
        points = [(x, v) for x, v in zip(weights, values, strict=True) if v is not None]
        if not points:
            continue
        drawn.append((css, name))
        chart.line([(ax(x), ay(v)) for x, v in points], css)
        for x, v in points:
            chart.dot(ax(x), ay(v), css, title=f"{name} at weight {x:g}: {v:.3f}")
    for r in known:
        if r["clean"] is not None:
            x = ax(r["weight"])
            chart.segment(x, ay(r["clean"]["low"]), x, ay(r["clean"]["high"]), "whisker c1")
    _key(chart, drawn)
    return chart


def sensitivity_chart(rows: Sequence[Mapping[str, Any]], reference: str) -> Chart | None:
    """Ratio of radii by horizon at the usual quantile; other quantiles as further dots."""
    shown = [r for r in rows if r["name"] != reference and r["ratio"] is not None]
    if not shown:
        return None
    chart = Chart(WIDTH, HEIGHT, "Relative radius by horizon and quantile", left=62, top=38)
    horizons = sorted({r["horizon"] for r in shown})
    top = max(1.0, *(r["ratio"] for r in shown)) * 1.05
    ax, ay = chart.axes(
        (0.5, max(horizons) + 0.5), (0.0, top), x_label="horizon", y_label="relative radius",
        x_ticks=horizons,
    )  # fmt: skip
    chart.segment(ax.start, ay(1.0), ax.stop, ay(1.0), "rule", title="the reference")
    names = list(dict.fromkeys(r["name"] for r in shown))
    for css, name in zip(SERIES[1:], names, strict=False):
        mine = [r for r in shown if r["name"] == name]
        usual = [(r["horizon"], r["ratio"]) for r in mine if r["quantile"] == 0.9]
        chart.line([(ax(h), ay(v)) for h, v in usual], css)
        for r in mine:
            chart.dot(
                ax(r["horizon"]), ay(r["ratio"]), css, r=3.5 if r["quantile"] == 0.9 else 2.2,
                title=f"{name}, {r['horizon']} steps, quantile {r['quantile']:g}: {r['ratio']:.3f}",
            )  # fmt: skip
    _key(chart, list(zip(SERIES[1:], names, strict=False)))
    return chart


def charts(result: Mapping[str, Any]) -> list[Chart]:
    """A chart of everything that was run, in the order of the page."""
    out: list[Chart | None] = []
    if result["drift"] is not None:
        out.append(drift_chart(result["drift"]["cells"]))
    if result["planner"] is not None:
        out.append(regret_chart(result["planner"]["regret"]))
    if result["geometry"] is not None:
        out += [geometry_chart(result["geometry"]["rows"], s) for s in ("encoder", "rollout")]
    if result["collapse"] is not None:
        out.append(collapse_chart(result["collapse"]["rows"]))
    if result["sensitivity"] is not None:
        out.append(sensitivity_chart(result["sensitivity"]["rows"], result["reference"]))
    return [c for c in out if c is not None]


def experiments_figure(result: Mapping[str, Any], *, title: str, columns: int = 3) -> str:
    """All charts in one SVG file that brings its colours along."""
    drawn = charts(result)
    lines = math.ceil(len(drawn) / columns)
    body = "".join(
        f'<g transform="translate({WIDTH * (i % columns)} {24 + (HEIGHT + GAP) * (i // columns)})">'
        f'<text class="head" x="12" y="14">{html.escape(c.label)}</text>{"".join(c.marks)}</g>'
        for i, c in enumerate(drawn)
    )
    whole = f"{WIDTH * min(columns, len(drawn))} {24 + (HEIGHT + GAP) * lines}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole}" role="img" '
        f'aria-label="{html.escape(title)}"><style>{STYLE}</style>'
        f'<rect class="bg" width="100%" height="100%"/>'
        f'<text class="head" x="12" y="16">{html.escape(title)}</text>{body}</svg>\n'
    )


def _key(chart: Chart, entries: Sequence[tuple[str, str]]) -> None:
    x = float(chart.left)
    for css, text in entries:
        chart.raw(f'<rect class="dot {css}" x="{x:.0f}" y="20" width="9" height="9"/>')
        chart.text(x + 13, 29, text)
        x += 30 + 6.2 * len(text)
