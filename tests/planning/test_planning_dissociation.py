"""Dissociation: monotone at the short horizon and not at the long one, and only then."""

from __future__ import annotations

import pytest
from test_planning_compare import arm

from dreamcheck.errors import UsageError
from dreamcheck.planning.figures import dissociation_figure
from dreamcheck.planning.two_horizons import Checkpoint, dissociation


class Evaluated:
    def __init__(self, wins, label, final=60.0):
        self.planner = arm([1] * wins + [0] * (10 - wins), final=final)
        self.controls = {"random": arm([0] * 10, final=50.0)}
        self.label = label
        self.unit = "px"


def checkpoint(name, error, short, long, **attributes):
    return Checkpoint(
        name, error, Evaluated(short, "offset 25 / budget 50"),
        Evaluated(long, "offset 100 / budget 50"), attributes=attributes,
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
    assert dissociation(published()).confounds == ("context",)


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


def test_errors_of_different_encodings_are_not_put_in_one_order():
    rows = published()
    from dataclasses import replace

    rows[0] = replace(rows[0], encoding="repeat")
    with pytest.raises(UsageError, match="encodings"):
        dissociation(rows)
    with pytest.raises(UsageError, match="at least two"):
        dissociation(rows[:1])


def test_the_figure_names_both_protocols():
    svg = dissociation_figure(dissociation(published()))
    assert "offset 25 / budget 50" in svg and "offset 100 / budget 50" in svg
