"""Figures of this room: the explanation that opens a report, and the dissociation. SVG text."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from dreamcheck.planning.attribution import Explanation
from dreamcheck.planning.film import Film
from dreamcheck.planning.two_horizons import Dissociation

INK, FAINT, GRID = "#22303c", "#7b8794", "#dfe4e8"
LOST, WON, SKY, SAND = "#c8553d", "#2a7f62", "#2f6690", "#e9c46a"


def _canvas(width: float, height: float) -> Any:
    import matplotlib

    matplotlib.use("svg", force=False)
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white")


def _svg(figure: Any) -> str:
    import matplotlib

    # Fixed ids and no date: the same result gives the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "dreamcheck", "svg.fonttype": "none"}):
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return out.getvalue()


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=FAINT, labelsize=8, length=0)


def explanation_figure(result: Explanation, *, task: Any = None) -> str:
    """Left the waterfall, right one flipped episode as three aligned strips; SVG text.

    Args:
        task: draws the strips' frames; without it the arena is sketched.
    """
    film = result.film
    figure = _canvas(13.5 if film is not None else 7.0, 6.4 if film is not None else 5.4)
    if film is None:
        grid = figure.add_gridspec(1, 1)
        _draw_waterfall(figure.add_subplot(grid[0]), result)
        return _svg(figure)
    grid = figure.add_gridspec(1, 2, width_ratios=(1.0, 1.3), wspace=0.36)
    _draw_waterfall(figure.add_subplot(grid[0]), result)
    _draw_film(figure, grid[1], film, task, result)
    return _svg(figure)


def _draw_waterfall(axes: Any, result: Explanation) -> None:
    bars = result.waterfall
    names = {
        "protocol": "as\nevaluated",
        "true cost": "true\ncost",
        "+ simulator dynamics": "+ true\ndynamics",
        "+ larger search": f"+ {result.search_factor}×\nsearch",
        "oracle": "oracle",
    }
    random = result.controls["random"].success
    if random is not None:
        axes.axhspan(0, 100 * random.value, color=SAND, alpha=0.35, lw=0)
        axes.text(
            len(bars) - 0.52, 100 * random.value, " random", fontsize=8, color=FAINT, va="center",
            ha="left", clip_on=False,
        )  # fmt: skip
    before = 0.0
    for i, bar in enumerate(bars):
        value = 100 * bar.rate.value
        if i == 0:
            axes.bar(i, value, width=0.62, color=SKY, lw=0)
        else:
            axes.bar(i, min(before, value), width=0.62, color=GRID, lw=0)
            axes.bar(
                i, abs(value - before), bottom=min(before, value), width=0.62,
                color=WON if value >= before else LOST, lw=0,
            )  # fmt: skip
            axes.plot([i - 0.69, i - 0.31], [before, before], color=FAINT, lw=0.8)
        axes.plot([i, i], [100 * bar.low, 100 * bar.high], color=INK, lw=1.3, solid_capstyle="butt")
        top = max(value, before, 100 * bar.high)
        axes.text(i, top + 2, f"{value:.0f}%", ha="center", fontsize=10, color=INK, weight="bold")
        if bar.flip is not None:
            axes.text(i, top + 8.5, bar.flip.text, ha="center", fontsize=8.5, color=FAINT)
        before = value
    axes.set_xticks(range(len(bars)), [names.get(b.name, b.name) for b in bars])
    axes.set_ylim(0, 118)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_yticklabels(["0", "25", "50", "75", "100%"])
    axes.grid(axis="y", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    _plain(axes)
    axes.tick_params(axis="x", labelsize=9, colors=INK)
    axes.set_title("Where did the success go?", loc="left", fontsize=13, color=INK, pad=24)
    base = bars[0].rate
    axes.text(
        0, 1.025,
        f"goals reached, {result.label}, {base.num_cases} episodes; +won/−lost against the bar "
        "before",
        transform=axes.transAxes, fontsize=8, color=FAINT,
    )  # fmt: skip


def _draw_film(figure: Any, where: Any, film: Film, task: Any, result: Explanation) -> None:
    strips = where.subgridspec(5, 1, height_ratios=(1, 1, 1, 0.22, 0.95), hspace=0.08)
    block = int(result.protocol["block"])
    times = film.steps(block)
    shown = film.places(times, block)
    rows = (
        ("imagined\n(nearest\nreal frame)", SKY, shown["imagined"]),
        ("executed", LOST, shown["executed"]),
        (f"executed,\ntrue {film.swap}", WON, shown["swapped"]),
    )
    if film.swap == "search":
        rows = (*rows[:2], (f"executed,\n{result.search_factor}× search", WON, rows[2][2]))
    goal = np.asarray(film.case.goal_state[:2])
    for i, (name, colour, places) in enumerate(rows):
        cells = strips[i].subgridspec(1, len(times), wspace=0.06)
        for j, place in enumerate(places):
            axes = figure.add_subplot(cells[j])
            _frame(axes, place, goal, task, colour, film.success_radius)
            if i == 0:
                axes.set_title(f"step {times[j]}", fontsize=7, color=FAINT, pad=3)
            if j == 0:
                axes.text(
                    -0.08, 0.5, name, transform=axes.transAxes, ha="right", va="center",
                    fontsize=8.5, color=colour, weight="bold", wrap=True,
                )  # fmt: skip
    figure.text(
        where.get_position(figure).x0,
        where.get_position(figure).y1 + 0.035,
        f"One repaired episode: dashed, the goal; start {_apart(film):.0f} {result.unit} away",
        fontsize=10,
        color=INK,
    )
    lines = strips[4].subgridspec(1, 2, wspace=0.3)
    cost, distance = figure.add_subplot(lines[0]), figure.add_subplot(lines[1])
    for path, values, colour in (
        (film.executed, film.executed_cost, LOST),
        (film.swapped, film.swapped_cost, WON),
    ):
        cost.plot(np.arange(len(values)), values, color=colour, lw=1.6)
        apart = np.hypot(*(path - goal).T)
        distance.plot(np.arange(len(apart)), apart, color=colour, lw=1.6)
    for step, values in film.imagined_cost:
        steps = step + block * (1 + np.arange(len(values)))
        cost.plot(steps, values, color=SKY, lw=1.1, marker="o", ms=2.5)
    distance.axhline(film.success_radius, color=FAINT, lw=0.8, ls=(0, (3, 2)))
    for axes, title in (
        (cost, "latent cost (what the planner sees)"),
        (distance, f"true distance to the goal, {result.unit}"),
    ):
        _plain(axes)
        axes.set_title(title, loc="left", fontsize=8.5, color=INK)
        axes.set_xlabel("environment step", fontsize=8, color=FAINT)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID, lw=0.6)


def _apart(film: Film) -> float:
    start, goal = np.asarray(film.case.start_state[:2]), np.asarray(film.case.goal_state[:2])
    return float(np.hypot(*(start - goal)))


def _frame(
    axes: Any, place: np.ndarray | None, goal: np.ndarray, task: Any, colour: str, radius: float
) -> None:
    from matplotlib.patches import Circle, Rectangle

    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")
    for side in axes.spines.values():
        side.set_color(GRID)
    if place is None:
        axes.set_facecolor("#f4f6f8")
        axes.set_xlim(0, 224)
        axes.set_ylim(224, 0)
        return
    if task is not None:
        state = task.with_state(task.reset(None, [0]), np.clip(place, 0, 223)[None])
        pixels = task.observe(state, ("pixels",), image_size=56)["pixels"][0]
        axes.imshow(pixels.transpose(1, 2, 0), extent=(0, 224, 224, 0), interpolation="nearest")
    else:
        axes.add_patch(Rectangle((107, 0), 10, 35, color=FAINT, lw=0))
        axes.add_patch(Rectangle((107, 63), 10, 161, color=FAINT, lw=0))
        axes.add_patch(Circle(tuple(place), 7, color=colour, lw=0))
    axes.add_patch(Circle(tuple(goal), radius, fill=False, color=INK, lw=0.9, ls=(0, (2, 1.5))))
    axes.add_patch(Circle(tuple(place), 11, fill=False, color=colour, lw=1.2))
    axes.set_xlim(0, 224)
    axes.set_ylim(224, 0)


def dissociation_figure(result: Dissociation) -> str:
    """Success against one-step error at both horizons, and final distance against random; SVG."""
    figure = _canvas(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    for horizon, colour, marker in ((result.short, SKY, "o"), (result.long, LOST, "s")):
        x = [r.one_step_error for r in horizon.rows]
        y = [100 * r.success for r in horizon.rows]
        left.plot(x, y, color=colour, marker=marker, lw=1.2, ms=6, label=horizon.label)
        for r in horizon.rows:
            left.plot([r.one_step_error] * 2, [100 * r.low, 100 * r.high], color=colour, lw=1)
    for r in result.short.rows:
        left.annotate(
            r.name, (r.one_step_error, 100 * r.success), xytext=(4, 6),
            textcoords="offset points", fontsize=8, color=FAINT,
        )  # fmt: skip
    left.invert_xaxis()
    left.set_xlabel("one-step error / frozen world (better to the right)", fontsize=9, color=INK)
    left.set_ylabel("goals reached, %", fontsize=9, color=INK)
    left.set_ylim(0, 105)
    left.legend(frameon=False, fontsize=8)
    names = [r.name for r in result.long.rows]
    gaps = [np.nan if r.gap_to_random is None else r.gap_to_random for r in result.long.rows]
    right.barh(range(len(names)), gaps, color=[LOST if g > 0 else WON for g in gaps], height=0.55)
    right.axvline(0, color=INK, lw=1)
    right.set_yticks(range(len(names)), names)
    right.set_xlabel(
        f"mean final distance minus random actions', {result.unit} ({result.long.label})",
        fontsize=9, color=INK,
    )  # fmt: skip
    for axes in (left, right):
        _plain(axes)
        axes.grid(color=GRID, lw=0.6)
        axes.set_axisbelow(True)
    left.set_title(
        "Does one-step error order planning success?", loc="left", fontsize=11, color=INK
    )
    right.set_title(
        "Right of the line: farther away than random", loc="left", fontsize=11, color=INK
    )
    return _svg(figure)
