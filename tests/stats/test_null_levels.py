"""Type-I error under the null, simulated or enumerated: at or under the level, never above it."""

import math

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import (
    binomial_test,
    bootstrap_interval,
    holm,
    mcnemar_exact,
    permutation_test,
    sign_flip_test,
    sign_test,
)
from dreamcheck.streams import stream


def slack(trials, level=0.05):
    """Three binomial deviations: what chance alone may add to a simulated rate."""
    return 3 * math.sqrt(level * (1 - level) / trials)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_the_exact_binomial_test_never_exceeds_its_level(alternative):
    for n in (10, 50):
        k = np.arange(n + 1)
        for p0 in (0.05, 0.3, 0.87):
            p = np.array([binomial_test(int(i), n, p0, alternative=alternative) for i in k])
            assert sps.binom.pmf(k, n, p0)[p <= 0.05].sum() <= 0.05


def test_exact_mcnemar_never_exceeds_its_level_whatever_the_number_of_discordant_pairs():
    for m in range(1, 40):
        p = np.array([mcnemar_exact(a, m - a) for a in range(m + 1)])
        for level in (0.01, 0.05, 0.2):
            assert sps.binom.pmf(np.arange(m + 1), m, 0.5)[p <= level].sum() <= level + 1e-12


def test_permutation_and_sign_tests_hold_their_level_on_skewed_data():
    trials = 1500
    rng = stream(0, "null-levels")
    rejected = dict.fromkeys(("permutation", "flip", "sign"), 0)
    for _ in range(trials):
        x, y = rng.lognormal(0, 1, 5), rng.lognormal(0, 1, 6)
        rejected["permutation"] += permutation_test(x, y, alternative="greater").p <= 0.05
        difference = rng.lognormal(0, 1, 8) - rng.lognormal(0, 1, 8)
        rejected["flip"] += sign_flip_test(difference).p <= 0.05
        rejected["sign"] += sign_test(difference, alternative="greater").p <= 0.05
    for name, count in rejected.items():
        assert count / trials <= 0.05 + slack(trials), name
    assert rejected["permutation"] / trials > 0.02  # a test that never rejects holds every level


def test_holm_keeps_the_chance_of_any_false_rejection():
    rng = stream(1, "null-levels")
    trials = 2000
    wrong = sum((holm(rng.random(10)) <= 0.05).any() for _ in range(trials))
    assert 0.02 < wrong / trials <= 0.05 + slack(trials)


def test_the_expanded_bootstrap_bound_of_a_normal_mean_misses_at_most_at_its_level():
    trials = 500
    misses = dict.fromkeys(("lower", "upper"), 0)
    for trial in range(trials):
        sample = stream(trial, "coverage").normal(size=16)
        for side in misses:
            bounds = bootstrap_interval(
                sample, root_seed=trial, identity=side, side=side, resamples=800
            )
            misses[side] += bounds.low > 0 if side == "lower" else bounds.high < 0
    for side, count in misses.items():
        assert count / trials <= 0.05 + slack(trials), side
