"""The section of `dreamcheck repair`: what data around half of the failures did to the rest."""

from __future__ import annotations

from dreamcheck.reports.diagnoses.reader import DiagnosisReader

ORDER = 61
TITLE = "Repair: data around half of the failures"
ARMS = ("repaired", "control")


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    r = reader.result
    rows = []
    for name, group in r["groups"].items():
        for arm in ARMS:
            at = f"groups.{name}.{arm}"
            cell = group[arm]
            risks = "".join(
                f'<td class="r">{reader.number(f"{at}.{k}", "{:.2f}")}</td>'
                if cell[k] is not None
                else '<td class="quiet">none</td>'
                for k in ("old_risk", "new_risk")
            )
            words = "".join(
                f'<td class="r">{reader.number(f"{at}.words.{w}")}</td>'
                for w in ("fixed", "unchanged", "worse", "new")
            )
            rows.append(
                f"<tr><td>{reader.text(name.replace('_', ' '))}</td><td>{arm}</td>"
                f'<td class="r">{reader.number(f"groups.{name}.inputs")}</td>{risks}{words}</tr>'
            )
    success = "; ".join(
        f"{reader.text(name)} {reader.number(f'success.{name}.successes', '{:g}')} of "
        f"{reader.number(f'success.{name}.episodes')}"
        for name in r["success"]
    )
    return (
        f'<p class="lead">{reader.text(r["model"])} was trained on for '
        f"{reader.number('settings.steps')} predictor steps, once with "
        f"{reader.number('settings.around')} episodes around half of its confirmed failures, once "
        "(control) without. Both are gated against it; the other half was never collected "
        "around.</p><div class='scroll'><table class='sortable'><thead><tr><th>inputs</th><th>trained on</th><th class='r'>count</th>"
        "<th class='r'>risk before</th><th class='r'>after</th><th class='r'>fixed</th>"
        "<th class='r'>unchanged</th><th class='r'>worse</th><th class='r'>new</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        + (f"<p>Planning success: {success}.</p>" if success else "")
        + f"<p>Risks in {reader.text(r['unit'])}.</p>"
    )
