"""Corrections for many tests, against closed testing and SciPy."""

import itertools

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import StatisticsInputError, benjamini_hochberg, holm, holm_levels


def closed_bonferroni(p):
    """Adjusted p of each hypothesis: the largest Bonferroni p over every subset that holds it."""
    m = len(p)
    out = np.zeros(m)
    for size in range(1, m + 1):
        for subset in itertools.combinations(range(m), size):
            value = min(1.0, size * min(p[i] for i in subset))
            for i in subset:
                out[i] = max(out[i], value)
    return out


def test_holm_is_the_closed_bonferroni_procedure():
    rng = np.random.default_rng(0)
    for m in (1, 2, 5, 7):
        p = np.round(rng.random(m) ** 3, 2)
        assert holm(p) == pytest.approx(closed_bonferroni(p), abs=1e-12)


def test_holm_by_hand():
    # sorted 0.01 0.02 0.04: times 3, 2, 1 = 0.03, 0.04, 0.04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])


def test_benjamini_hochberg_agrees_with_scipy():
    p = np.random.default_rng(1).random(20) ** 2
    assert benjamini_hochberg(p) == pytest.approx(sps.false_discovery_control(p), abs=1e-12)


def test_holm_levels_reject_exactly_what_adjusted_p_values_reject():
    rng = np.random.default_rng(2)
    for _ in range(300):
        p = rng.random(6) ** 4
        assert ((p <= holm_levels(p)) == (holm(p) <= 0.05)).all()


def test_after_the_first_failure_the_level_stays():
    # 0.001 <= 0.05/4; 0.02 > 0.05/3, so 0.021 <= 0.05/2 does not count any more.
    assert holm_levels([0.02, 0.001, 0.021, 0.5]) == pytest.approx(
        [0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3]
    )


def test_a_missing_p_value_is_refused():
    with pytest.raises(StatisticsInputError, match="NaN"):
        holm([0.1, float("nan")])
    with pytest.raises(StatisticsInputError, match="non-empty"):
        benjamini_hochberg([])
