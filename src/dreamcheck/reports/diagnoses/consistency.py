"""The section of `dreamcheck consistency`: what noise does to choices, success and futures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.reports.consistency_charts import (
    STYLE,
    by_severity,
    colours,
    divergence,
    film,
    screen,
    shares,
)
from dreamcheck.reports.consistency_statistics import undefined_because
from dreamcheck.reports.diagnoses.reader import DiagnosisReader

ORDER = 40
TITLE = "Does it see through noise?"

CERTIFIED = "certified, unchanged"
CHANGED = "uncertified, changed"
WORTH_A_PICTURE = 0.01
"""Under this certified share one line is all that is said of certificates."""


def body(reader: DiagnosisReader) -> str:
    """The section's HTML: choices and success first, then why."""
    return "\n".join(
        [
            STYLE,
            _lead(reader),
            _certified(reader),
            _film(reader),
            _curves(reader),
            _screen_and_choices(reader),
            _table(reader),
            _method(reader),
        ]
    )


def _subjects(reader: DiagnosisReader) -> list[int]:
    """Positions of what was asked about: all but the reference, unless there is nothing else."""
    rows = reader.result["checkpoints"]
    return [i for i, c in enumerate(rows) if not c["is_reference"]] or list(range(len(rows)))


def _worst(reader: DiagnosisReader) -> int:
    """The severity farthest from the identity."""
    result = reader.result
    return max(
        range(len(result["severities"])),
        key=lambda k: abs(result["severities"][k] - result["identity_severity"]),
    )


def _share(reader: DiagnosisReader, i: int, k: int, what: str, outcome: str) -> str:
    return reader.statistic(
        "consistency-choices", "{:.0%}", id=f"{what}.{outcome}.{i}.{k}",
        position=i, severity=k, what=what, outcome=outcome,
    )  # fmt: skip


def _loss(reader: DiagnosisReader, i: int, k: int) -> str:
    at = f"checkpoints.{i}.severities.{k}.success"
    lost = reader.statistic(
        "consistency-loss", "{:z.0f}", id=f"loss.{i}.{k}", position=i, severity=k
    )
    return (
        f"{lost} [{reader.number(f'{at}.loss_low', '{:z.0f}')}, "
        f"{reader.number(f'{at}.loss_high', '{:z.0f}')}]"
    )


def _lead(reader: DiagnosisReader) -> str:
    result, text, n = reader.result, reader.text, reader.number
    k = _worst(reader)
    said = []
    labelled = ""
    asked = _subjects(reader)
    beside = [i for i in range(len(result["checkpoints"])) if i not in asked]
    for i in [*asked, *beside]:
        row = result["checkpoints"][i]
        shifted = row["severities"][k]
        parts = []
        if shifted["planner"] is not None:
            of = f"checkpoints.{i}.severities.{k}.planner"
            parts.append(
                f"the planner's choice changed in <b>{_share(reader, i, k, 'winner', CHANGED)}</b> "
                f"[{n(f'{of}.changed_low', '{:.0%}')}, {n(f'{of}.changed_high', '{:.0%}')}] of "
                f"{n(f'{of}.num_histories')} histories"
            )
        if shifted["success"] is not None:
            at = f"checkpoints.{i}.severities.{k}.success"
            parts.append(
                f"success lost <b>{_loss(reader, i, k)}</b> points, from {n(f'{at}.clean.value', '{:.0%}')} "
                f"to {n(f'{at}.perturbed.value', '{:.0%}')} of "
                f"{n(f'{at}.num_cases')} episodes"
            )
            labelled = f" Success: {n(f'{at}.label')}."
        if not parts:
            parts.append("neither choices nor success were measured")
        name = text(row["name"])
        mark = f"{name}, the reference" if row["is_reference"] else f"<b>{name}</b>"
        said.append(f"{mark}: {', and '.join(parts)}.")
    where = "the observed history" if result["on"] == "history" else "history and goal"
    lines = "".join(f"<br>{s}" for s in said)
    missing = f" Success: {n('no_success')}." if result["no_success"] else labelled
    return (
        f'<p class="lead">{text(result["perturbation"]).capitalize()} of '
        f"{n(f'severities.{k}', '{:g}')} on {where} ({text(result['severity_means'])}).{lines}"
        f"<br>In brackets: 95 % intervals.{missing}</p>"
    )


def _certified(reader: DiagnosisReader) -> str:
    """One line on certificates: how much of the planner's choice is proven safe."""
    k = _worst(reader)
    said = []
    for i in _subjects(reader):
        row = reader.result["checkpoints"][i]
        planner = row["severities"][k]["planner"]
        if planner is None:
            continue
        share = planner["winner"][CERTIFIED] / planner["num_histories"]
        value = _share(reader, i, k, "winner", CERTIFIED)
        name = reader.text(row["name"])
        if share < WORTH_A_PICTURE:
            said.append(f"{name}: {value} of choices are certified, so the bounds prove nothing.")
        else:
            said.append(
                f"{name}: {value} of choices are certified: no cost within bounds moves them."
            )
    return f"<p>{' '.join(said)}</p>" if said else ""


def _film(reader: DiagnosisReader) -> str:
    shown = reader.result["film"]
    if not shown:
        return ""
    steps = shown["steps"]
    heads = ["last seen"] + [f"step {reader.number(f'film.steps.{j}')}" for j in range(len(steps))]
    rows = [
        ("what happened", "", [reader.picture(f"real-{k}") for k in (0, *steps)]),
        ("imagined from clean", "c3", [reader.picture(f"clean-{k}") for k in (0, *steps)]),
        ("imagined from perturbed", "c1", [reader.picture(f"perturbed-{k}") for k in (0, *steps)]),
    ]
    foot = [""] + [reader.number(f"film.divergence.{k - 1}", "{:.2f}") for k in steps]
    name = shown["checkpoint"]
    row = next(c for c in reader.result["checkpoints"] if c["name"] == name)
    drawn = divergence(shown["divergence"], row["severities"][_worst(reader)]["by_step"])
    return (
        f'<div class="pair"><figure>{film(heads, rows, foot)}<figcaption>The window of median '
        f"distance, {reader.text(shown['label'])}, as {reader.text(name)} sees it; same actions in "
        "both. Imagined latents are shown as the nearest logged frame. Last row: how far the two "
        "futures lie apart, in units of a clean step.</figcaption></figure>"
        f"<figure>{drawn}<figcaption>The same distance at every step. "
        '<span class="key c1">this window</span> <span class="key c2">median over windows</span>'
        "</figcaption></figure></div>"
    )


def _keys(reader: DiagnosisReader) -> str:
    rows = reader.result["checkpoints"]
    return " ".join(
        f'<span class="key {css}">{reader.text(c["name"])}</span>'
        for css, c in zip(colours(len(rows)), rows, strict=True)
    )


def _curves(reader: DiagnosisReader) -> str:
    result = reader.result
    rows = result["checkpoints"]
    if len(result["severities"]) < 2:
        return ""
    x = f"severity of {result['perturbation']}"
    radius = by_severity(rows, "ir_raw", label="invariance radius, clean steps", x_label=x)
    rate = by_severity(rows, "sr", label="separation rate", x_label=x)
    right = f"<figure>{rate}<figcaption>Separation rate. {_keys(reader)}</figcaption></figure>"
    return (
        f'<div class="pair"><figure>{radius}<figcaption>Invariance radius: the 90th percentile over '
        f"windows of how far the perturbation moves an imagined future. {_keys(reader)}</figcaption>"
        f"</figure>{right if rate else ''}</div>"
    )


def _table(reader: DiagnosisReader) -> str:
    n = reader.number
    rows = []
    for i, c in enumerate(reader.result["checkpoints"]):
        for k, s in enumerate(c["severities"]):
            at = f"checkpoints.{i}.severities.{k}"
            radius = reader.statistic(
                "consistency-radius", "{:.3f}", id=f"radius.{i}.{k}", position=i, severity=k
            )
            rate = (
                reader.statistic(
                    "consistency-separation", "{:.3f}", id=f"sr.{i}.{k}", position=i, severity=k
                )
                if s["sr"] is not None
                else "undefined"
            )
            relative = n(f"{at}.ir_rel", "{:.3f}") if s["ir_rel"] is not None else ""
            score = n(f"{at}.score", "{:z.2f}") if s["score"] is not None else ""
            taken = {True: "yes", False: "no", None: ""}[s["accepted"]]
            changed = _share(reader, i, k, "winner", CHANGED) if s["planner"] else ""
            lost = _loss(reader, i, k) if s["success"] else ""
            mark = " (reference)" if c["is_reference"] else ""
            rows.append(
                f"<tr><td>{reader.text(c['name'])}{mark}</td>"
                f'<td class="r">{n(f"severities.{k}", "{:g}")}</td><td class="r">{radius}</td>'
                f'<td class="r">{relative}</td><td class="r">{rate}</td><td class="r">{score}</td>'
                f'<td>{taken}</td><td class="r">{changed}</td><td class="r">{lost}</td></tr>'
            )
    return (
        '<div class="scroll"><table class="sortable"><caption>Radius in units of clean motion; '
        "separation recomputed from the kept pairs; the choice is the cheapest of one shared pool; "
        "success lost, in points, is paired over identical episodes</caption><thead><tr><th>checkpoint</th>"
        '<th class="r">severity</th><th class="r">radius</th><th class="r">relative</th>'
        '<th class="r">separation</th><th class="r">screen score</th>'
        '<th>accepted</th><th class="r">choice changed</th><th class="r">success lost</th></tr></thead><tbody>'
        f"{''.join(rows)}</tbody></table></div>"
    )


def _screen_and_choices(reader: DiagnosisReader) -> str:
    plotted, bars = _screen(reader), _bars(reader)
    both = f'<div class="pair">{plotted}{bars}</div>' if bars else plotted
    return both + _costs(reader)


def _screen(reader: DiagnosisReader) -> str:
    result, n = reader.result, reader.number
    if result["reference"] is None:
        return (
            "<p>No reference was named, so radii are not relative and nothing is screened: "
            "<span class='mono'>--reference</span> names the unaugmented checkpoint.</p>"
        )
    k = _worst(reader)
    drawn = screen(result["checkpoints"], k, t_ir=result["t_ir"], t_sr=result["t_sr"])
    if not drawn:
        return "<p>The screen is undefined here: see the notes under the table.</p>"
    fact = ""
    if result["sign_from_radius_alone"]:
        fact = (
            f" With a radius threshold of {n('t_ir', '{:g}')} the reference's score is the same "
            "whatever its separation rate: that a score is above the reference's says only that the "
            "relative radius is under 1, and separation cannot change it."
        )
    return (
        f"<figure>{drawn}<figcaption>The screen at severity {n(f'severities.{k}', '{:g}')}: accepted "
        f"are a relative radius of at most {n('t_ir', '{:g}')} and a separation rate of at least "
        f"{n('t_sr', '{:g}')} (shaded).{fact} {_keys(reader)}</figcaption></figure>"
    )


def _planned(reader: DiagnosisReader) -> list[tuple[int, str, Mapping[str, Any], bool]]:
    """Position, name, choices at the farthest severity, and whether certificates are worth a word."""
    k = _worst(reader)
    out = []
    for i, c in enumerate(reader.result["checkpoints"]):
        planner = c["severities"][k]["planner"]
        if planner is not None:
            share = planner["winner"][CERTIFIED] / planner["num_histories"]
            out.append((i, reader.text(c["name"]), planner, share >= WORTH_A_PICTURE))
    return out


def _bars(reader: DiagnosisReader) -> str:
    """How often a choice was certified, unchanged, changed."""
    bars: list[tuple[str, Mapping[str, int]]] = []
    for _, name, planner, _ in _planned(reader):
        bars.append((f"{name}, cheapest", planner["winner"]))
        bars.append((f"{name}, elites", planner["elites"]))
    if not bars:
        return ""
    proven = any(counts[CERTIFIED] for _, counts in bars)
    certified = '<span class="sw certified"></span> certified, unchanged ' if proven else ""
    return (
        f"<figure>{shares(bars)}<figcaption>The same candidates costed from both histories, at "
        f"severity {reader.number(f'severities.{_worst(reader)}', '{:g}')}; the cheapest, and the "
        f'set of elites: {certified}<span class="sw same"></span> unchanged'
        f"{' without a certificate' if proven else ''} "
        '<span class="sw changed"></span> changed.</figcaption></figure>'
    )


def _costs(reader: DiagnosisReader) -> str:
    """What the perturbed search cost, model by model."""
    n, k = reader.number, _worst(reader)
    said = []
    for i, name, planner, proven in _planned(reader):
        at = f"checkpoints.{i}.severities.{k}.planner"
        lost = (
            f", the signed difference {n(f'{at}.median_lost_advantage', '{:z.1%}')} of the clean "
            "plan's advantage over a random candidate"
            if planner["median_lost_advantage"] is not None
            else ""
        )
        held = (
            f"; elite certificates hold in {n(f'{at}.certified_iterations')} of "
            f"{n(f'{at}.num_iterations')} iterations"
            if proven
            else ""
        )
        said.append(
            f"<li>{name}: {n(f'{at}.plans_unchanged')} of {n(f'{at}.num_histories')} final plans are "
            f"the same; both searches share {n(f'{at}.mean_overlap', '{:.0%}')} of their elites; in "
            f"the median the regret is {n(f'{at}.median_regret', '{:.3g}')}{lost}{held}.</li>"
        )
    if not said:
        return ""
    return (
        "<h3>What the changed choices cost, at severity "
        f"{n(f'severities.{k}', '{:g}')}</h3><p>Regret: how much more the perturbed plan costs, seen "
        f"from the clean history, never below 0.</p><ul>{''.join(said)}</ul>"
    )


def _method(reader: DiagnosisReader) -> str:
    result, n = reader.result, reader.number
    said = [
        f"{n('num_anchors')} windows of {n('num_windows')}, from {n('num_episodes')} episodes; "
        f"{n('horizon')} imagined steps of {n('frameskip')} environment steps; {n('draws')} draws.",
        f"{n('eligible')} windows have a differently labelled neighbour, {n('skipped')} do not; the "
        "labels are operational.",
        f"Severities act on frames of {n('image_size')} px, after resizing.",
        f"Costs: {n('cost_scale')}. Regret is a cost of the model's, not a return.",
    ]
    for i, c in enumerate(result["checkpoints"]):
        if c["num_still"]:
            said.append(
                f"{reader.text(c['name'])}: {n(f'checkpoints.{i}.num_still')} window(s) stand still; "
                "their normalised distances are near 1e8."
            )
        if c["clipped"]:
            said.append(f"{reader.text(c['name'])} takes bytes: perturbed frames were clipped.")
        said += [reader.text(f"{c['name']}: {w}.") for w in undefined_because(result, c)]
    if result["protocol"] is not None:
        solver = result["protocol"]["solver"]
        said.append(
            "Success under protocol "
            f"{reader.text(result['protocol']['name'])}, one planner stream, search "
            f"{reader.text(', '.join(f'{k} {v}' for k, v in solver.items()))}."
        )
    return f'<p class="quiet">{" ".join(said)}</p>'
