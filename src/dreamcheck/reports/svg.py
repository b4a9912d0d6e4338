"""Small charts as SVG text that takes its colours from the page, in light and in dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

PALETTE = ("c1", "c2", "c3", "c4", "c5", "c6")
"""Classes of the page's series colours."""

STROKES = ("", " dashed", " dotted")


def series_css(index: int) -> str:
    """Classes of the index-th series of a chart and of its key: six colours, then the same six
    dashed, then dotted, so that eighteen series can be told apart, in grey by threes."""
    turn, colour = divmod(index, len(PALETTE))
    return PALETTE[colour] + STROKES[turn % len(STROKES)]


def nice_ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Round tick values that cover [low, high]: steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / max(count, 1)
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9) * step
    ticks = []
    value = first
    while value <= high + step * 1e-9:
        ticks.append(0.0 if abs(value) < step * 1e-9 else value)
        value += step
    return ticks


def tick_text(value: float) -> str:
    """A tick's number, without trailing zeros."""
    return f"{value:.6g}"


@dataclass
class Axis:
    """A linear axis from data to pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.stop - self.start)


@dataclass
class Chart:
    """A chart under construction: marks are appended as SVG text, then ``render`` frames them.

    label: what a screen reader says; every chart has one.
    """

    width: int
    height: int
    label: str
    left: int = 46
    right: int = 12
    top: int = 12
    bottom: int = 36
    marks: list[str] = field(default_factory=list)

    def axes(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        x_label: str = "",
        y_label: str = "",
        x_ticks: Sequence[float] | None = None,
    ) -> tuple[Axis, Axis]:
        """Draw both axes with grid lines, and return the scales."""
        ax = Axis(x[0], x[1], self.left, self.width - self.right)
        ay = Axis(y[0], y[1], self.height - self.bottom, self.top)
        for value in nice_ticks(*y, count=4):
            at = ay(value)
            self.marks.append(
                f'<line class="grid" x1="{self.left}" x2="{self.width - self.right}" '
                f'y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick" x="{self.left - 6}" y="{at + 4:.1f}" '
                f'text-anchor="end">{tick_text(value)}</text>'
            )
        for value in x_ticks if x_ticks is not None else nice_ticks(*x, count=6):
            self.marks.append(
                f'<text class="tick" x="{ax(value):.1f}" y="{self.height - self.bottom + 15}" '
                f'text-anchor="middle">{tick_text(value)}</text>'
            )
        if x_label:
            middle = (self.left + self.width - self.right) / 2
            self.marks.append(
                f'<text class="axis" x="{middle:.1f}" y="{self.height - 4}" '
                f'text-anchor="middle">{html.escape(x_label)}</text>'
            )
        if y_label:
            middle = (self.top + self.height - self.bottom) / 2
            self.marks.append(
                f'<text class="axis" transform="translate(12 {middle:.1f}) rotate(-90)" '
                f'text-anchor="middle">{html.escape(y_label)}</text>'
            )
        return ax, ay

    def line(self, points: Sequence[tuple[float, float]], css: str, *, title: str = "") -> None:
        """A polyline through pixel points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.marks.append(
            f'<polyline class="line {css}" points="{path}">{_title(title)}</polyline>'
        )

    def band(
        self, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], css: str
    ) -> None:
        """The area between two pixel lines."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
        self.marks.append(f'<polygon class="band {css}" points="{path}"/>')

    def dot(self, x: float, y: float, css: str, *, r: float = 3.5, title: str = "") -> None:
        """A dot at a pixel point."""
        self.marks.append(
            f'<circle class="dot {css}" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}">{_title(title)}</circle>'
        )

    def segment(
        self, x1: float, y1: float, x2: float, y2: float, css: str, *, title: str = ""
    ) -> None:
        """A straight line between pixel points."""
        self.marks.append(
            f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}">'
            f"{_title(title)}</line>"
        )

    def text(
        self, x: float, y: float, text: str, css: str = "tick", *, anchor: str = "start"
    ) -> None:
        """Text at a pixel point."""
        self.marks.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )

    def raw(self, svg: str) -> None:
        """SVG text as it is."""
        self.marks.append(svg)

    def render(self) -> str:
        """The whole chart."""
        body = "\n".join(self.marks)
        return (
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{html.escape(self.label)}">\n{body}\n</svg>'
        )


def _title(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""


_HEAT = ((255, 233, 190), (253, 187, 120), (240, 110, 80), (190, 30, 90), (90, 5, 90))


def heat(share: float) -> str:
    """A colour from pale sand (0) over coral to dark plum (1): darker is worse, in grey too."""
    share = min(max(share, 0.0), 1.0) * (len(_HEAT) - 1)
    i = min(int(share), len(_HEAT) - 2)
    f = share - i
    r, g, b = (round(a + (c - a) * f) for a, c in zip(_HEAT[i], _HEAT[i + 1], strict=True))
    return f"#{r:02x}{g:02x}{b:02x}"
