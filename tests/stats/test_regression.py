"""Ridge by hand, by an independent solver, and its held-out errors."""

from __future__ import annotations

import numpy as np
import pytest

from dreamcheck.stats import NotTestable, fit_ridge, held_out_errors
from dreamcheck.stats.estimate import StatisticsInputError
from dreamcheck.streams import stream


def test_one_feature_by_hand():
    # x = -1, 1 is standardised already (divisor n); y = 4, 6 has mean 5 and deviations -1, 1.
    # weight = sum x y' / (sum x^2 + penalty) = 2 / (2 + 1) = 2/3; at x = 3: 5 + 2.
    fitted = fit_ridge([[-1.0], [1.0]], [4.0, 6.0], penalty=1.0)
    assert fitted.weights[0] == pytest.approx(2 / 3) and fitted.intercept == 5.0
    assert fitted.predict([[3.0]])[0] == pytest.approx(7.0)
    # The unit of a feature changes no prediction: the penalty is on standardised features.
    scaled = fit_ridge([[-1000.0], [1000.0]], [4.0, 6.0], penalty=1.0)
    assert scaled.predict([[3000.0]])[0] == pytest.approx(7.0)


@pytest.mark.parametrize(("n", "p"), [(30, 4), (5, 9)])
def test_agrees_with_augmented_least_squares_with_an_unpenalised_constant(n, p):
    rng = stream(1, "ridge-test", f"{n}/{p}")
    x, y = rng.normal(3, 2, (n, p)), rng.normal(1, 1, n)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.vstack(
        [np.column_stack([z, np.ones(n)]), np.column_stack([np.sqrt(2.5) * np.eye(p), np.zeros(p)])]
    )
    expected = np.linalg.lstsq(design, np.concatenate([y, np.zeros(p)]), rcond=None)[0]
    fitted = fit_ridge(x, y, penalty=2.5)
    assert np.allclose(fitted.weights, expected[:-1]) and np.isclose(fitted.intercept, expected[-1])


def test_a_constant_feature_changes_nothing():
    rng = stream(1, "ridge-test", "constant")
    x, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    with_constant = np.column_stack([x, np.full(20, 7.0)])
    assert np.allclose(
        fit_ridge(x, y).predict(x), fit_ridge(with_constant, y).predict(with_constant)
    )


def test_a_group_is_predicted_by_the_others_only():
    # Two groups of one row each: the fit on a single row is its own value, whatever the feature.
    errors = held_out_errors([[0.0], [5.0]], [1.0, 4.0], ["a", "b"])
    assert errors.tolist() == [3.0, 3.0]
    x, y = np.arange(6.0)[:, None], np.array([0.0, 1, 2, 3, 4, 90])
    plain = held_out_errors(x, y, list("aabbcc"))
    moved = held_out_errors(x, np.array([0.0, 1, 2, 3, 4, 900]), list("aabbcc"))
    # An outlier in group c moves every error but that of c's other row, which never saw it.
    assert plain[4] == moved[4] and plain[0] != moved[0]


def test_what_cannot_be_regressed_is_refused():
    with pytest.raises(NotTestable, match="at least 2"):
        held_out_errors([[1.0], [2.0]], [1.0, 2.0], ["a", "a"])
    with pytest.raises(StatisticsInputError, match="not finite"):
        fit_ridge([[np.nan], [1.0]], [0.0, 1.0])
    with pytest.raises(StatisticsInputError, match="not above 0"):
        fit_ridge([[0.0], [1.0]], [0.0, 1.0], penalty=0.0)
