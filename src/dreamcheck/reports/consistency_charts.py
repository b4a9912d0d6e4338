"""Drawings of consistency tables: the film, radius and separation, the screen, the choices."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.svg import PALETTE, Chart

STYLE = """<style>
.seen{display:grid;gap:.3rem;align-items:center;font-size:.8rem}
.seen .lane{font-weight:600;line-height:1.15}.seen .at{color:var(--soft);text-align:center;font-size:.74rem}
.seen img{width:100%;display:block;border-radius:5px;image-rendering:pixelated}
.seen .lane.c3{color:var(--c3)}.seen .lane.c1{color:var(--c1)}
.shares{display:flex;height:1.5rem;border-radius:5px;overflow:hidden;background:var(--line)}
.shares i{display:block;height:100%}
.shares .certified{background:var(--c3)}.shares .same{background:color-mix(in srgb,var(--c3) 40%,var(--card))}
.shares .changed{background:var(--c1)}
.shares-row{display:grid;grid-template-columns:minmax(5rem,11rem) minmax(0,1fr);gap:.25rem .7rem;align-items:center;font-size:.84rem;margin:.25rem 0}
.shares-row span{overflow-wrap:anywhere}
.line.over-1{stroke-dasharray:8 8}.line.over-2{stroke-dasharray:4 12}.name{fill:var(--ink);font-size:12px;paint-order:stroke;stroke:var(--card);stroke-width:4px}
.sw{display:inline-block;width:.8em;height:.8em;border-radius:2px;vertical-align:-.05em}
.sw.certified{background:var(--c3)}.sw.same{background:color-mix(in srgb,var(--c3) 40%,var(--card))}.sw.changed{background:var(--c1)}
</style>"""
WIDTH = 420
NEAR = 6.0
"""Marks closer than this, in px of the drawing, hide one another."""


def colours(count: int) -> list[str]:
    """A colour class per checkpoint; those beyond the palette share the neutral one."""
    return [PALETTE[i] if i < len(PALETTE) else "neutral" for i in range(count)]


def radii(points: Sequence[tuple[float, float]], *, r: float) -> list[float]:
    """Radii of dots drawn in this order: one that later dots would cover is a ring around them."""
    return [
        r + 2.4 * sum(math.dist(p, q) < NEAR for q in points[i + 1 :]) for i, p in enumerate(points)
    ]


def _overlaps(line: Sequence[tuple[float, float]], others: Sequence[Any]) -> int:
    """How many earlier lines run within reach along some stretch of this one."""

    def same(other: Sequence[tuple[float, float]]) -> bool:
        near = [any(math.dist(p, q) < NEAR for q in other) for p in line]
        return any(a and b for a, b in zip(near, near[1:], strict=False))

    return sum(same(o) for o in others)


def film(
    heads: Sequence[str], rows: Sequence[tuple[str, str, Sequence[str]]], foot: Sequence[str]
) -> str:
    """Aligned strips: a heading per column, per row a name, a colour class and pictures.

    Args:
        heads, foot: HTML; foot stands under the columns after the first.
    """
    columns = f"grid-template-columns:clamp(4.8rem,18%,8rem) repeat({len(heads)},minmax(0,1fr))"
    out = [f'<div class="seen" style="{columns}"><span></span>']
    out += [f'<span class="at">{h}</span>' for h in heads]
    for name, css, pictures in rows:
        out.append(f'<span class="lane {css}">{html.escape(name)}</span>')
        out += [f'<img src="{p}" alt="{html.escape(name)}"/>' for p in pictures]
    out.append('<span class="lane">apart</span>')
    out += [f'<span class="at">{f}</span>' for f in foot]
    return "".join(out) + "</div>"


def divergence(values: Sequence[float], typical: Sequence[float] = ()) -> str:
    """Distance of the two imagined futures by step, in units of clean motion.

    Args:
        values: of the window in the film. typical: median over windows, drawn thin.
    """
    chart = Chart(WIDTH, 230, "Distance between the two imagined futures by step", left=50)
    steps = len(values)
    ax, ay = chart.axes(
        (1, max(steps, 2)), (0.0, max(*values, *typical, 1e-9) * 1.1),
        x_label="imagined step", y_label="apart, in clean steps",
        x_ticks=list(range(1, steps + 1)),
    )  # fmt: skip
    chart.line([(ax(k + 1), ay(v)) for k, v in enumerate(typical)], "c2")
    chart.line([(ax(k + 1), ay(v)) for k, v in enumerate(values)], "c1 bold")
    for k, v in enumerate(values):
        chart.dot(ax(k + 1), ay(v), "c1", r=2.8, title=f"step {k + 1}: {v:.3f}")
    return chart.render()


def by_severity(
    checkpoints: Sequence[Mapping[str, Any]], key: str, *, label: str, x_label: str
) -> str:
    """One value by severity, a line per checkpoint; of lines that coincide the later are dashed."""
    chart = Chart(WIDTH, 240, f"{label} by severity", left=50)
    points = [
        (s["severity"], s[key]) for c in checkpoints for s in c["severities"] if s[key] is not None
    ]
    if not points:
        return ""
    xs = [x for x, _ in points]
    low, high = min(xs), max(xs)
    if low == high:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    top = 1.0 if key == "sr" else max(max(v for _, v in points) * 1.1, 1e-9)
    ticks = sorted(set(xs)) if len(set(xs)) <= 6 else None
    ax, ay = chart.axes((low, high), (0.0, top), x_label=x_label, y_label=label, x_ticks=ticks)
    lines: list[list[tuple[float, float]]] = []
    dots = []
    for css, c in zip(colours(len(checkpoints)), checkpoints, strict=True):
        drawn = sorted((s["severity"], s[key]) for s in c["severities"] if s[key] is not None)
        line = [(ax(x), ay(v)) for x, v in drawn]
        under = min(_overlaps(line, lines), 2)
        chart.line(line, f"{css} over-{under}" if under else css)
        lines.append(line)
        dots += [
            (at, css, f"{c['name']}, severity {x:g}: {v:.3f}")
            for at, (x, v) in zip(line, drawn, strict=True)
        ]
    sizes = radii([at for at, _, _ in dots], r=3.5)
    for (at, css, title), r in zip(dots, sizes, strict=True):
        chart.dot(*at, css, r=r, title=title)
    return chart.render()


def screen(
    checkpoints: Sequence[Mapping[str, Any]], severity: int, *, t_ir: float, t_sr: float
) -> str:
    """Relative radius against separation rate; what passes lies in the shaded corner."""
    rows = [
        (css, c["name"], c["severities"][severity])
        for css, c in zip(colours(len(checkpoints)), checkpoints, strict=True)
    ]
    drawn = [r for r in rows if r[2]["ir_rel"] is not None and r[2]["sr"] is not None]
    if not drawn:
        return ""
    chart = Chart(WIDTH, 270, "The screen: relative radius and separation rate", left=50)
    right = max(1.1, *(s["ir_rel"] * 1.08 for _, _, s in drawn))
    low = min([t_sr, *(s["sr"] for _, _, s in drawn)]) - 0.05
    ax, ay = chart.axes(
        (0.0, right), (max(0.0, low), 1.02), x_label="radius, relative to the reference's",
        y_label="separation rate",
    )  # fmt: skip
    chart.band(
        [(ax(0), ay(1.02)), (ax(t_ir), ay(1.02))], [(ax(0), ay(t_sr)), (ax(t_ir), ay(t_sr))], "c3"
    )
    chart.segment(ax(t_ir), ay(1.02), ax(t_ir), ay(max(0.0, low)), "rule", title=f"t_IR {t_ir:g}")
    chart.segment(ax(0), ay(t_sr), ax(right), ay(t_sr), "rule", title=f"t_SR {t_sr:g}")
    points = [(ax(s["ir_rel"]), ay(s["sr"])) for _, _, s in drawn]
    for (css, name, s), at, r in zip(drawn, points, radii(points, r=5), strict=True):
        title = f"{name}: relative radius {s['ir_rel']:.3f}, separation {s['sr']:.3f}"
        chart.dot(*at, css, r=r, title=title)
    _name(chart, [name for _, name, _ in drawn], points)
    return chart.render()


def _name(chart: Chart, names: Sequence[str], points: Sequence[tuple[float, float]]) -> None:
    """Each dot's name beside it, below what is already written there."""
    written: list[tuple[float, float, float]] = []
    for (x, y), name in sorted(zip(points, names, strict=True), key=lambda p: (p[0][1], p[0][0])):
        text = name if len(name) <= 22 else name[:21] + "…"
        width = 6.6 * len(text)
        left = x + 13 if x + 13 + width < chart.width else x - 13 - width
        at = y + 4
        while any(abs(at - b) < 13 and left < r and a < left + width for a, r, b in written):
            at += 13
        written.append((left, left + width, at))
        chart.text(left, at, text, "name")


def shares(rows: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    """Certified, unchanged without a certificate, changed: one bar a row, the name as HTML."""
    out = []
    for name, counts in rows:
        total = sum(counts.values()) or 1
        parts = "".join(
            f'<i class="{css}" style="width:{100 * counts[key] / total:.2f}%"></i>'
            for css, key in (
                ("certified", "certified, unchanged"),
                ("same", "uncertified, unchanged"),
                ("changed", "uncertified, changed"),
            )
        )
        out.append(
            f'<div class="shares-row"><span>{name}</span><div class="shares">{parts}</div></div>'
        )
    return "".join(out)
