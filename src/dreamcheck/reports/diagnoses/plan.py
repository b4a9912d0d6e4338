"""The section of `dreamcheck plan`: the rate beside its controls, and what is behind it."""

from __future__ import annotations

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.planning_charts import distances, optimism

ORDER = 10
TITLE = "Planning"


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    return "\n".join([_lead(reader), _table(reader), _pictures(reader), _signs(reader)])


def rate(reader: DiagnosisReader, path: str) -> str:
    """A success rate with its interval, marked."""
    n = reader.number
    if reader.at(path) is None:
        return "no case left"
    return (
        f"{n(f'{path}.value', '{:.1%}')} [{n(f'{path}.low', '{:.1%}')}, "
        f"{n(f'{path}.high', '{:.1%}')}]"
    )


def _lead(reader: DiagnosisReader) -> str:
    n = reader.number
    realised = reader.result["realised"]
    return (
        f'<p class="lead"><b>{reader.text(reader.subject["model"])}</b> on '
        f"{reader.text(realised['task'])}, {n('label')}: "
        f"<b>{rate(reader, 'planner.success')}</b> of goals reached, "
        f"{n('realised.num_cases')} episodes, {n('realised.streams')} planner stream(s) averaged "
        f"inside each; {n('planner.num_trivial')} start(s) already solved are left out. Collision "
        f"{reader.text(realised['protocol']['collision'])}, success rule "
        f"{reader.text(realised['protocol']['success'])}, starts "
        f"{reader.text(realised['protocol']['start_rule'])}.</p>"
    )


def _table(reader: DiagnosisReader) -> str:
    n = reader.number
    unit = reader.text(reader.result["unit"])
    paths = [("planner", "planner")] + [(k, f"controls.{k}") for k in reader.result["controls"]]
    rows = []
    for name, path in paths:
        legal = rate(reader, f"{path}.legal_success") if reader.at(f"{path}.legal_success") else ""
        rows.append(
            f"<tr><td>{reader.text(name)}</td><td class='r'>{rate(reader, f'{path}.success')}</td>"
            f"<td class='r'>{legal}</td>"
            f"<td class='r'>{n(f'{path}.mean_final_distance', '{:.1f}')}</td>"
            f"<td class='r'>{n(f'{path}.final_distance_quantiles.2', '{:.1f}')}</td>"
            f"<td class='r'>{n(f'{path}.farther', '{:.0%}')}</td>"
            f"<td class='r'>{n(f'{path}.median_success_steps', '{:g}')}</td></tr>"
        )
    for name, why in reader.result["controls_missing"].items():
        rows.append(
            f"<tr><td>{reader.text(name)}</td><td colspan='6'>left out: {reader.text(why)}</td></tr>"
        )
    return (
        "<div class='scroll'><table class='sortable'><caption>Planner and controls on the same "
        "episodes; Wilson intervals over episodes. Misses farther: the share that ended farther away "
        "than it began. Steps to goal: the median of the successes</caption><thead><tr><th>arm</th>"
        "<th class='r'>goals reached</th><th class='r'>by legal routes</th>"
        f"<th class='r'>final distance, {unit}: mean</th><th class='r'>median</th>"
        "<th class='r'>misses farther</th><th class='r'>steps to goal</th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _pictures(reader: DiagnosisReader) -> str:
    result = reader.result
    arms = {
        "planner": result["planner"]["outcomes"],
        **{k: v["outcomes"] for k, v in result["controls"].items()},
    }
    radius = result["realised"]["protocol"].get("success_radius") or 16.0
    left = (
        "<figure>"
        + distances(arms, unit=result["unit"], radius=radius)
        + "<figcaption>Distance to the goal when each episode ended: large dots reached it, small "
        "ones did not; bars are means, the dashed line the radius of success.</figcaption></figure>"
    )
    drawn = optimism(result["replans"], unit=result["unit"])
    if not drawn:
        return left
    return (
        f'<div class="pair">{left}<figure>{drawn}<figcaption>Every replan: where the model '
        "imagined its plan would end, and where it did. Above the dashed line reality was worse. "
        '<span class="key c1">chosen plans</span> <span class="key neutral">random plans</span>'
        "</figcaption></figure></div>"
    )


def readings(reader: DiagnosisReader) -> list[str]:
    """Sentences: what was asked of the checkpoint before it planned, and what search was counted."""
    n = reader.number
    said = []
    for key, title in (("domain_guard", "Domain guard"), ("norm_audit", "Normalisation audit")):
        found = reader.at(f"realised.{key}")
        if found is None:
            said.append(f"{title}: not asked.")
            continue
        text = f"{title}: {reader.text(found['verdict'])}"
        for name, measure in found["measured"].items():
            value = n(f"realised.{key}.measured.{name}.value", "{:.3g}")
            text += (
                f", {reader.text(name.replace('_', ' '))} {value} {reader.text(measure['unit'])}"
            )
            break
        else:
            text += "".join(f" ({reader.text(why.rstrip('.'))})" for why in found["evidence"][:1])
        said.append(f"{text}.")
    if reader.at("realised.iterations") is not None:
        least, most = reader.result["realised"]["iterations"]
        counted = n("realised.iterations.0")
        if least != most:
            counted += f" to {n('realised.iterations.1')}"
        said.append(f"Counted in every replan: {counted} solver iteration(s).")
    return said


def _signs(reader: DiagnosisReader) -> str:
    n = reader.number
    result = reader.result
    said = []
    if result["optimism"]["distance"] is not None:
        said.append(
            f"Optimism of chosen plans: {n('optimism.distance', '{:.1f}')} ± "
            f"{n('optimism.distance_se', '{:.1f}')} {reader.text(result['optimism']['unit'])} per "
            "replan beyond that of random plans."
        )
    overshoot = result["planner"]["overshoot"]
    if overshoot is not None:
        said.append(
            "Overshoot: it ends farther away than random actions do."
            if overshoot
            else "No overshoot: on average it ends nearer than random actions do, or most misses "
            "end nearer than they began."
        )
    if result["planner"]["fast_and_far"]:
        said.append("Wrong-scale signature: measure the action scale.")
    said.append(
        f"{n('plan_out_of_range_share', '{:.1%}')} of planned actions lay outside the action box "
        "and were clamped by the environment."
    )
    said += readings(reader)
    lines = "".join(f"<li>{n(f'deviations.{i}')}</li>" for i in range(len(result["deviations"])))
    return (
        f"<p>{' '.join(said)}</p><details><summary>How this differs from "
        f"{reader.text(result['reference'])}</summary><ul>{lines}</ul></details>"
    )
