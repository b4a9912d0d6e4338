"""Differences of rates: published intervals, worked examples, enumeration."""

import itertools
import math

import pytest

from dreamcheck.stats import (
    PairedCounts,
    StatisticsInputError,
    Stratum,
    difference_newcombe,
    difference_paired_newcombe,
    difference_paired_wald,
    difference_unpaired_wald,
    mantel_haenszel,
)


def test_the_published_wall_difference_and_both_its_intervals():
    unpaired = difference_unpaired_wald(87, 110, 44, 110, z=1.96)
    assert 100 * unpaired.difference == pytest.approx(39.0909, abs=1e-4)
    assert [100 * b for b in unpaired.interval] == pytest.approx([27.1926, 50.9893], abs=1e-4)
    paired = difference_paired_wald(PairedCounts(34, 53, 10, 13), z=1.96)
    assert [100 * b for b in paired.interval] == pytest.approx([26.9810, 51.2008], abs=1e-4)


def test_wald_collapses_where_newcombe_does_not():
    assert difference_unpaired_wald(0, 50, 0, 50).interval.width == 0.0
    assert difference_newcombe(0, 50, 0, 50).interval.width > 0.1
    assert difference_paired_newcombe(PairedCounts(0, 0, 0, 50)).interval.width > 0.1


def test_newcombes_unpaired_worked_example():
    # Newcombe (1998), table II, 56/70 against 48/80: 0.0524 to 0.3339.
    result = difference_newcombe(56, 70, 48, 80)
    assert result.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_newcombes_paired_worked_example():
    # Newcombe (1998, paired), table III (e, f, g, h) = (36, 12, 2, 0), method 10: 0.0569 to 0.3404.
    result = difference_paired_newcombe(PairedCounts(36, 12, 2, 0))
    assert result.difference == 0.2
    assert result.interval == pytest.approx((0.0569, 0.3404), abs=5e-5)


def test_swapping_arms_mirrors_every_interval():
    for a, b in (
        (difference_newcombe(9, 20, 3, 25), difference_newcombe(3, 25, 9, 20)),
        (difference_unpaired_wald(9, 20, 3, 25), difference_unpaired_wald(3, 25, 9, 20)),
        (
            difference_paired_newcombe(PairedCounts(5, 7, 2, 6)),
            difference_paired_newcombe(PairedCounts(5, 2, 7, 6)),
        ),
        (
            difference_paired_wald(PairedCounts(5, 7, 2, 6)),
            difference_paired_wald(PairedCounts(5, 2, 7, 6)),
        ),
    ):
        assert a.interval == pytest.approx((-b.interval.high, -b.interval.low), abs=1e-12)


def enumerated_strata(strata):
    """Law of arm a's total successes when labels are permuted inside each stratum."""
    law = {0: 1.0}
    for s in strata:
        outcomes = [1] * (s.successes_a + s.successes_b)
        outcomes += [0] * (s.trials_a + s.trials_b - len(outcomes))
        part = {}
        combos = list(itertools.combinations(range(len(outcomes)), s.trials_a))
        for chosen in combos:
            k = sum(outcomes[i] for i in chosen)
            part[k] = part.get(k, 0) + 1 / len(combos)
        law = {
            t: sum(law.get(t - k, 0) * w for k, w in part.items())
            for t in range(max(law) + max(part) + 1)
        }
    return law


def test_the_stratified_p_value_enumerates_permutations_inside_strata():
    strata = [Stratum(3, 4, 1, 4), Stratum(2, 3, 1, 5), Stratum(0, 2, 0, 3)]
    law = enumerated_strata(strata)
    seen = 5
    result = mantel_haenszel(strata, alternative="greater")
    assert math.isclose(result.p, sum(w for t, w in law.items() if t >= seen), rel_tol=1e-9)
    two = mantel_haenszel(strata)
    oracle = sum(w for w in law.values() if w <= law[seen] * (1 + 1e-7))
    assert math.isclose(two.p, oracle, rel_tol=1e-9)
    # (3*3/8 + 2*4/8) / (1*1/8 + 1*1/8) = (1.125 + 1) / 0.25
    assert two.odds_ratio.value == pytest.approx(8.5) and two.num_informative == 2


def test_one_stratum_has_the_plain_odds_ratio():
    result = mantel_haenszel([Stratum(8, 10, 5, 10)])
    assert result.odds_ratio.value == pytest.approx((8 / 2) / (5 / 5))


def test_strata_in_which_everyone_fails_say_nothing():
    result = mantel_haenszel([Stratum(0, 5, 0, 5)])
    assert not result.odds_ratio.defined and result.p == 1.0 and result.num_informative == 0


def test_more_successes_than_trials_are_refused():
    with pytest.raises(StatisticsInputError, match="6 successes of 5"):
        difference_unpaired_wald(6, 5, 1, 5)
