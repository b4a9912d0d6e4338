"""Type-I error under the null, simulated or enumerated: at or under the level, never above it."""

import math

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import (
    PairedCounts,
    Stratum,
    against_siblings,
    binomial_test,
    bootstrap_interval,
    difference_newcombe,
    difference_paired_newcombe,
    holm,
    mantel_haenszel,
    mcnemar_chi2,
    mcnemar_exact,
    paper_persistence,
    permutation_test,
    persistence_test,
    score_test,
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


def exact_size(n, p0, p_values, *, level=0.05):
    """Chance, under Binomial(n, p0), of the outcomes whose p-value is within the level."""
    return sps.binom.pmf(np.arange(n + 1), n, p0)[np.asarray(p_values) <= level].sum()


def test_the_score_test_exceeds_its_level_by_as_much_as_its_docstring_says():
    # Enumerated, not simulated. It is a normal approximation: that it exceeds is asserted too.
    sizes = [
        exact_size(n, p0, [score_test(k, n, p0).p for k in range(n + 1)])
        for n in (10, 20, 50)
        for p0 in np.linspace(0.1, 0.9, 33)
    ]
    assert 0.05 < max(sizes) <= 0.10


def test_chi_square_mcnemar_holds_its_level_with_continuity_and_not_without():
    def worst(continuity):
        return max(
            exact_size(m, 0.5, [mcnemar_chi2(a, m - a, continuity=continuity).p
                                for a in range(m + 1)])
            for m in range(1, 60)
        )  # fmt: skip

    assert worst(True) <= 0.05
    # At four discordant pairs all of one arm: chi-square 4, p = 0.0455, chance 2 / 2^4 = 0.125.
    assert worst(False) == pytest.approx(0.125)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_mantel_haenszel_never_exceeds_its_level_when_arms_share_each_stratums_rate(alternative):
    # Three distance bands with different rates and unequal arms; every table enumerated.
    sizes, rates = ((3, 4), (5, 3), (2, 4)), (0.2, 0.6, 0.9)
    tables, chances = [[]], [1.0]
    for (na, nb), rate in zip(sizes, rates, strict=True):
        cells = [
            (Stratum(a, na, b, nb), sps.binom.pmf(a, na, rate) * sps.binom.pmf(b, nb, rate))
            for a in range(na + 1)
            for b in range(nb + 1)
        ]
        tables, chances = (
            [[*t, s] for t in tables for s, _ in cells],
            [c * q for c in chances for _, q in cells],
        )
    assert sum(chances) == pytest.approx(1)
    # p depends on each stratum's margin and the total of arm a only: enough to compute it once.
    known: dict = {}
    size = 0.0
    for table, chance in zip(tables, chances, strict=True):
        margins = tuple(s.successes_a + s.successes_b for s in table)
        at = (margins, sum(s.successes_a for s in table))
        if at not in known:
            known[at] = mantel_haenszel(table, alternative=alternative).p
        size += chance * (known[at] <= 0.05)
    assert 0.005 < size <= 0.05


def test_newcombe_intervals_cover_as_often_as_their_docstrings_say():
    grid = np.linspace(0.05, 0.95, 10)
    covered = []
    for na, nb in ((10, 10), (20, 15), (50, 50)):
        bounds = np.array(
            [[difference_newcombe(i, na, j, nb).interval for j in range(nb + 1)]
             for i in range(na + 1)]
        )  # fmt: skip
        for pa in grid:
            for pb in grid:
                inside = (bounds[..., 0] <= pa - pb + 1e-12) & (pa - pb - 1e-12 <= bounds[..., 1])
                chance = np.outer(
                    sps.binom.pmf(np.arange(na + 1), na, pa),
                    sps.binom.pmf(np.arange(nb + 1), nb, pb),
                )
                covered.append((pa == pb, (inside * chance).sum()))
    equal = [c for same, c in covered if same]
    assert min(c for _, c in covered) >= 0.90 and np.mean([c for _, c in covered]) >= 0.945
    assert min(equal) >= 0.94  # as a test of no difference it rejects at most 6 %


def test_paired_newcombe_covers_no_difference_as_often_as_its_docstring_says():
    # n = 20 cases; arms succeed alike with different correlations: every table enumerated.
    n = 20
    log_factorial = np.cumsum(np.log(np.maximum(np.arange(n + 1), 1)))
    tables = [
        (e, f, g, n - e - f - g)
        for e in range(n + 1)
        for f in range(n + 1 - e)
        for g in range(n + 1 - e - f)
    ]
    inside = np.array(
        [
            low <= 0 <= high
            for low, high in (difference_paired_newcombe(PairedCounts(*t)).interval for t in tables)
        ]
    )
    counts = np.array(tables)
    for discordant in (0.05, 0.2, 0.4):
        for both in (0.1, 0.4):
            cells = np.array([both, discordant / 2, discordant / 2, 1 - both - discordant])
            log_chance = (
                log_factorial[n] - log_factorial[counts].sum(axis=1) + counts @ np.log(cells)
            )
            assert (np.exp(log_chance) * inside).sum() >= 0.94


def neighbourhoods(prefix, values):
    """Disjoint neighbourhoods of three inputs around each anchor, and their fresh values."""
    hoods = {f"{prefix}{i}": [f"{prefix}{i}.{k}" for k in range(3)] for i in range(len(values))}
    fresh = {name: float(v) for a, vs in zip(hoods, values, strict=True)
             for name, v in zip(hoods[a], vs, strict=True)}  # fmt: skip
    return hoods, fresh


def test_persistence_tests_hold_their_level_when_anchors_are_exchangeable():
    """Where found and control neighbourhoods have one law, both tests keep to 5 %; what breaks the
    paper's on smooth fields is that its anchors never are (test_persistence_statistics.py)."""
    trials = 600
    rejected = dict.fromkeys(("paper", "default"), 0)
    for trial in range(trials):
        rng = stream(trial, "persistence-null")
        # Skewed neighbourhood levels, and noise inside each neighbourhood.
        level = rng.lognormal(0, 0.7, (13, 1)) * rng.lognormal(0, 0.3, (13, 3))
        top, fresh = neighbourhoods("t", level[:6])
        control, more = neighbourhoods("c", level[6:])
        default = persistence_test(top, control, fresh | more, value="excess risk")
        rejected["default"] += default.test.p <= 0.05
        paper = paper_persistence(level[:6].mean(axis=1), level[6:].mean(axis=1))
        rejected["paper"] += paper.p <= 0.05
    for name, count in rejected.items():
        assert 0.02 < count / trials <= 0.05 + slack(trials), name


def test_a_checkpoint_like_its_siblings_is_called_different_at_most_at_the_level():
    """All checkpoints have one law: "this checkpoint" for any of the shortlist is a false alarm."""
    trials, seeds = 80, 16
    alarms = 0
    for trial in range(trials):
        rng = stream(trial, "siblings-null")
        # [checkpoints, inputs, seeds]: input difficulty is shared, the rest is each one's own.
        losses = (
            rng.lognormal(0, 0.4, (1, 45, 1))
            * rng.lognormal(0, 0.3, (3, 45, 1))
            * rng.lognormal(0, 0.5, (3, 45, seeds))
        )
        names = [str(i) for i in range(4)]
        judged = against_siblings(
            {n: losses[0, k] for k, n in enumerate(names)},
            {n: losses[1:, k] for k, n in enumerate(names)},
            losses[0, 5:],
            losses[1:, 5:],
            losses[0, 4],
            losses[1:, 4],
            relative=dict.fromkeys(names, 1.0),
            usual_relative=1.0,
            root_seed=trial,
            resamples=800,
        )
        alarms += any(a.label == "this checkpoint" for a in judged)
    assert alarms / trials <= 0.05 + slack(trials)
