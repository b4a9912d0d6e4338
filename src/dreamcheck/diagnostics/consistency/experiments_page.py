"""The experiments beside the paper's numbers, and their page in Markdown; no number is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AGREES, DIFFERS, OPEN, NOT_ASKED = "agrees", "does not agree", "not established", "not asked"

# What the paper reports (spec/consistency.md sections 12 to 15): full models, four tasks, three runs.
PAPER_DRIFT_BASE, PAPER_DRIFT_CONTROL = "55.9 ± 4.7 %", "51.3 ± 3.5 %"
PAPER_CELLS = "12 of 12 cells"
PAPER_REGRET = "15.2 ± 2.0 %"
PAPER_RATIO = {"encoder": "1.41 to 0.10", "rollout": "1.86 to 0.19"}
PAPER_DISJOINT = {"encoder": "0 to 95 %", "rollout": "0 to 84 %"}
PAPER_SENSITIVITY = "0.04 to 0.06 on TwoRoom"
PAPER_COLLAPSE = {
    "spread": "0.006, against 17.2 to 18.7",
    "clean": "33 %, against 96 to 99 %",
    "ir_raw": "0.048, against 0.138 to 1.026",
    "sr": "0.066, against 0.967 to 0.984",
}
COLLAPSED_SHARE = 0.1
"""A spread below this share of every other weight's counts as collapsed."""


@dataclass(frozen=True)
class Agreement:
    """One finding of the paper beside what was found here; every answer is computed."""

    statement: str
    paper: str
    here: str
    verdict: str


def agreements(result: Mapping[str, Any]) -> list[Agreement]:
    """The paper's findings asked of the experiments that were run."""
    out: list[Agreement] = []
    if result["drift"] is not None:
        out += _drift(result["drift"]["cells"])
    if result["planner"] is not None:
        out.append(_planner(result["planner"]))
    if result["geometry"] is not None:
        out += _geometry(result)
    if result["sensitivity"] is not None:
        out.append(_sensitivity(result))
    if result["collapse"] is not None:
        out += _collapse(result["collapse"]["rows"])
    return out


def percent(found: Mapping[str, Any]) -> str:
    """A reduction with its interval, in per cent."""
    value = f"{100 * found['value']:z.0f} %"
    if found["low"] is None:
        return value
    return f"{value} [{100 * found['low']:z.0f}, {100 * found['high']:z.0f}]"


def _above_zero(found: Sequence[Mapping[str, Any]]) -> str:
    if any(r["high"] is not None and r["high"] < 0 for r in found):
        return DIFFERS
    return AGREES if all(r["low"] is not None and r["low"] > 0 for r in found) else OPEN


def _drift(cells: Sequence[Mapping[str, Any]]) -> list[Agreement]:
    def told(what: str) -> str:
        return "; ".join(f"{c['name']} {percent(c[what])}" for c in cells)

    best = sum(c["acpc_mae"] < min(c["base_mae"], c["best_control_mae"]) for c in cells)
    return [
        Agreement(
            "ACPC under the recorded actions cuts the held-out error of the drift, beside severity, "
            "encoder shift and one-step ACPC",
            PAPER_DRIFT_BASE,
            told("vs_base"),
            _above_zero([c["vs_base"] for c in cells]),
        ),
        Agreement(
            "and against ACPC under the best of three kinds of destroyed actions",
            PAPER_DRIFT_CONTROL,
            told("vs_control"),
            _above_zero([c["vs_control"] for c in cells]),
        ),
        Agreement(
            "It is the best of the three regressions in every cell",
            PAPER_CELLS,
            f"{best} of {len(cells)}",
            AGREES if best == len(cells) else DIFFERS,
        ),
    ]


def _planner(found: Mapping[str, Any]) -> Agreement:
    r = found["regression"]
    return Agreement(
        "Plan-length ACPC of the first pool cuts the held-out error of log1p regret",
        PAPER_REGRET,
        f"{percent(r['reduction'])} over {r['num_groups']} held-out {_plural(r['held_out'])}",
        _above_zero([r["reduction"]]),
    )


def _plural(held_out: str) -> str:
    return "tasks" if held_out == "task" else "histories"


def _pairs(result: Mapping[str, Any]) -> tuple[str, list[str]]:
    augmented = [c["name"] for c in result["checkpoints"] if c["role"] == "augmented"]
    return result["reference"], augmented


def _geometry(result: Mapping[str, Any]) -> list[Agreement]:
    base, augmented = _pairs(result)
    rows = {(r["name"], r["space"]): r for r in result["geometry"]["rows"]}
    out = []
    for space in ("encoder", "rollout"):
        where = "after the encoder" if space == "encoder" else "after the last imagined step"
        ref, others = rows[base, space], [rows[n, space] for n in augmented if (n, space) in rows]
        for statement, key, form, paper, better in (
            (f"Noise in training shrinks views {where}: median radius over nearest neighbour",
             "median_ratio", "{:.2f}", PAPER_RATIO, lambda a, b: a < b),
            (f"and makes scenes disjoint {where}",
             "disjoint_fraction", "{:.0%}", PAPER_DISJOINT, lambda a, b: a > b),
        ):  # fmt: skip
            here = f"{form.format(ref[key])} without"
            here += "".join(f", {form.format(o[key])} {o['name']}" for o in others)
            verdict = NOT_ASKED
            if others:
                verdict = AGREES if all(better(o[key], ref[key]) for o in others) else DIFFERS
            out.append(Agreement(statement, paper[space], here, verdict))
    return out


def _sensitivity(result: Mapping[str, Any]) -> Agreement:
    _, augmented = _pairs(result)
    ratios = [
        r["ratio"]
        for r in result["sensitivity"]["rows"]
        if r["name"] in augmented and r["ratio"] is not None
    ]
    here, verdict = "no augmented checkpoint", NOT_ASKED
    if ratios:
        here = f"{min(ratios):.2f} to {max(ratios):.2f}"
        verdict = AGREES if max(ratios) < 1 else DIFFERS
    return Agreement(
        "The augmented radius is the smaller one at every horizon and quantile: their ratio",
        PAPER_SENSITIVITY,
        here,
        verdict,
    )


def _collapse(rows: Sequence[Mapping[str, Any]]) -> list[Agreement]:
    none = [r for r in rows if r["weight"] == 0]
    others = [r for r in rows if r["weight"]]
    asked = len(none) == 1 and bool(others)
    out = []
    for statement, key, form, holds in (
        ("Without the regulariser clean latents collapse: median distance between scenes",
         "spread", "{:.3g}", lambda a, b: a < COLLAPSED_SHARE * b),
        ("Clean success falls with it", "clean", "{:.0%}", None),
        ("Yet its raw radius is the smallest of all: a radius alone would choose it",
         "ir_raw", "{:.3f}", lambda a, b: a < b),
        ("Its separation rate gives it away", "sr", "{:.3f}", lambda a, b: a < b),
    ):  # fmt: skip
        here, verdict = "no checkpoint without the regulariser", NOT_ASKED
        if asked:
            here, verdict = _beside(none[0], others, key, form, holds)
        out.append(Agreement(statement, PAPER_COLLAPSE[key], here, verdict))
    return out


def _beside(
    none: Mapping[str, Any], others: Sequence[Mapping[str, Any]], key: str, form: str, holds: Any
) -> tuple[str, str]:
    if none[key] is None or any(o[key] is None for o in others):
        return "not measured", NOT_ASKED
    if key == "clean":
        rates = [o["clean"] for o in others]
        here = f"{rate(none['clean'])}, against " + ", ".join(rate(r) for r in rates)
        mine = none["clean"]
        if any(mine["value"] >= r["value"] for r in rates):
            return here, DIFFERS
        return here, AGREES if all(mine["high"] < r["low"] for r in rates) else OPEN
    values = [o[key] for o in others]
    low, high = form.format(min(values)), form.format(max(values))
    here = f"{form.format(none[key])}, against {low if low == high else f'{low} to {high}'}"
    return here, AGREES if all(holds(none[key], v) for v in values) else DIFFERS


def rate(found: Mapping[str, Any]) -> str:
    """A success rate with its interval."""
    return f"{found['value']:.0%} [{found['low']:.0%}, {found['high']:.0%}]"


def page(result: Mapping[str, Any], *, command: str, figure: str) -> str:
    """The experiments' result page, Markdown, from what is recorded.

    Args:
        command: what writes this page. figure: file name of the figure beside it.
    """
    found = agreements(result)
    counts = {v: sum(a.verdict == v for a in found) for v in (AGREES, DIFFERS, OPEN, NOT_ASKED)}
    b = result["budget"]
    roles = "; ".join(_told(c) for c in result["checkpoints"])
    lines = [
        "# Consistency experiments on small TwoRoom models",
        "",
        f"Written by `{command}` from its record; no number here was typed.",
        "",
        "**Reduced against the paper**: small models, one task and one run, where the paper has four "
        f"tasks and three runs of full models. Checkpoints: {roles}. With one task the planner "
        "experiment leaves out one history at a time instead of one task. Intervals are 95 %, from "
        "resampling whole held-out groups; the regressions are not fitted anew in them. A verdict is "
        "about the direction of a finding, not its size: read both columns.",
        "",
        f"![The experiments in one figure]({figure})",
        "",
        f"## Beside the paper: {counts[AGREES]} agree, {counts[DIFFERS]} do not, {counts[OPEN]} not "
        f"established, {counts[NOT_ASKED]} not asked",
        "",
        "| the paper finds | paper | here | |",
        "|---|---|---|---|",
        *(f"| {a.statement} | {a.paper} | {a.here} | {_bold(a.verdict)} |" for a in found),
    ]
    if result["drift"] is not None:
        lines += _drift_table(result["drift"], b)
    if result["planner"] is not None:
        lines += _planner_table(result["planner"], b)
    if result["geometry"] is not None:
        lines += _geometry_table(result["geometry"], b)
    if result["collapse"] is not None:
        lines += _collapse_table(result["collapse"], result)
    if result["sensitivity"] is not None:
        lines += _sensitivity_table(result["sensitivity"])
    if result["skipped"]:
        lines += ["", "## Left out", "", *(f"- {k}: {v}." for k, v in result["skipped"].items())]
    return "\n".join(lines) + "\n"


def _told(c: Mapping[str, Any]) -> str:
    said = [c["role"]]
    if c["sigma_max"]:
        said.append(f"noise up to {c['sigma_max']:g}")
    if c["weight"] is not None:
        said.append(f"regulariser {c['weight']:g}")
    return f"{c['name']} ({', '.join(said)})"


def _bold(verdict: str) -> str:
    return f"**{verdict}**" if verdict == DIFFERS else verdict


def _severities(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


def _drift_table(found: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    lines = [
        "",
        "## Error drift",
        "",
        f"{found['windows']} windows of distinct episodes, {b['perturbation']} of "
        f"{_severities(b['severities'])}, {b['drift_draws']} draws. Mean absolute error of the "
        "change in prediction error, every window held out once; ridge, penalty 1.",
        "",
        "| checkpoint | mean drift | Base | + zeroed | + swapped | + shuffled | + ACPC | less than "
        "Base | less than best control | windows won against it | against it and Base |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in found["cells"]:
        controls = " | ".join(
            f"{c['control_mae'][how]:.3f}{'*' if how == c['best_control'] else ''}"
            for how in ("zeroed", "swapped", "shuffled")
        )
        lines.append(
            f"| {c['name']} | {c['mean_drift']:.3f} | {c['base_mae']:.3f} | {controls} | "
            f"{c['acpc_mae']:.3f} | {percent(c['vs_base'])} | {percent(c['vs_control'])} | "
            f"{c['folds_over_control']} of {c['folds']} | {c['folds_over_both']} of {c['folds']} |"
        )
    return [*lines, "", "\\* the best control, chosen by its held-out error: to its own favour."]


def _planner_table(found: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    solver = b["solver"]
    lines = [
        "",
        "## Planner",
        "",
        f"{found['histories']} histories of distinct episodes a checkpoint; paired CEM of "
        f"{solver['num_samples']} samples, {solver['num_elites']} elites, {solver['iterations']} "
        f"iterations, {b['plan_steps']} steps. Severity 0 gave the same plan on all "
        f"{found['identity_histories']} histories tried.",
        "",
        "| features | rows | without | with plan-length feature | reduction | groups improved |",
        "|---|---|---|---|---|---|",
    ]
    for name, key in (
        ("as defined", "regression"),
        ("as the released code reads them", "released"),
    ):
        r = found[key]
        lines.append(
            f"| {name} | {r['num_rows']} | {r['baseline_mae']:.3f} | {r['expanded_mae']:.3f} | "
            f"{percent(r['reduction'])} | {r['groups_improved']} of {r['num_groups']} |"
        )
    lines += [
        "",
        "The released code's one-step feature is the encoder shift of the oldest history frame, its "
        "plan-length feature the final displacement.",
        "",
        "| checkpoint | severity | median regret | mean regret | plans that cost more |",
        "|---|---|---|---|---|",
        *(
            f"| {r['name']} | {r['severity']:g} | {r['median']:.3g} | {r['mean']:.3g} | "
            f"{r['positive']} of {r['num_histories']} |"
            for r in found["regret"]
        ),
        "",
        "Regret is a cost of the model's (squared distance summed over the latent), not a return; "
        "scales of two checkpoints differ.",
    ]
    return lines


def _geometry_table(found: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    first = found["rows"][0]
    return [
        "",
        "## Local geometry",
        "",
        f"{first['num_scenes']} scenes, {first['num_views']} views of each ({b['perturbation']} of "
        f"{_severities(b['geometry_severities'])}). A picture, never a screen: a collapsed encoder "
        "makes every radius small.",
        "",
        "| checkpoint | space | median radius / nearest neighbour | radius below it | disjoint | "
        "coinciding |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r['name']} | {r['space']} | {r['median_ratio']:.2f} | {r['below_fraction']:.0%} | "
            f"{r['disjoint_fraction']:.0%} | {r['num_coinciding']} |"
            for r in found["rows"]
        ),
    ]


def _collapse_table(found: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    protocol = result["protocol"]
    under = "Clean success was not evaluated."
    if protocol is not None:
        solver = protocol["solver"]
        under = (
            f"Clean success under {protocol['name']}, {protocol['num_eval']} episodes, CEM of "
            f"{solver['num_samples']} samples x {solver['iterations']} iterations."
        )
    lines = [
        "",
        "## Collapse",
        "",
        f"{result['budget']['perturbation'].capitalize()} of {found['severity']:g}; everything but "
        f"the regulariser's weight is the same. {under}",
        "",
        "| checkpoint | weight | clean success | spread | raw radius | separation | median distance "
        "of different pairs |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in found["rows"]:
        weight = "–" if r["weight"] is None else f"{r['weight']:g}"
        clean = "–" if r["clean"] is None else rate(r["clean"])
        sr = "–" if r["sr"] is None else f"{r['sr']:.3f} ({r['sr_count']} of {r['sr_eligible']})"
        apart = "–" if r["median_different"] is None else f"{r['median_different']:.2f}"
        lines.append(
            f"| {r['name']} | {weight} | {clean} | {r['spread']:.3g} | {r['ir_raw']:.3f} | {sr} | "
            f"{apart} |"
        )
    return lines


def _sensitivity_table(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "",
        "## Sensitivity of the radius",
        "",
        f"Severity {found['severity']:g}; the ratio is to the reference's radius at the same "
        "horizon and quantile.",
        "",
        "| checkpoint | horizon | quantile | raw radius | ratio |",
        "|---|---|---|---|---|",
    ]
    for r in found["rows"]:
        ratio = "–" if r["ratio"] is None else f"{r['ratio']:.3f}"
        lines.append(
            f"| {r['name']} | {r['horizon']} | {r['quantile']:g} | {r['ir_raw']:.3f} | {ratio} |"
        )
    return lines
