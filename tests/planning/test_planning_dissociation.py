"""Dissociation: monotone at the short horizon and not at the long one, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_planning_compare import arm, realised

from dreamcheck.errors import UsageError
from dreamcheck.planning.figures import dissociation_figure
from dreamcheck.planning.two_horizons import Checkpoint, dissociation


class Evaluated:
    def __init__(self, wins, label, final=60.0):
        self.planner = arm([1] * wins + [0] * (10 - wins), final=final)
        self.controls = {"random": arm([0] * 10, final=50.0)}
        self.label = label
        self.unit = "px"
        steps = int(label.rsplit(" ", 1)[1])
        rules = {"budget_steps": steps, "rng_mode": "per_episode", "success": "native"}
        self.realised = realised(protocol=rules)


def checkpoint(name, error, short, long, **attributes):
    return Checkpoint(
        name, error, Evaluated(short, "offset 25 / budget 50"),
        Evaluated(long, "offset 100 / budget 100"), attributes=attributes,
    )  # fmt: skip


def published():
    # Errors 0.829, 0.410, 0.116; the worst predictor plans best at the long horizon.
    return [
        checkpoint("early", 0.829, 6, 8, context=1),
        checkpoint("authors", 0.410, 8, 1, context=3),
        checkpoint("corrected", 0.116, 9, 2, context=3),
    ]


def test_the_published_pattern_is_a_dissociation():
    made = dissociation(published())
    assert made.short.monotone and not made.long.monotone and made.dissociated
    assert made.short.rank_correlation == pytest.approx(-1.0)
    assert made.long.best == "early" and made.long.best_by_error == "corrected"
    assert "picks corrected" in made.sentence and "early at offset 100" in made.sentence


def test_attributes_aligned_with_the_split_are_named_as_confounds():
    made = dissociation(published())
    assert made.confounds == ("context: early 1, authors 3, corrected 3",)
    assert "success at the long horizon" in made.split
    rows = published()
    # Overshoot decides where it differs: then authors alone is on one side, and no attribute fits.
    for row in rows:
        row.long.planner = replace(row.long.planner, overshoot=row.name == "authors")
    made = dissociation(rows)
    assert made.split == "overshoot at the long horizon" and made.confounds == ()


def test_monotone_at_both_horizons_is_none():
    made = dissociation([checkpoint("a", 0.9, 3, 2), checkpoint("b", 0.1, 8, 7)])
    assert not made.dissociated and "orders both horizons" in made.sentence
    assert made.short.rank_correlation is None


def test_the_gap_to_random_actions_stands_beside_each_rate():
    made = dissociation(published())
    # Ten episodes, two won (final 10), eight at 60: mean 50; random: all at 50.
    row = next(r for r in made.long.rows if r.name == "corrected")
    assert row.mean_final_distance == pytest.approx(50.0) and row.gap_to_random == pytest.approx(
        0.0
    )
    assert len(made.short.pairs) == 3


def test_every_pair_is_tested_and_adjusted_over_its_horizon():
    # early 6, authors 8, corrected 9 of ten nested wins: discordant 2, 3 and 1, all on one side:
    # p = 2 / 2^2, 2 / 2^3 and 1; Holm: 3 x 0.25, then 2 x 0.5 and 1 x 1, capped at 1.
    pairs = {(p["a"], p["b"]): p for p in dissociation(published()).short.pairs}
    assert pairs["early", "authors"]["p"] == 0.5 and pairs["early", "corrected"]["p"] == 0.25
    assert pairs["early", "corrected"]["p_holm"] == 0.75
    assert pairs["early", "authors"]["p_holm"] == pairs["authors", "corrected"]["p_holm"] == 1.0
    assert pairs["early", "corrected"]["a_only"] == 0 and pairs["early", "corrected"]["b_only"] == 3


def test_checkpoints_that_tie_for_the_most_goals_are_all_named():
    made = dissociation([checkpoint("a", 0.9, 3, 2), checkpoint("b", 0.1, 8, 2)])
    assert made.short.best == "b" and made.long.best == "a and b"


def test_the_budget_response_stands_in_the_analysis_with_its_verdict():
    rows = published()
    # All successes of arm() take 20 steps, within both budgets: growing it gains nothing.
    made = dissociation(rows)
    assert [b.gain for b in made.budget] == [0.0] * 3 and made.budget[0].p == 1.0
    # authors misses nine, all from distances of 50 to 59 at 60: farther.
    assert "going the wrong way" in made.budget[1].verdict and made.budget[1].farther == 1.0
    assert any("not established" in line for line in made.lines())


def test_stale_normalisation_in_some_checkpoints_only_is_refused():
    rows = published()
    for row, verdict in zip(rows, ("wrong", "fine", "fine"), strict=True):
        audit = {"verdict": verdict, "measured": {}, "threshold": None, "evidence": []}
        row.short.realised.norm_audit = audit
    assert rows[0].audit == "wrong"
    with pytest.raises(UsageError, match="repair"):
        dissociation(rows)


def test_errors_of_different_encodings_are_not_put_in_one_order():
    rows = published()
    rows[0] = replace(rows[0], encoding="repeat")
    with pytest.raises(UsageError, match="encodings"):
        dissociation(rows)
    with pytest.raises(UsageError, match="at least two"):
        dissociation(rows[:1])


def test_the_figure_names_both_protocols():
    svg = dissociation_figure(dissociation(published()))
    assert "offset 25 / budget 50" in svg and "offset 100 / budget 100" in svg
