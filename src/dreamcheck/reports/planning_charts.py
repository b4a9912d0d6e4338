"""Drawings of planning results: the waterfall, the film, distances, optimism, two horizons."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dreamcheck.reports.svg import Chart

ARMS = {"planner": "c1", "random": "neutral", "zero": "c2", "oracle": "c3"}
STRIPS = {"imagined": "c4", "executed": "c1", "swapped": "c5"}

STYLE = """<style>
.wf{display:grid;grid-template-columns:repeat(auto-fit,minmax(0,1fr));grid-auto-flow:column;
grid-auto-columns:minmax(0,1fr);height:250px;margin:3.4rem 0 .3rem;position:relative;
border-bottom:1.5px solid var(--soft);gap:.5rem}
.wf .floor{position:absolute;inset:auto 0 0 0;background:repeating-linear-gradient(135deg,
color-mix(in srgb,var(--neutral) 26%,transparent) 0 5px,color-mix(in srgb,var(--neutral) 12%,transparent) 5px 10px);
border-top:1.5px dashed var(--neutral)}
.wf .col{position:relative}
.wf .bar-of,.wf .step{position:absolute;left:12%;right:12%;border-radius:4px 4px 0 0}
.wf .bar-of{bottom:0;background:color-mix(in srgb,var(--c3) 22%,var(--card));border:1px solid color-mix(in srgb,var(--c3) 40%,transparent)}
.wf .first .bar-of{background:var(--c3);border-color:var(--c3)}
.wf .step.won{background:var(--c5)}.wf .step.lost{background:var(--c1)}
.wf .whisk{position:absolute;left:50%;width:0;border-left:2px solid var(--ink)}
.wf .says{position:absolute;left:-20%;right:-20%;text-align:center;line-height:1.15;padding-bottom:.3rem}
.wf .says b{font-size:1.12rem}.wf .says span{display:block;font-size:.8rem;color:var(--soft)}
.wf-names{display:grid;grid-auto-flow:column;grid-auto-columns:minmax(0,1fr);gap:.5rem;font-size:.82rem;text-align:center;line-height:1.2}
.lanes{display:grid;gap:.3rem .3rem;align-items:center;font-size:.8rem}
.lanes .lane{font-weight:600;line-height:1.15}.lanes svg{width:100%;display:block;border-radius:5px}
.lanes .gone{display:grid;place-items:center;aspect-ratio:1;border:1px dashed var(--line);border-radius:5px;color:var(--soft);font-size:.72rem;text-align:center}
.lane.c4{color:var(--c4)}.lane.c1{color:var(--c1)}.lane.c5{color:var(--c5)}
.lanes .at{color:var(--soft);text-align:center;font-size:.72rem}
.goal-ring{fill:none;stroke:#111;stroke-width:2.4;stroke-dasharray:7 5}
.agent-ring{fill:none;stroke-width:4}.agent-ring.c4{stroke:#5b4bb7}.agent-ring.c1{stroke:#b01e5b}.agent-ring.c5{stroke:#3f7a1f}
.explain-two{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1.1fr);gap:1.1rem;align-items:start;margin:1rem 0}
@media (max-width:820px){.explain-two{grid-template-columns:minmax(0,1fr)}.wf-names{font-size:.72rem}.wf{gap:.2rem}.wf-names{gap:.2rem}}
</style>"""


def waterfall(
    bars: Sequence[Mapping[str, Any]], labels: Sequence[tuple[str, str]], names: Sequence[str],
    *, floor: float | None,
) -> str:  # fmt: skip
    """Bars from the protocol to the oracle, gains and losses on each, the random floor shaded.

    Args:
        bars: "rate", "low", "high". labels: HTML of each bar's value and of the flips into it.
        floor: the random control's rate.
    """
    out = ['<div class="wf" role="img" aria-label="Success from the protocol to the oracle">']
    if floor is not None:
        out.append(f'<div class="floor" style="height:{100 * floor:.1f}%"></div>')
    before = 0.0
    for i, (bar, (value, flips)) in enumerate(zip(bars, labels, strict=True)):
        now = float(bar["rate"]["value"])
        shared = now if i == 0 else min(now, before)
        top = max(now, before if i else 0.0, float(bar["high"]))
        out.append(f'<div class="col{" first" if i == 0 else ""}">')
        out.append(f'<div class="bar-of" style="height:{100 * shared:.1f}%"></div>')
        if i and now != before:
            css = "won" if now > before else "lost"
            out.append(
                f'<div class="step {css}" style="bottom:{100 * shared:.1f}%;'
                f'height:{100 * abs(now - before):.1f}%"></div>'
            )
        out.append(
            f'<i class="whisk" style="bottom:{100 * float(bar["low"]):.1f}%;'
            f'height:{100 * (float(bar["high"]) - float(bar["low"])):.1f}%"></i>'
            f'<div class="says" style="bottom:{100 * top:.1f}%"><b>{value}</b>'
            f"<span>{flips}</span></div></div>"
        )
        before = now
    out.append("</div>")
    cells = "".join(f"<span>{html.escape(n)}</span>" for n in names)
    return "".join(out) + f'<div class="wf-names">{cells}</div>'


def film_strips(
    rows: Sequence[tuple[str, str, Sequence[str | None], Sequence[Any]]],
    steps: Sequence[str],
    *,
    goal: Sequence[float],
    radius: float,
) -> str:
    """Aligned strips: per row a name, a colour class, pictures (data URIs) and agent places.

    Args:
        steps: HTML of each column's heading.
    """
    columns = f"grid-template-columns:minmax(4.6rem,6.2rem) repeat({len(steps)},minmax(0,1fr))"
    out = [f'<div class="lanes" style="{columns}"><span></span>']
    out += [f'<span class="at">{s}</span>' for s in steps]
    for name, css, pictures, places in rows:
        out.append(f'<span class="lane {css}">{html.escape(name)}</span>')
        for picture, place in zip(pictures, places, strict=True):
            if picture is None or place is None:
                out.append('<span class="gone">ended</span>')
                continue
            x, y = place
            out.append(
                f'<svg viewBox="0 0 224 224" role="img" aria-label="{html.escape(name)}">'
                f'<image href="{picture}" width="224" height="224"/>'
                f'<circle class="goal-ring" cx="{goal[0]:.1f}" cy="{goal[1]:.1f}" r="{radius:g}"/>'
                f'<circle class="agent-ring {css}" cx="{x:.1f}" cy="{y:.1f}" r="12"/></svg>'
            )
    return "".join(out) + "</div>"


def film_lines(film: Mapping[str, Any], *, unit: str, block: int) -> tuple[str, str]:
    """Latent cost and true distance by environment step, for the episode of the film."""
    goal = np.asarray(film["goal"][:2], float)
    last = max(len(film["executed"]), len(film["swapped"])) - 1
    costs = [*film["executed_cost"], *film["swapped_cost"]]
    cost = Chart(330, 190, "Latent cost by environment step", left=44)
    ax, ay = cost.axes(
        (0, last), (0, max(costs) * 1.06 or 1), x_label="environment step", y_label="latent cost"
    )
    for key in ("executed", "swapped"):
        values = film[f"{key}_cost"]
        cost.line([(ax(t), ay(v)) for t, v in enumerate(values)], STRIPS[key])
    for step, values in film["imagined_cost"]:
        points = [(step + block * (k + 1), v) for k, v in enumerate(values)]
        kept = [(ax(t), ay(min(v, max(costs) * 1.06))) for t, v in points if t <= last]
        if len(kept) > 1:
            cost.line(kept, f"{STRIPS['imagined']} thin")
        for x, y in kept:
            cost.dot(x, y, STRIPS["imagined"], r=2.4)
    paths = {k: np.hypot(*(np.asarray(film[k], float) - goal).T) for k in ("executed", "swapped")}
    top = max(float(p.max()) for p in paths.values()) * 1.06
    true = Chart(330, 190, "True distance by environment step", left=44)
    ax, ay = true.axes(
        (0, last), (0, top), x_label="environment step", y_label=f"true distance, {unit}"
    )
    y = ay(film["success_radius"])
    true.segment(ax(0), y, ax(last), y, "rule soft", title="the goal's radius")
    for key, path in paths.items():
        true.line([(ax(t), ay(v)) for t, v in enumerate(path)], STRIPS[key])
    return cost.render(), true.render()


def distances(arms: Mapping[str, Sequence[Mapping[str, Any]]], *, unit: str, radius: float) -> str:
    """Final distance of every episode and stream, arm by arm; filled dots succeeded."""
    chart = Chart(560, 60 + 52 * len(arms), "Final distances", left=80, bottom=40)
    top = max(o["final_distance"] for rows in arms.values() for o in rows) * 1.05
    ax, _ = chart.axes((0.0, top), (0.0, 1.0), x_label=f"distance to the goal at the end, {unit}")
    chart.marks = [m for m in chart.marks if 'class="grid"' not in m]
    height = (chart.height - chart.top - chart.bottom) / len(arms)
    x = ax(radius)
    chart.segment(x, chart.top, x, chart.height - chart.bottom, "rule soft", title="goal radius")
    for place, (name, rows) in enumerate(arms.items()):
        middle = chart.top + height * (place + 0.5)
        chart.text(chart.left - 8, middle + 4, name, "axis", anchor="end")
        for i, o in enumerate(rows):
            y = middle + ((i * 0.618034) % 1.0 - 0.5) * height * 0.72
            css = ARMS.get(name, "c6")
            title = f"{name}, episode {o['case']}: {o['final_distance']:.1f} {unit}"
            chart.dot(ax(o["final_distance"]), y, css, r=3.0 if o["success"] else 2.0, title=title)
        mean = float(np.mean([o["final_distance"] for o in rows]))
        css = ARMS.get(name, "c6")
        chart.segment(
            ax(mean), middle - height * 0.4, ax(mean), middle + height * 0.4, f"mean {css}",
            title=f"mean {mean:.1f} {unit}",
        )  # fmt: skip
    return chart.render()


def optimism(replans: Sequence[Mapping[str, Any]], *, unit: str) -> str:
    """Where each replan thought its plan would end against where it ended, with random plans."""
    told = [r for r in replans if r["imagined_distance"] and r["realised_distance"]]
    if not told:
        return ""
    chart = Chart(560, 330, "Imagined against realised distance of each replan", left=50)
    top = max(max(*r["imagined_distance"], *r["realised_distance"]) for r in told) * 1.05
    ax, ay = chart.axes(
        (0, top), (0, top), x_label=f"imagined end to goal, {unit}", y_label=f"real end, {unit}"
    )
    chart.segment(ax(0), ay(0), ax(top), ay(top), "rule soft", title="as imagined")
    for column, css in ((1, "neutral"), (0, "c1")):
        for r in told[:600]:
            chart.dot(
                ax(r["imagined_distance"][column]), ay(r["realised_distance"][column]), css, r=2.6
            )
    return chart.render()


def two_horizons(found: Mapping[str, Any]) -> tuple[str, str]:
    """Success against one-step error at both horizons, and final distance against random's."""
    chart = Chart(520, 300, "Success against one-step error", left=50)
    rows = [*found["short"]["rows"], *found["long"]["rows"]]
    worst = max(r["one_step_error"] for r in rows) * 1.08
    # Better is to the right: the axis runs from the largest error to none.
    ax, ay = chart.axes(
        (worst, 0.0),
        (0.0, 1.0),
        x_label="one-step error / frozen world's (better to the right)",
        y_label="share of goals reached",
        x_ticks=[round(worst * k / 4, 2) for k in range(5)],
    )
    for key, css in (("short", "c3"), ("long", "c1")):
        points = [(ax(r["one_step_error"]), r) for r in found[key]["rows"]]
        chart.line([(x, ay(r["success"])) for x, r in points], css)
        for x, r in points:
            chart.segment(x, ay(r["low"]), x, ay(r["high"]), f"whisker {css}")
            chart.dot(x, ay(r["success"]), css, r=5, title=f"{r['name']}: {r['success']:.1%}")
    gaps = [(r["name"], r["gap_to_random"]) for r in found["long"]["rows"]]
    gaps = [(n, g) for n, g in gaps if g is not None]
    if not gaps:
        return chart.render(), ""
    side = Chart(420, 70 + 34 * len(gaps), "Final distance against random", left=110, bottom=44)
    reach = max(abs(g) for _, g in gaps) * 1.1 or 1.0
    gx, _ = side.axes(
        (-reach, reach), (0.0, 1.0),
        x_label=f"mean final distance minus random's, {found['unit']}",
    )  # fmt: skip
    side.marks = [m for m in side.marks if 'class="grid"' not in m]
    side.segment(gx(0), side.top, gx(0), side.height - side.bottom, "rule")
    for i, (name, gap) in enumerate(gaps):
        y = side.top + 34 * i + 17
        side.text(side.left - 8, y + 4, name, "axis", anchor="end")
        css = "c1" if gap > 0 else "c5"
        left, width = min(gx(0), gx(gap)), abs(gx(gap) - gx(0))
        side.raw(
            f'<rect class="dot {css}" x="{left:.1f}" y="{y - 9:.1f}" width="{width:.1f}" '
            f'height="18" rx="3"><title>{html.escape(name)}: {gap:+.1f}</title></rect>'
        )
    return chart.render(), side.render()
