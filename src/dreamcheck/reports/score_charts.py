"""Charts of scores: factors as bars, error against tolerance, capacity, gaps. From records alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dreamcheck.reports.svg import PALETTE, Chart, nice_ticks, tick_text

FACTORS = (("veracity", "c3"), ("influence", "c2"), ("sobriety", "c4"))
MOST_LINES = len(PALETTE)


def factor_bars(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """Three bars per checkpoint, the limiting one solid and named; what is missing says so."""
    row, bar = 62, 15
    names = [str(c["cell_id"]) for c in checkpoints]
    left = min(260, 20 + 7 * max(len(n) for n in names))
    chart = Chart(
        900, row * len(names) + 46, "Factors of each checkpoint", left=left, right=150, bottom=30
    )
    width = chart.width - chart.left - chart.right
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = chart.left + tick * width
        chart.segment(x, chart.top, x, chart.height - chart.bottom, "grid")
        chart.text(x, chart.height - chart.bottom + 16, tick_text(tick), anchor="middle")
    for i, found in enumerate(checkpoints):
        top = chart.top + i * row + 6
        chart.text(chart.left - 10, top + 27, names[i], "axis", anchor="end")
        for k, (name, css) in enumerate(FACTORS):
            y = top + k * (bar + 2)
            _bar(chart, found, name, css, y, bar, width)
    return chart.render()


def _bar(
    chart: Chart, found: Mapping[str, Any], name: str, css: str, y: float, bar: int, width: float
) -> None:
    value = found[name]
    middle = y + bar / 2 + 4
    if value is None:
        why = "abstained" if name in found["reasons"] else "left out"
        chart.raw(
            f'<rect x="{chart.left}" y="{y:.1f}" width="{width:.1f}" height="{bar}" fill="none" '
            'stroke="currentColor" stroke-opacity=".35" stroke-dasharray="3 4"/>'
        )
        chart.text(chart.left + 8, middle, f"{name}: {why}", "tick")
        return
    limits = found["binding"] == name
    opacity = "1" if limits else ".42"
    chart.raw(
        f'<rect class="dot {css}" style="opacity:{opacity}" x="{chart.left}" y="{y:.1f}" '
        f'width="{max(value * width, 1.0):.1f}" height="{bar}">'
        f"<title>{name} {value:.3f}</title></rect>"
    )
    words = f"{value:.3f}" + (" ◀ limits" if limits else "")
    if name in found["saturated"]:
        words += " saturated"
    chart.text(chart.left + value * width + 6, middle, words, "axis" if limits else "tick")


def error_against_tolerance(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """RMS latent error by step over half the tolerance's latent size; empty without a tolerance."""
    curves = []
    for found in checkpoints:
        half, trace = found["d_tol_half"], found["covariance_trace"]
        if half and found["nmse_curve"] and all(v is not None for v in found["nmse_curve"]):
            curves.append((found, [math.sqrt(v * trace) / half for v in found["nmse_curve"]]))
    if not curves:
        return ""
    chart = Chart(460, 260, "Open-loop error against the tolerance", left=50)
    steps = max(len(c) for _, c in curves)
    top = max(2.2, 1.08 * max(max(c) for _, c in curves))
    ax, ay = chart.axes(
        (1, max(steps, 2)),
        (0.0, top),
        x_label="forecast step, blocks",
        y_label="RMS error, half tolerances",
        x_ticks=list(range(1, steps + 1)),
    )
    for value, css, words in ((1.0, "rule", "half tolerance"), (2.0, "rule soft", "tolerance")):
        chart.segment(chart.left, ay(value), chart.width - chart.right, ay(value), css, title=words)
        chart.text(chart.left + 4, ay(value) - 4, words)
    horizon = curves[0][0]["horizon"]
    x = ax(horizon)
    chart.segment(x, chart.top, x, chart.height - chart.bottom, "rule soft", title="horizon")
    for css, (found, curve) in zip(PALETTE, curves, strict=False):
        points = [(ax(k + 1), ay(v)) for k, v in enumerate(curve)]
        chart.line(points, css, title=str(found["cell_id"]))
        for k, (px, py) in enumerate(points):
            chart.dot(px, py, css, r=2.6, title=f"{found['cell_id']}, step {k + 1}: {curve[k]:.2f}")
    return chart.render()


def capacity_spectrum(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """Nats carried by each direction, largest first; their sum is the capacity. Empty without any."""
    curves = [
        (c, [0.5 * math.log1p(v) for v in c["spectrum"]]) for c in checkpoints if c["spectrum"]
    ]
    if not curves:
        return ""
    chart = Chart(460, 260, "Capacity by direction", left=50)
    longest = max(len(c) for _, c in curves)
    top = max(max(c) for _, c in curves) * 1.08 or 1.0
    ax, ay = chart.axes(
        (1, max(longest, 2)), (0.0, top), x_label="direction, by rank", y_label="nats"
    )
    for css, (found, curve) in zip(PALETTE, curves, strict=False):
        points = [(ax(k + 1), ay(v)) for k, v in enumerate(curve)]
        chart.line(points, css, title=f"{found['cell_id']}: {sum(curve):.1f} nats in all")
    return chart.render()


def gap_histogram(found: Mapping[str, Any], *, bins: int = 24) -> str:
    """Gaps of one checkpoint in shares of the bank's variance; right of zero the search is believed.

    Empty when no gap was measured. The shaded band is the search's resolution.
    """
    trace = found["covariance_trace"]
    gaps = np.array([g for g in found["gaps"] if g is not None], dtype=float)
    if not len(gaps) or not trace:
        return ""
    gaps = gaps / trace
    reach = float(np.abs(gaps).max()) or 1.0
    low, high = min(float(gaps.min()), -0.1 * reach), max(float(gaps.max()), 0.1 * reach)
    # Zero is an edge of the bins: no bar mixes the two signs.
    size = (high - low) / bins
    edges = size * np.arange(math.floor(low / size), math.ceil(high / size) + 1)
    counts, _ = np.histogram(gaps, bins=edges)
    chart = Chart(460, 190, f"Gaps of {found['cell_id']}", left=40)
    ax, ay = chart.axes(
        (float(edges[0]), float(edges[-1])),
        (0.0, float(counts.max()) * 1.1),
        x_label="recorded cost − searched cost, shares of latent variance",
        y_label="anchors",
        x_ticks=nice_ticks(float(edges[0]), float(edges[-1]), count=4),
    )
    if found["near_tie_below"] is not None:
        r = found["near_tie_below"] / trace
        a, b = ax(max(-r, float(edges[0]))), ax(min(r, float(edges[-1])))
        chart.raw(
            f'<rect class="band neutral" x="{a:.1f}" y="{chart.top}" width="{b - a:.1f}" '
            f'height="{chart.height - chart.top - chart.bottom}"><title>resolution</title></rect>'
        )
    for start, stop, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if not count:
            continue
        css = "c1" if start >= -1e-12 * reach else "c3"
        x, y = ax(float(start)), ay(float(count))
        chart.raw(
            f'<rect class="dot {css}" x="{x:.1f}" y="{y:.1f}" width="{ax(float(stop)) - x:.1f}" '
            f'height="{ay(0.0) - y:.1f}"><title>{count} anchors</title></rect>'
        )
    chart.segment(ax(0.0), chart.top, ax(0.0), chart.height - chart.bottom, "rule")
    return chart.render()
