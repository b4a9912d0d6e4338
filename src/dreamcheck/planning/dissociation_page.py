"""A dissociation analysis as a page of Markdown, every number from the analysis itself."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.two_horizons import Dissociation, Horizon


def dissociation_page(
    result: Dissociation, protocols: Sequence[Protocol], *, figure: str, command: str
) -> str:
    """The page: what was run, the sentence, both tables, pairs, budget response, confounds.

    Args:
        protocols: of the short and the long horizon, as run.
        figure: file name of the picture beside the page. command: what was typed.

    Source: spec/protocol.md section 9 (H1-H5).
    """
    settings = "; ".join(
        f"{p.name}: {_solver(p)}, {p.streams} planner stream(s), protocol `{p.digest[:12]}`"
        for p in protocols
    )
    lines = [
        "# Does one-step error order planning success?",
        "",
        f"Written by `{command}`; no number here was typed. {settings}. Starts that are solved "
        "before the first action are left out.",
        "",
        f"**{result.sentence}**",
        "",
        f"![One-step error against success at two horizons]({figure})",
    ]
    for horizon in (result.short, result.long):
        lines += ["", *_horizon(horizon, result.unit)]
    return "\n".join([*lines, *_budget(result), *_confounds(result)]) + "\n"


def _solver(protocol: Protocol) -> str:
    """The solver and every setting it runs with."""
    solver = protocol.solver.build()
    return f"{solver.name} ({', '.join(f'{k} {v}' for k, v in solver.settings.items())})"


def _budget(result: Dissociation) -> list[str]:
    """What the long horizon's budget brings beyond the short one's (H3)."""
    lines = ["", "## When only the budget grows", ""]
    if not result.budget:
        return [
            *lines,
            f"Not given: {result.budget_reason}" if result.budget_reason else "Not given.",
        ]
    one = result.budget[0]
    lines += [
        f"The goals of {one.goal}, from {one.budget} to {one.longer} steps. A large gain is running "
        "out of time; none, with misses that end farther away, is going the wrong way.",
        "",
        f"| checkpoint | success in {one.budget} steps | in {one.longer} steps | gain, 95 % | p "
        "| misses farther |",
        "|---|---|---|---|---|---|",
    ]
    for b in result.budget:
        farther = "" if b.farther is None else f"{b.farther:.0%}"
        lines.append(
            f"| {b.name} | {b.success:.0%} | {b.success_longer:.0%} | {b.gain:+.0%} "
            f"[{b.low:+.0%}, {b.high:+.0%}] | {b.p:.3g} | {farther} |"
        )
    return [*lines, "", *(f"- {b.verdict}." for b in result.budget)]


def _confounds(result: Dissociation) -> list[str]:
    """What could be the cause instead (H4)."""
    lines = ["", "## What differs along with it", ""]
    if not result.confounds:
        return [*lines, f"No recorded attribute is perfectly aligned with {result.split}."]
    return [
        *lines,
        f"Perfectly aligned with {result.split}, so that these checkpoints cannot tell it from the "
        "error:",
        "",
        *(f"- {c}" for c in result.confounds),
    ]


def _horizon(horizon: Horizon, unit: str) -> list[str]:
    correlation = (
        "not defined"
        if horizon.rank_correlation is None
        else f"{horizon.rank_correlation:.2f} over {horizon.num_checkpoints} checkpoints"
    )
    lines = [
        f"## {horizon.label}",
        "",
        f"Success strictly rises as the error falls: {'yes' if horizon.monotone else 'no'}. Rank "
        f"correlation of error and success: {correlation}. The error picks "
        f"{horizon.best_by_error}; most successful is {horizon.best}.",
        "",
        f"| checkpoint | one-step error / frozen world | success, 95 % | mean final distance, {unit} "
        f"| minus random, {unit} | overshoots | normalisation audit |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in horizon.rows:
        gap = "" if r.gap_to_random is None else f"{r.gap_to_random:+.1f}"
        lines.append(
            f"| {r.name} | {r.one_step_error:.3f} | {r.success:.0%} [{r.low:.0%}, {r.high:.0%}] | "
            f"{r.mean_final_distance:.1f} | {gap} | {_yes(r.overshoot)} | {r.audit} |"
        )
    lines += [
        "",
        "Every two of them on the same episodes; Holm's p is over the pairs of this horizon.",
        "",
        "| pair | difference, 95 % | won by one alone | p | Holm's p |",
        "|---|---|---|---|---|",
    ]
    for p in horizon.pairs:
        alone = "" if p["a_only"] is None else f"{p['a_only']} / {p['b_only']}"
        lines.append(
            f"| {p['a']} / {p['b']} | {p['difference']:+.0%} [{p['low']:+.0%}, {p['high']:+.0%}] | "
            f"{alone} | {p['p']:.3g} ({p['test']}) | {p['p_holm']:.3g} |"
        )
    return lines


def _yes(flag: bool | None) -> str:
    return "" if flag is None else "yes" if flag else "no"
