"""Scores of repeated searches, worked by hand."""

import math

import numpy as np
import pytest

from dreamcheck.stats import (
    PAPER_THRESHOLDS,
    StatisticsInputError,
    first_hit_step,
    hit_indicators,
    mean_sem,
    threshold_averaged_hits,
    win_loss_tie,
)


def test_there_are_sixteen_thresholds_and_they_are_integers():
    assert len(PAPER_THRESHOLDS) == 16 and PAPER_THRESHOLDS[0] == 150
    assert all(isinstance(t, int) for t in PAPER_THRESHOLDS)


def test_a_score_exactly_at_the_threshold_is_a_hit():
    assert hit_indicators([1.6, np.nextafter(1.6, 0)], 160).tolist() == [True, False]
    stepped = np.arange(1.50, 1.66, 0.01)  # what stepping a float by 0.01 gives
    assert (stepped != [t / 100 for t in range(150, 150 + len(stepped))]).any()


def test_thresholds_are_averaged_inside_a_run():
    # 1.53 reaches 150..153: 4 of 16; 1.49 none; 1.65 all.
    assert threshold_averaged_hits([1.53, 1.49, 1.65]).tolist() == [0.25, 0.0, 1.0]


def test_the_first_hit_is_counted_from_one_and_capped_beyond_the_budget():
    assert first_hit_step([1.0, np.nan, 1.7, 1.9], 160, budget=8) == 3
    assert first_hit_step([1.0, 1.2], 160, budget=8) == 9
    assert first_hit_step([2.0], 160, budget=1) == 1
    with pytest.raises(StatisticsInputError, match="budget of 2"):
        first_hit_step([1, 2, 3], 160, budget=2)


def test_a_float_threshold_is_refused():
    with pytest.raises(StatisticsInputError, match="integer over 100"):
        hit_indicators([1.6], 1.6)


def test_win_loss_tie_is_paired():
    result = win_loss_tie([1, 2, 3, 4], [0, 2, 5, 1])
    assert (result.wins, result.losses, result.ties) == (2, 1, 1)
    with pytest.raises(StatisticsInputError, match="cannot be paired"):
        win_loss_tie([1], [1, 2])


def test_the_standard_error_uses_n_minus_one():
    result = mean_sem([1.0, 2.0, 3.0, 6.0])
    # deviations -2 -1 0 3: 14 / 3 = 4.6667, / 4 = 1.16667, root 1.08012
    assert result.mean == 3.0 and math.isclose(result.sem.value, 1.08012, abs_tol=1e-5)


def test_one_run_has_no_standard_error_rather_than_zero():
    result = mean_sem([1.5])
    assert math.isnan(result.sem.value) and "one run" in result.sem.reason
    assert "undefined" in str(result)
