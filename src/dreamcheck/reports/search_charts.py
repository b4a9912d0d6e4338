"""Charts of compared searches: best score so far and cumulative hits, by number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.svg import Axis, Chart, series_css


def mean_best(curves: Sequence[Mapping[str, Any]], *, unit: str) -> str:
    """Mean best score after each query, one line per method, with a band of one SEM.

    Args:
        curves: "method", "best" and "sem" [queries]; None before any restart has a score.
    """
    chart = Chart(460, 270, "Mean best score so far, by number of queries", left=56)
    values = [
        v + sign * (s or 0.0)
        for c in curves
        for v, s in zip(c["best"], c["sem"], strict=True)
        if v is not None
        for sign in (-1.0, 1.0)
    ]
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    ax, ay = _axes(chart, curves, (low - margin, high + margin), unit or "best score so far")
    for place, c in enumerate(curves):
        rows = [
            (ax(n), v, s or 0.0)
            for n, (v, s) in enumerate(zip(c["best"], c["sem"], strict=True), start=1)
            if v is not None
        ]
        chart.band(
            [(x, ay(v + s)) for x, v, s in rows],
            [(x, ay(v - s)) for x, v, s in rows],
            series_css(place),
        )
    for place, c in enumerate(curves):
        points = [(ax(n), ay(v)) for n, v in enumerate(c["best"], start=1) if v is not None]
        chart.line(points, series_css(place), title=c["method"])
    return chart.render()


def cumulative_hits(curves: Sequence[Mapping[str, Any]], place_of_threshold: int) -> str:
    """Share of restarts at or above a threshold after each query, one line per method.

    Args:
        curves: "method" and "hits": rows of {"threshold", "share" [queries]}.
        place_of_threshold: which of the rows.
    """
    threshold = curves[0]["hits"][place_of_threshold]["threshold"] / 100
    chart = Chart(460, 270, f"Share of restarts that reached {threshold:g}", left=56)
    shares = [c["hits"][place_of_threshold]["share"] for c in curves]
    top = max(max(s) for s in shares)
    ax, ay = _axes(chart, curves, (0.0, min(1.0, top * 1.08) or 1.0), f"restarts at {threshold:g}")
    for place, (c, share) in enumerate(zip(curves, shares, strict=True)):
        chart.line(
            [(ax(n), ay(v)) for n, v in enumerate(share, start=1)],
            series_css(place),
            title=f"{c['method']}: {share[-1]:.3f}",
        )
    return chart.render()


def _axes(
    chart: Chart, curves: Sequence[Mapping[str, Any]], y: tuple[float, float], y_label: str
) -> tuple[Axis, Axis]:
    longest = max(len(c["best"]) for c in curves)
    return chart.axes((1, max(longest, 2)), y, x_label="distinct inputs asked", y_label=y_label)
