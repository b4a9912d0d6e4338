"""The section of `dreamcheck explain`: it opens the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.diagnoses.plan import rate, readings
from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.planning_charts import STYLE, film_lines, film_strips, waterfall

ORDER = 0
TITLE = "Where did the success go?"

PARTS = {
    "cost": "the true cost in place of the model's",
    "dynamics": "the simulator in place of the model's dynamics",
    "search": "a larger search",
}
LABELS = (
    ("cost", "the true cost alone repairs it"),
    ("dynamics", "true dynamics alone repair it"),
    ("search", "a larger search alone repairs it"),
    ("interaction", "several parts would, or only together"),
    ("unreachable", "out of reach for the oracle too"),
)


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    return "\n".join(
        [
            STYLE,
            _lead(reader),
            '<div class="explain-two">' + _waterfall(reader) + _film(reader) + "</div>",
            _table(reader),
            _method(reader),
        ]
    )


def _best(swaps: Sequence[Mapping[str, Any]]) -> int | None:
    gains = [s["gain"] for s in swaps]
    if not gains or max(gains) <= 0:
        return None
    return gains.index(max(gains))


def _lead(reader: DiagnosisReader) -> str:
    n = reader.number
    base = (
        f"{n('waterfall.0.rate.successes', '{:g}')} of {n('waterfall.0.rate.num_cases')} goals "
        "reached"
    )
    best = _best(reader.result["swaps"])
    if best is None:
        won = "no single better part wins anything back"
    else:
        swap = reader.result["swaps"][best]["swap"]
        won = (
            f"{PARTS[swap]} alone wins back {n(f'swaps.{best}.won')}"
            f" and loses {n(f'swaps.{best}.lost')}"
        )
    return (
        f'<p class="kicker">{reader.text(reader.subject["model"])} on '
        f"{reader.text(reader.subject['task'])}, {n('label')}</p><h1>{base}; {won}.</h1>"
    )


def _waterfall(reader: DiagnosisReader) -> str:
    bars = reader.result["waterfall"]
    labels, names = [], []
    for i, bar in enumerate(bars):
        flips = ""
        if bar["flip"] is not None:
            flips = (
                f"+{reader.number(f'waterfall.{i}.flip.won')} / "
                f"−{reader.number(f'waterfall.{i}.flip.lost')}"
            )
        labels.append((reader.number(f"waterfall.{i}.rate.value", "{:.0%}"), flips))
        names.append({"protocol": "as evaluated"}.get(bar["name"], bar["name"]))
    random = reader.result["controls"].get("random", {}).get("success")
    floor = None if random is None else random["value"]
    under = ""
    if floor is not None:
        under = (
            " Hatched: what random actions reach, "
            f"{reader.number('controls.random.success.value', '{:.0%}')}."
        )
    return (
        "<figure>"
        + waterfall(bars, labels, names, floor=floor)
        + "<figcaption>Goals reached on identical episodes and noise while parts of the planner "
        "are replaced by perfect ones, left to right; under each value the episodes won and lost "
        f"against the bar before. Lines: case-bootstrap intervals.{under}</figcaption></figure>"
    )


def _film(reader: DiagnosisReader) -> str:
    film, shown = reader.result["film"], reader.result["frames"]
    if film is None or shown is None:
        if reader.result.get("menu") is not None:
            return (
                '<div class="reading"><h4>A fixed menu</h4><p>A simulator step is dear here, so '
                f"every planner chooses among the same {reader.number('menu')} plans of an episode, "
                "each run once. The oracle is the best plan of the larger menu, random one of the "
                "menu's at random.</p></div>"
            )
        return (
            '<div class="reading"><h4>No film</h4><p>No failed episode is repaired by one swap '
            "alone, so there is nothing to lay side by side.</p></div>"
        )
    held = reader.record.payload["artifacts"]
    names = {
        "imagined": "imagined (nearest real frame)",
        "executed": "executed",
        "swapped": "executed, " + PARTS[film["swap"]],
    }
    css = {"imagined": "c4", "executed": "c1", "swapped": "c5"}
    rows = [
        (
            names[strip],
            css[strip],
            [
                reader.picture(f"{strip}-{t}") if f"{strip}-{t}" in held else None
                for t in shown["steps"]
            ],
            shown[strip],
        )
        for strip in ("imagined", "executed", "swapped")
    ]
    heads = [f"step {reader.number(f'frames.steps.{i}')}" for i in range(len(shown["steps"]))]
    cost, true = film_lines(
        film, unit=reader.result["unit"], block=reader.result["protocol"]["block"]
    )
    unit = reader.text(reader.result["unit"])
    return (
        "<figure>"
        + film_strips(rows, heads, goal=film["goal"], radius=film["success_radius"])
        + f'<div class="pair">{cost}{true}</div>'
        + "<figcaption>One repaired episode. It starts "
        f"{reader.number('film.start_distance', '{:.0f}')} {unit} from its goal (dashed ring) and "
        f"ends {reader.number('film.end_executed', '{:.0f}')} {unit} away; with one part replaced, "
        f"{reader.number('film.end_swapped', '{:.0f}')} {unit}. Left the cost that the planner "
        "sees, right the distance that counts. "
        '<span class="key c4">imagined</span> <span class="key c1">executed</span> '
        '<span class="key c5">executed with the better part</span></figcaption></figure>'
    )


def _table(reader: DiagnosisReader) -> str:
    n = reader.number
    rows = []
    for i, swap in enumerate(reader.result["swaps"]):
        share = ""
        part = swap["swap"]
        if part in reader.result["shares"]:
            share = f"{n(f'shares.{part}.0', '{:+.0%}')} to {n(f'shares.{part}.1', '{:+.0%}')}"
        rows.append(
            f"<tr><td>{reader.text(PARTS[swap['swap']])}</td>"
            f'<td class="r">+{n(f"swaps.{i}.won")} / −{n(f"swaps.{i}.lost")}</td>'
            f'<td class="r">{n(f"swaps.{i}.gain", "{:+.1%}")} '
            f"[{n(f'swaps.{i}.low', '{:+.1%}')}, {n(f'swaps.{i}.high', '{:+.1%}')}]</td>"
            f'<td class="r">{n(f"swaps.{i}.p", "{:.3g}")}</td><td class="r">{share}</td></tr>'
        )
    cells = "".join(
        f'<tr><td>{reader.text(name)}</td><td class="r">{rate(reader, f"cells.{name}.success")}</td>'
        f'<td class="r">{n(f"cells.{name}.mean_final_distance", "{:.1f}")}</td></tr>'
        for name in reader.result["cells"]
    ) + "".join(
        f'<tr><td>control: {reader.text(name)}</td><td class="r">'
        f"{rate(reader, f'controls.{name}.success')}</td>"
        f'<td class="r">{n(f"controls.{name}.mean_final_distance", "{:.1f}")}</td></tr>'
        for name in reader.result["controls"]
    )
    labels = "".join(f"<dt>{text}</dt><dd>{n(f'label_counts.{key}')}</dd>" for key, text in LABELS)
    return (
        '<div class="pair"><div class="scroll"><table><caption>Each part replaced alone, against '
        "the protocol's own cell; the last column over all orders of replacing, since gains do not "
        "add up</caption><thead><tr><th>replaced by</th><th class='r'>won / lost</th>"
        "<th class='r'>gain</th><th class='r'>McNemar p</th><th class='r'>over orders</th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<div class="reading"><h4>Failed episodes</h4><dl>{labels}</dl></div></div>'
        "<details><summary>Every cell of the factorial, and the controls</summary>"
        '<div class="scroll"><table><thead><tr><th>cell</th><th class="r">goals reached</th>'
        f'<th class="r">mean final distance, {reader.text(reader.result["unit"])}</th></tr></thead>'
        f"<tbody>{cells}</tbody></table></div></details>"
    )


def _method(reader: DiagnosisReader) -> str:
    n = reader.number
    said = [
        f"{n('num_trivial')} start(s) were already solved and are left out.",
        f"The larger search has {n('search_factor')} times the "
        + (
            "samples." if reader.result.get("menu") is None else "plans, the menu's own among them."
        ),
        f"The true cost is the squared {reader.text(reader.result['true_cost'])} distance.",
    ]
    if reader.result["atlas_error"] is not None:
        said.append(
            "The model's cost under true dynamics reads latents from a grid of places, off by "
            f"{n('atlas_error', '{:.2f}')} of what one step changes (95th percentile)."
        )
    for name, why in reader.result["missing"].items():
        said.append(f"Not measured: {reader.text(name)} ({reader.text(why)}).")
    said += readings(reader)
    lines = "".join(
        f"<li>{n(f'deviations.{i}')}</li>" for i in range(len(reader.result["deviations"]))
    )
    return (
        f'<p class="quiet">{" ".join(said)}</p><details><summary>Protocol, against '
        f"{reader.text(reader.result['reference'])}</summary><ul>{lines}</ul></details>"
    )
