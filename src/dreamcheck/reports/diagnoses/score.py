"""The section of `dreamcheck score`: factors, what limits, and what they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.score_charts import (
    FACTORS,
    MOST_LINES,
    capacity_spectrum,
    error_against_tolerance,
    factor_bars,
    gap_histogram,
)
from dreamcheck.reports.svg import PALETTE

ORDER = 30
TITLE = "Fit to plan with? VIScore"

BASELINES = (
    ("straightness", "straightness", "{:.3f}"),
    ("probe_r2", "state probe R², ridge", "{:.3f}"),
    ("probe_r2_mlp", "state probe R², net", "{:.3f}"),
    ("empowerment_nats", "empowerment, nats", "{:.1f}"),
    ("effective_rank", "effective rank", "{:.1f}"),
    ("embedding_spread", "spread, latent units", "{:.3g}"),
    ("one_step_to_frozen", "one step / frozen world", "{:.3f}"),
    ("epoch", "epoch", "{:g}"),
    ("training_loss", "training loss", "{:.4g}"),
)


def body(reader: DiagnosisReader) -> str:
    """The section's HTML."""
    found: Sequence[Mapping[str, Any]] = reader.result["checkpoints"]
    order = sorted(
        range(len(found)), key=lambda i: (found[i]["vis"] is None, -(found[i]["vis"] or 0))
    )
    ranked = [found[i] for i in order]
    shown = [c for c in ranked if c["spectrum"] or c["gaps"] or c["nmse_curve"]][:MOST_LINES]
    return "\n".join(
        [
            _lead(reader, found),
            '<figure><div class="wide">' + factor_bars(ranked) + "</div><figcaption>Every factor "
            "between zero and one, and the product is the score: the shortest bar limits it and is "
            "drawn solid. A dashed frame is a factor that was left out or could not be measured. "
            '<span class="key c3">veracity</span> <span class="key c2">influence</span> '
            '<span class="key c4">sobriety</span></figcaption></figure>',
            _table(reader, found, order),
            _reasons(reader, ranked),
            _pictures(reader, shown),
            _gaps(reader, shown),
            _baselines(reader, found, order),
            _reading(),
        ]
    )


def _name(found: Mapping[str, Any]) -> str:
    return "VIS" if found["factors"] == "VIS" else f"VIS[{found['factors']}]"


def _lead(reader: DiagnosisReader, found: Sequence[Mapping[str, Any]]) -> str:
    first = found[0]
    scales = {c["scale"] for c in found}
    text = reader.text
    lead = (
        f'<p class="lead">{reader.statistic("length", id="checkpoints", path="result.checkpoints")} '
        f"checkpoint(s) of <b>{text(first['task'])}</b>, read on one probe of "
        f"{reader.subject_number('num_rows')} rows from {reader.subject_number('num_episodes')} "
        f"episodes ({text(reader.subject['probe_name'])}, digest "
        f'<span class="mono">{text(reader.subject["probe"][:12])}</span>). Horizon '
        f"{reader.number('checkpoints.0.horizon')} blocks of "
        f"{reader.number('checkpoints.0.frameskip')} environment steps; factors "
        f"<b>{text(first['factors'])}</b>; tolerance "
        f"{reader.input_number('criterion.tolerance', '{:g}')} "
        f"{text(reader.inputs['criterion']['unit'])}; sobriety by {text(first['search'] or 'none')}"
        f"{' in checked bfloat16' if reader.inputs['settings']['fast'] else ''}.</p>"
    )
    if len(scales) > 1:
        lead += (
            "<p><b>These checkpoints are on different scales and cannot be ranked against each "
            f"other:</b> {'; '.join(text(s) for s in sorted(scales))}.</p>"
        )
    return lead


def _table(
    reader: DiagnosisReader, found: Sequence[Mapping[str, Any]], order: Sequence[int]
) -> str:
    head = (
        '<th>checkpoint</th><th class="r">score</th><th class="r">veracity</th>'
        '<th class="r">influence</th><th class="r">sobriety</th><th>limited by</th>'
        '<th class="r">capacity, nats</th><th class="r">nats / eff. dimension</th>'
        '<th class="r">samples / dimension</th><th class="r">gaps</th>'
        '<th class="r">near-ties</th><th>width</th>'
    )
    rows = []
    for i in order:
        c = found[i]
        product = reader.statistic("score-product", "{:.4f}", id=f"vis.{i}", position=i)
        cells = [
            f'<td class="mono" style="white-space:nowrap">{reader.text(c["cell_id"])}</td>',
            f'<td class="r">{product}</td>',
        ]
        for name, _ in FACTORS:
            shown = (
                reader.statistic(
                    "score-factor", "{:.3f}", id=f"{name}.{i}", position=i, factor=name
                )
                if name[0].upper() in c["factors"]
                else '<span class="quiet">left out</span>'
            )
            cells.append(f'<td class="r">{shown}</td>')
        limited = c["binding"] or "abstained"
        if c["saturated"]:
            limited += f" (saturated: {', '.join(c['saturated'])})"
        cells.append(f"<td>{reader.text(limited)}</td>")
        at = f"checkpoints.{i}"
        for path, digits in (
            ("m_emp", "{:.1f}"),
            ("nats_per_effective_dimension", "{:.2f}"),
            ("samples_per_dimension", "{:.1f}"),
        ):
            cells.append(f'<td class="r">{reader.number(f"{at}.{path}", digits)}</td>')
        gaps = reader.statistic("length", id=f"gaps.{i}", path=f"result.{at}.gaps")
        ties = reader.statistic("score-near-ties", id=f"ties.{i}", position=i)
        # In f-strings: adding the marked element to a plain string would escape the string.
        cells += [f'<td class="r">{gaps}</td>', f'<td class="r">{ties}</td>']
        cells.append(
            f'<td style="white-space:nowrap">{reader.number(f"{at}.width")} <span class="quiet">'
            f"{reader.text(c['width_status'])}</span></td>"
        )
        rows.append("<tr>" + "".join(cells) + "</tr>")
    return (
        '<div class="scroll"><table class="sortable"><caption>Recomputed from tolerance, capacity '
        f"and gaps; {reader.text(_name(found[0]))}</caption><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>"
    )


def _reasons(reader: DiagnosisReader, ranked: Sequence[Mapping[str, Any]]) -> str:
    items = [
        f'<li><span class="mono">{reader.text(c["cell_id"])}</span>, {reader.text(name)}: '
        f"{reader.text(why)}</li>"
        for c in ranked
        for name, why in c["reasons"].items()
    ]
    return (
        f'<div class="reading"><h4>Abstained</h4><ul>{"".join(items)}</ul></div>' if items else ""
    )


def _keys(reader: DiagnosisReader, shown: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(
        f'<span class="key {css}">{reader.text(c["cell_id"])}</span>'
        for css, c in zip(PALETTE, shown, strict=False)
    )


def _pictures(reader: DiagnosisReader, shown: Sequence[Mapping[str, Any]]) -> str:
    with_error = [c for c in shown if c["d_tol_half"] and c["nmse_curve"]]
    with_capacity = [c for c in shown if c["spectrum"]]
    error, capacity = error_against_tolerance(with_error), capacity_spectrum(with_capacity)
    figures = []
    if error:
        figures.append(
            f"<figure>{error}<figcaption>Open-loop error over recorded actions, as a share of half "
            "the latent size of the success tolerance. Solid rule: half a tolerance; the dashed "
            f"upright is the horizon where veracity is read. {_keys(reader, with_error)}"
            "</figcaption></figure>"
        )
    if capacity:
        figures.append(
            f"<figure>{capacity}<figcaption>What actions decide above the horizon's noise floor, "
            "direction by direction; the area is the capacity that influence caps. "
            f"{_keys(reader, with_capacity)}</figcaption></figure>"
        )
    return f'<div class="pair">{"".join(figures)}</div>' if figures else ""


def _gaps(reader: DiagnosisReader, shown: Sequence[Mapping[str, Any]]) -> str:
    figures = []
    for c in shown:
        chart = gap_histogram(c)
        if chart:
            figures.append(
                f'<figure>{chart}<figcaption><span class="mono">{reader.text(c["cell_id"])}</span>: '
                "the recorded plan's cost less that of the plan a small search found. Right of "
                "zero the model prefers the searched plan to what really reached the goal; the "
                'grey band is the search\'s resolution. <span class="key c3">recorded plan better'
                '</span> <span class="key c1">searched plan believed better</span></figcaption>'
                "</figure>"
            )
    if not figures:
        return ""
    pairs = [figures[i : i + 2] for i in range(0, len(figures), 2)]
    return "<h3>Recorded plans against searched ones</h3>" + "".join(
        f'<div class="pair">{"".join(p)}</div>' for p in pairs
    )


def _baselines(
    reader: DiagnosisReader, found: Sequence[Mapping[str, Any]], order: Sequence[int]
) -> str:
    if not any(c["baselines"] for c in found):
        return ""
    head = "<th>checkpoint</th>" + "".join(
        f'<th class="r">{reader.text(title)}</th>' for _, title, _ in BASELINES
    )
    rows = []
    for i in order:
        cells = "".join(
            f'<td class="r">{reader.number(f"checkpoints.{i}.baselines.{key}", digits)}</td>'
            for key, _, digits in BASELINES
        )
        rows.append(
            f'<tr><td class="mono" style="white-space:nowrap">{reader.text(found[i]["cell_id"])}</td>{cells}</tr>'
        )
    return (
        "<h3>What the score must beat</h3>"
        '<div class="scroll"><table class="sortable"><caption>Cheaper numbers on the same latents; '
        'epoch and training loss cost nothing. <span class="mono">dreamcheck meta</span> asks '
        f"which of them ranks a pool.</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}"
        "</tbody></table></div>"
    )


def _reading() -> str:
    return (
        '<div class="reading"><h4>How to read it</h4><p>High factors together are evidence of a '
        "model that is fit to plan with. Raising a low factor was measured not to raise success, "
        "so nothing here is advice on training. A saturated factor separates nothing on this task, "
        "an abstention is a result, and scores of another probe, factor set or latent width rule "
        "are on another scale. The score says nothing of policies that do not plan, nor of success "
        "decided by a discrete event such as a grasp.</p></div>"
    )
