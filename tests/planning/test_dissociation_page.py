"""The dissociation page says what the analysis holds, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace

from dreamcheck.planning.dissociation_page import dissociation_page
from dreamcheck.planning.protocol import load_protocol
from dreamcheck.planning.two_horizons import Dissociation, Horizon


def horizon(label: str, success: tuple[float, float]) -> Horizon:
    rows = tuple(
        SimpleNamespace(
            name=name, one_step_error=error, success=s, low=s - 0.1, high=s + 0.1,
            mean_final_distance=40.0, gap_to_random=-3.25, overshoot=name == "late",
        )
        for name, error, s in zip(("early", "late"), (0.8, 0.2), success, strict=True)
    )  # fmt: skip
    return Horizon(
        label=label, rows=rows, monotone=success[1] > success[0], rank_correlation=None,
        num_checkpoints=2, best_by_error="late", best="late", pairs=({"verdict": "not established"},),
    )  # fmt: skip


def test_every_row_pair_confound_and_the_sentence_are_on_the_page():
    result = Dissociation(
        short=horizon("short", (0.2, 0.5)), long=horizon("long", (0.5, 0.2)), dissociated=True,
        confounds=("history: early 1, late 3",), sentence="What it licenses.", unit="px",
    )  # fmt: skip
    protocol = load_protocol("fresh-25-50")
    page = dissociation_page(
        result, [protocol], figure="d.svg", command="dreamcheck dissociation x"
    )
    assert "**What it licenses.**" in page and "](d.svg)" in page
    assert page.count("| early | 0.800 | 20% [10%, 30%] | 40.0 | -3.2 | no |") == 1
    assert page.count("| late | 0.200 | 50% [40%, 60%] | 40.0 | -3.2 | yes |") == 1
    assert "rises as the error falls: yes" in page and "rises as the error falls: no" in page
    assert page.count("- not established.") == 2 and "- history: early 1, late 3" in page
    assert protocol.digest[:12] in page and "correlation of error and success: not defined" in page
