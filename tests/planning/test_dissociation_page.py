"""The dissociation page says what the analysis holds, and nothing else."""

from __future__ import annotations

from test_planning_dissociation import published

from dreamcheck.planning.dissociation_page import dissociation_page
from dreamcheck.planning.protocol import load_protocol
from dreamcheck.planning.two_horizons import dissociation


def page_of(protocol):
    result = dissociation(published())
    text = dissociation_page(
        result, [protocol], figure="d.svg", command="dreamcheck dissociation x"
    )
    return result, text


def test_the_sentence_every_row_pair_and_confound_are_on_the_page():
    result, page = page_of(load_protocol("fresh-25-50"))
    assert f"**{result.sentence}**" in page and "](d.svg)" in page
    # 2 of 10 won: Wilson [0.0567, 0.5098]; two end at 10 and eight at 60, random all at 50.
    row = "| corrected | 0.116 | 20% [6%, 51%] | 50.0 | +0.0 |  | not asked |"
    assert page.count(row) == 1
    assert "rises as the error falls: yes" in page and "rises as the error falls: no" in page
    assert "correlation of error and success: -1.00 over 3 checkpoints" in page
    # Nested wins of 6 and 9 of ten: three cases on one side, p = 2 / 8, times three pairs.
    assert "| early / corrected | -30% [-58%, -2%] | 0 / 3 | 0.25 (exact McNemar) | 0.75 |" in page
    assert "- context: early 1, authors 3, corrected 3" in page


def test_the_budget_response_is_a_table_with_its_verdicts():
    result, page = page_of(load_protocol("fresh-25-50"))
    assert "The goals of offset 100, from 50 to 100 steps." in page
    # No case differs, so the interval is Newcombe's: Wilson of 1/10 is [0.0179, 0.4042], phi with its
    # continuity correction (1 x 9 - 5) / 9, so sqrt(0.0821^2 + 0.3042^2 - 2 phi 0.0821 x 0.3042) =
    # 0.278; a longer budget loses nothing, so it begins at 0.
    assert "| authors | 10% | 10% | +0% [+0%, +28%] | 1 | 100% |" in page
    assert all(f"- {b.verdict}." in page for b in result.budget)


def test_the_solver_is_told_with_its_own_settings_whatever_it_is():
    base = load_protocol("fresh-25-50")
    _, page = page_of(base.replace(solver={"name": "gradient", "num_starts": 7}))
    assert "gradient (num_starts 7" in page and base.digest[:12] not in page
    assert "num_samples 300" in page_of(base)[1] and base.digest[:12] in page_of(base)[1]
