"""Drawings of consistency tables: the film, radius and separation, the screen, the choices."""

from __future__ import annotations

import html
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
.sw{display:inline-block;width:.8em;height:.8em;border-radius:2px;vertical-align:-.05em}
.sw.certified{background:var(--c3)}.sw.same{background:color-mix(in srgb,var(--c3) 40%,var(--card))}.sw.changed{background:var(--c1)}
</style>"""


def film(
    heads: Sequence[str], rows: Sequence[tuple[str, str, Sequence[str]]], foot: Sequence[str]
) -> str:
    """Aligned strips: a heading per column, per row a name, a colour class and pictures.

    Args:
        heads, foot: HTML; foot stands under the columns after the first.
    """
    columns = f"grid-template-columns:minmax(4.4rem,8rem) repeat({len(heads)},minmax(0,1fr))"
    out = [f'<div class="seen" style="{columns}"><span></span>']
    out += [f'<span class="at">{h}</span>' for h in heads]
    for name, css, pictures in rows:
        out.append(f'<span class="lane {css}">{html.escape(name)}</span>')
        out += [f'<img src="{p}" alt="{html.escape(name)}"/>' for p in pictures]
    out.append('<span class="lane">apart</span>')
    out += [f'<span class="at">{f}</span>' for f in foot]
    return "".join(out) + "</div>"


def divergence(values: Sequence[float]) -> str:
    """Distance of the two imagined futures by step, in units of clean motion."""
    chart = Chart(460, 200, "Distance between the two imagined futures by step", left=50)
    steps = len(values)
    ax, ay = chart.axes(
        (1, max(steps, 2)), (0.0, max(*values, 1e-9) * 1.1),
        x_label="imagined step", y_label="apart, in clean steps",
        x_ticks=list(range(1, steps + 1)),
    )  # fmt: skip
    chart.line([(ax(k + 1), ay(v)) for k, v in enumerate(values)], "c1 bold")
    for k, v in enumerate(values):
        chart.dot(ax(k + 1), ay(v), "c1", r=2.8, title=f"step {k + 1}: {v:.3f}")
    return chart.render()


def by_severity(
    checkpoints: Sequence[Mapping[str, Any]], key: str, *, label: str, x_label: str
) -> str:
    """One value by severity, a line per checkpoint."""
    chart = Chart(460, 240, f"{label} by severity", left=50)
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
    for css, c in zip(PALETTE, checkpoints, strict=False):
        drawn = sorted((s["severity"], s[key]) for s in c["severities"] if s[key] is not None)
        chart.line([(ax(x), ay(v)) for x, v in drawn], css)
        for x, v in drawn:
            chart.dot(ax(x), ay(v), css, title=f"{c['name']}, severity {x:g}: {v:.3f}")
    return chart.render()


def screen(
    checkpoints: Sequence[Mapping[str, Any]], severity: int, *, t_ir: float, t_sr: float
) -> str:
    """Relative radius against separation rate; what passes lies in the shaded corner."""
    rows = [
        (css, c["name"], c["severities"][severity])
        for css, c in zip(PALETTE, checkpoints, strict=False)
    ]
    drawn = [r for r in rows if r[2]["ir_rel"] is not None and r[2]["sr"] is not None]
    if not drawn:
        return ""
    chart = Chart(460, 270, "The screen: relative radius and separation rate", left=50)
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
    for css, name, s in drawn:
        title = f"{name}: relative radius {s['ir_rel']:.3f}, separation {s['sr']:.3f}"
        chart.dot(ax(s["ir_rel"]), ay(s["sr"]), css, r=5, title=title)
    return chart.render()


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
