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
        audit = n(f"short.rows.{i}.audit") if reader.at(f"short.rows.{i}.audit") else ""
        cells.append(f"<td>{audit}</td>")
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
        f"<th class='r'>{n('long.label')}</th><th class='r'>to random, {unit}</th>"
        "<th>normalisation audit</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f"{_ranks(reader)}{_budget(reader)}{_pairs(reader)}{_confounds(reader)}"
    )


def _ranks(reader: DiagnosisReader) -> str:
    """Rank correlation of error and success, and the pick of each horizon."""
    n = reader.number
    said = []
    for h in ("short", "long"):
        rank = "not defined"
        if reader.at(f"{h}.rank_correlation") is not None:
            rank = n(f"{h}.rank_correlation", "{:.2f}")
        monotone = "strictly rises" if reader.result[h]["monotone"] else "does not strictly rise"
        said.append(
            f"<li>{n(f'{h}.label')}: rank correlation of error and success {rank} over "
            f"{n(f'{h}.num_checkpoints')} checkpoints; success {monotone} as the error falls. The "
            f"error picks {n(f'{h}.best_by_error')}, most successful is {n(f'{h}.best')}.</li>"
        )
    return f"<ul>{''.join(said)}</ul>"


def _budget(reader: DiagnosisReader) -> str:
    """What the larger budget alone brings (H3)."""
    n = reader.number
    found = reader.result.get("budget") or []
    if not found:
        why = reader.result.get("budget_reason")
        return f"<p>Budget response not given: {reader.text(why)}</p>" if why else ""
    rows = []
    for i, b in enumerate(found):
        at = f"budget.{i}"
        farther = n(f"{at}.farther", "{:.0%}") if b["farther"] is not None else ""
        rows.append(
            f"<tr><td>{reader.text(b['name'])}</td><td class='r'>{n(f'{at}.success', '{:.1%}')}</td>"
            f"<td class='r'>{n(f'{at}.success_longer', '{:.1%}')}</td>"
            f"<td class='r'>{n(f'{at}.gain', '{:+.1%}')} [{n(f'{at}.low', '{:+.1%}')}, "
            f"{n(f'{at}.high', '{:+.1%}')}]</td><td class='r'>{n(f'{at}.p', '{:.3g}')}</td>"
            f"<td class='r'>{farther}</td></tr>"
        )
    return (
        "<div class='scroll'><table class='sortable'><caption>When only the budget grows, at the "
        f"goals of {n('budget.0.goal')}: a large gain is running out of time; none, with misses that "
        "end farther away than they began, is going the wrong way</caption><thead><tr>"
        f"<th>checkpoint</th><th class='r'>{n('budget.0.budget')} steps</th>"
        f"<th class='r'>{n('budget.0.longer')} steps</th><th class='r'>gain</th>"
        "<th class='r'>p</th><th class='r'>misses farther</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _pairs(reader: DiagnosisReader) -> str:
    """Every two checkpoints on the same episodes (S3)."""
    n = reader.number
    rows = []
    for h in ("short", "long"):
        for i, pair in enumerate(reader.result[h]["pairs"]):
            at = f"{h}.pairs.{i}"
            alone = ""
            if pair["a_only"] is not None:
                alone = f"{n(f'{at}.a_only')} / {n(f'{at}.b_only')}"
            adjusted = n(f"{at}.p_holm", "{:.3g}") if "p_holm" in pair else ""
            rows.append(
                f"<tr><td>{n(f'{h}.label')}</td><td>{reader.text(pair['a'])} / "
                f"{reader.text(pair['b'])}</td><td class='r'>{n(f'{at}.difference', '{:+.1%}')}</td>"
                f"<td class='r'>{alone}</td><td class='r'>{n(f'{at}.p', '{:.3g}')}</td>"
                f"<td class='r'>{adjusted}</td></tr>"
            )
    if not rows:
        return ""
    return (
        f"<details><summary>Every two checkpoints on the same episodes</summary><div class='scroll'>"
        "<table class='sortable'><caption>Paired case by case; Holm's p over the pairs of one horizon"
        "</caption><thead><tr><th>horizon</th><th>pair</th><th class='r'>difference</th>"
        "<th class='r'>won by one alone</th><th class='r'>p</th><th class='r'>Holm's p</th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _confounds(reader: DiagnosisReader) -> str:
    """What could be the cause instead of the error (H4)."""
    found = reader.result["confounds"]
    split = reader.text(reader.result.get("split") or "success at the long horizon")
    if not found:
        return f"<p>No recorded attribute is perfectly aligned with {split}.</p>"
    lines = "".join(f"<li>{reader.number(f'confounds.{i}')}</li>" for i in range(len(found)))
    return (
        f"<p>Perfectly aligned with {split}, so that these checkpoints cannot tell it from the "
        f"error:</p><ul>{lines}</ul>"
    )
