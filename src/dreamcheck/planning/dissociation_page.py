"""A dissociation analysis as a page of Markdown, every number from the analysis itself."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.two_horizons import Dissociation, Horizon


def dissociation_page(
    result: Dissociation, protocols: Sequence[Protocol], *, figure: str, command: str
) -> str:
    """The page: what was run, the sentence, both tables, the pairs, the confounds.

    Args:
        protocols: of the short and the long horizon, as run.
        figure: file name of the picture beside the page. command: what was typed.

    Source: spec/protocol.md section 9 (H1-H5).
    """
    settings = "; ".join(
        f"{p.name}: {getattr(p.solver, 'num_samples', '?')} samples x {getattr(p.solver, 'iterations', 1)} iterations, "
        f"{p.streams} planner stream(s), protocol `{p.digest[:12]}`"
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
    if result.confounds:
        lines += ["", "## What differs along with it", "", *(f"- {c}" for c in result.confounds)]
    return "\n".join(lines) + "\n"


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
        f"| minus random, {unit} | overshoots |",
        "|---|---|---|---|---|---|",
    ]
    for r in horizon.rows:
        gap = "" if r.gap_to_random is None else f"{r.gap_to_random:+.1f}"
        lines.append(
            f"| {r.name} | {r.one_step_error:.3f} | {r.success:.0%} [{r.low:.0%}, {r.high:.0%}] | "
            f"{r.mean_final_distance:.1f} | {gap} | {'yes' if r.overshoot else 'no'} |"
        )
    return [*lines, "", *(f"- {p['verdict']}." for p in horizon.pairs)]
