"""The sweep's figure: success, relative radius and separation rate by level, as one SVG file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.svg import Axis, Chart

WIDTH, HEIGHT, MARKS = 350, 250, 58

# A picture that stands outside the report's page brings its colours along.
STYLE = """
svg{--bg:#fff;--ink:#1d1c22;--soft:#66636f;--line:#e3e0d8;--c1:#b01e5b;--c2:#c77a0a;--c3:#1f7a8c;
font-family:system-ui,sans-serif}
@media (prefers-color-scheme:dark){svg{--bg:#1c1b22;--ink:#eceaf1;--soft:#a29eac;--line:#34323d;
--c1:#ff6fa3;--c2:#f2b04a;--c3:#57c2d6}}
.bg{fill:var(--bg)}.grid{stroke:var(--line)}.tick{fill:var(--soft);font-size:11px}
.axis{fill:var(--soft);font-size:12px}.head{fill:var(--ink);font-size:13px;font-weight:600}
.line{fill:none;stroke-width:2}.line.c1,.whisker.c1{stroke:var(--c1)}
.line.c2{stroke:var(--c2)}.line.c3,.whisker.c3{stroke:var(--c3)}
.dot.c1,.key.c1{fill:var(--c1)}.dot.c2,.key.c2{fill:var(--c2)}.dot.c3,.key.c3{fill:var(--c3)}
.whisker{stroke-width:1.4;opacity:.6}.rule{stroke:var(--ink);stroke-dasharray:4 4}
.on{fill:var(--ink)}.off{fill:none;stroke:var(--soft)}
"""


def sweep_figure(
    levels: Sequence[Mapping[str, Any]],
    *,
    severity: float,
    t_ir: float,
    t_sr: float,
    title: str,
) -> str:
    """Three panels side by side, marks for recovered and accepted levels under the first.

    Args:
        levels: in order, each with "sigma_max"; "clean" and "noisy" {"value", "low", "high"};
            "by_severity": {severity: (relative radius, separation rate)}; "recovered" (None where
            there was no gain to recover) and "accepted".
        severity: of the noise that success is about.
        t_ir, t_sr: the screen's thresholds, drawn as rules.
    """
    panels = [
        _success(levels, severity),
        _measure(levels, 0, "Relative radius", t_ir),
        _measure(levels, 1, "Separation rate", t_sr),
    ]
    whole = f"{WIDTH * 3} {HEIGHT + MARKS + 24}"
    body = "".join(
        f'<g transform="translate({i * WIDTH} 22)">{"".join(p.marks)}</g>'
        for i, p in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole}" role="img" '
        f'aria-label="{html.escape(title)}"><style>{STYLE}</style>'
        f'<rect class="bg" width="100%" height="100%"/>'
        f'<text class="head" x="12" y="16">{html.escape(title)}</text>{body}</svg>\n'
    )


def _panel(
    levels: Sequence[Mapping[str, Any]], top: float, label: str
) -> tuple[Chart, Axis, Axis, list[float]]:
    chart = Chart(WIDTH, HEIGHT, label, left=70, top=26)
    sigmas = [float(x["sigma_max"]) for x in levels]
    end = max(sigmas)
    ax, ay = chart.axes(
        (-0.03 * end, 1.03 * end),
        (0.0, top),
        x_label="largest training noise",
        y_label=label,
        x_ticks=sigmas[:: 2 if len(sigmas) > 5 else 1],
    )
    return chart, ax, ay, sigmas


def _success(levels: Sequence[Mapping[str, Any]], severity: float) -> Chart:
    chart, ax, ay, sigmas = _panel(levels, 1.0, "Planning success")
    shift = (sigmas[-1] - sigmas[0]) * 0.006
    for name, css, side in (("clean", "c3", -shift), ("noisy", "c1", shift)):
        at = [ax(s + side) for s in sigmas]
        chart.line([(x, ay(v[name]["value"])) for x, v in zip(at, levels, strict=True)], css)
        for x, level in zip(at, levels, strict=True):
            r = level[name]
            chart.segment(x, ay(r["low"]), x, ay(r["high"]), f"whisker {css}")
            chart.dot(x, ay(r["value"]), css, title=f"{name}: {r['value']:.0%}")
    _key(chart, [("c3", "clean"), ("c1", f"noise {severity:g}")])
    for row, name in enumerate(("recovered", "accepted")):
        y = HEIGHT + 14 + 20 * row
        chart.text(chart.left - 3, y + 4, name, anchor="end")
        for s, level in zip(sigmas, levels, strict=True):
            if level[name] is not None:
                state = "on" if level[name] else "off"
                chart.raw(
                    f'<rect class="{state}" x="{ax(s) - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" '
                    f'height="9"><title>{name}: {"yes" if level[name] else "no"}</title></rect>'
                )
    return chart


def _measure(levels: Sequence[Mapping[str, Any]], which: int, label: str, limit: float) -> Chart:
    severities = sorted(levels[0]["by_severity"])
    values = {s: [x["by_severity"][s][which] for x in levels] for s in severities}
    top = max(1.0, *(v for of in values.values() for v in of)) * (1.08 if which == 0 else 1.0)
    chart, ax, ay, sigmas = _panel(levels, top, label)
    start, stop = ax.start, ax.stop
    chart.segment(start, ay(limit), stop, ay(limit), "rule", title=f"threshold {limit:g}")
    for css, s in zip(("c2", "c3", "c1"), severities[-3:], strict=False):
        points = [(ax(x), ay(v)) for x, v in zip(sigmas, values[s], strict=True)]
        chart.line(points, css)
        for (x, y), v in zip(points, values[s], strict=True):
            chart.dot(x, y, css, title=f"noise {s:g}: {v:.2f}")
    _key(
        chart,
        [(c, f"noise {s:g}") for c, s in zip(("c2", "c3", "c1"), severities[-3:], strict=False)],
    )
    return chart


def _key(chart: Chart, entries: Sequence[tuple[str, str]]) -> None:
    x = float(chart.left)
    for css, text in entries:
        chart.raw(f'<rect class="key {css}" x="{x:.0f}" y="6" width="9" height="9"/>')
        chart.text(x + 13, 15, text)
        x += 30 + 6.2 * len(text)
