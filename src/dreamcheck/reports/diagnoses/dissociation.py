"""The section of `dreamcheck dissociation`: does one-step error order planning success?"""

from __future__ import annotations

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.planning_charts import two_horizons

ORDER = 15
TITLE = "Does one-step error order planning?"


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    n = reader.number
    left, right = two_horizons(reader.result)
    rows = []
    names = [r["name"] for r in reader.result["long"]["rows"]]
    for i, name in enumerate(names):
        cells = [f"<td class='r'>{n(f'short.rows.{i}.one_step_error', '{:.3f}')}</td>"]
        for h in ("short", "long"):
            at = f"{h}.rows.{i}"
            cells.append(
                f"<td class='r'>{n(f'{at}.success', '{:.1%}')} [{n(f'{at}.low', '{:.1%}')}, "
                f"{n(f'{at}.high', '{:.1%}')}]</td>"
                f"<td class='r'>{n(f'{at}.gap_to_random', '{:+.1f}')}</td>"
            )
        rows.append(f"<tr><td>{reader.text(name)}</td>{''.join(cells)}</tr>")
    unit = reader.text(reader.result["unit"])
    side = f"<figure>{right}<figcaption>Right of the line: farther away than random actions end, \
{n('long.label')}.</figcaption></figure>"
    return (
        f'<p class="lead">{n("sentence")}</p><div class="pair"><figure>{left}<figcaption>'
        "Each dot a checkpoint, each line a Wilson interval. "
        f'<span class="key c3">{n("short.label")}</span> '
        f'<span class="key c1">{n("long.label")}</span></figcaption></figure>'
        f"{side if right else ''}</div>"
        "<div class='scroll'><table class='sortable'><caption>One-step error is the mean latent "
        "error over that of a frozen world, on the same windows for all</caption><thead><tr>"
        "<th>checkpoint</th><th class='r'>one-step error</th>"
        f"<th class='r'>{n('short.label')}</th><th class='r'>to random, {unit}</th>"
        f"<th class='r'>{n('long.label')}</th><th class='r'>to random, {unit}</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
