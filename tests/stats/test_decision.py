"""The confirmation rule: hand-made extremes, Holm, incomplete seeds, and what chance confirms."""

import math

import numpy as np
import pytest

from dreamcheck.stats import NotTestable, StatisticsInputError, cvar, decide, holm, resampled
from dreamcheck.streams import stream

SEEDS = 16


def library(rng, n=64, seeds=SEEDS, scale=1.0):
    return scale * rng.gamma(4.0, 0.25, (n, seeds))


def test_far_above_is_confirmed_far_below_refuted_and_alike_inconclusive():
    rng = stream(0, "test")
    reference, default = library(rng), library(rng, 1)[0]
    shortlist = {
        "bad": 20 + library(rng, 1)[0],
        "good": 0.05 * library(rng, 1)[0],
        "same": library(rng, 1)[0],
    }
    verdicts = {v.input_id: v for v in decide(shortlist, reference, default, root_seed=1)}
    assert [verdicts[k].verdict for k in ("bad", "good", "same")] == [
        "confirmed",
        "refuted",
        "inconclusive",
    ]
    bad = verdicts["bad"]
    risks = cvar(reference, 0.4)
    assert bad.threshold == pytest.approx(np.quantile(risks, 0.95))
    assert bad.median == pytest.approx(np.median(risks))
    assert bad.default_risk == pytest.approx(cvar(default, 0.4))
    assert bad.risk == pytest.approx(cvar(shortlist["bad"], 0.4))
    assert bad.low > bad.threshold and verdicts["good"].high < bad.median


def test_a_verdict_always_follows_from_the_bounds_it_prints():
    rng = stream(2, "test")
    for trial in range(20):
        shortlist = {str(i): library(rng, 1, scale=1 + 0.15 * i)[0] for i in range(8)}
        for v in decide(
            shortlist, library(rng), library(rng, 1)[0], root_seed=trial, resamples=5000
        ):
            expected = (
                "confirmed"
                if v.low > v.threshold
                else "refuted"
                if v.high < v.median
                else "inconclusive"
            )
            assert v.verdict == expected
            assert v.low <= v.risk <= v.high


def test_holm_makes_the_same_input_harder_to_confirm_in_a_longer_shortlist():
    rng = stream(3, "test")
    reference, default = library(rng), library(rng, 1)[0]
    strong = 1.9 + library(rng, 1)[0]
    alone = decide({"x": strong}, reference, default, root_seed=0)[0]
    others = {str(i): library(rng, 1)[0] for i in range(19)}
    among = decide({"x": strong, **others}, reference, default, root_seed=0)[0]
    assert alone.confirm_level == 0.05 and among.confirm_level == 0.05 / 20
    assert among.low < alone.low  # same stream, stricter level


def test_the_levels_are_holms():
    assert holm([0.01, 0.04]).tolist() == [0.02, 0.04]
    rng = stream(4, "test")
    shortlist = {"a": 9 + library(rng, 1)[0], "b": 9 + library(rng, 1)[0], "c": library(rng, 1)[0]}
    verdicts = decide(shortlist, library(rng), library(rng, 1)[0], root_seed=0)
    assert sorted(v.confirm_level for v in verdicts) == pytest.approx(
        [0.05 / 3, 0.05 / 3, 0.05]  # a and b tie at the smallest p there is
    )


def test_the_answer_does_not_depend_on_the_order_of_the_shortlist():
    rng = stream(5, "test")
    reference, default = library(rng), library(rng, 1)[0]
    shortlist = {str(i): library(rng, 1, scale=1 + i)[0] for i in range(4)}
    forward = {v.input_id: v for v in decide(shortlist, reference, default, root_seed=0)}
    backward = decide(dict(reversed(shortlist.items())), reference, default, root_seed=0)
    assert {v.input_id: v for v in backward} == forward


def test_too_few_complete_seeds_give_no_verdict_and_still_count_in_holm():
    rng = stream(6, "test")
    broken = 50 + library(rng, 1)[0]
    broken[3] = np.nan
    fine = 50 + library(rng, 1)[0]
    verdicts = decide(
        {"broken": broken, "fine": fine}, library(rng), library(rng, 1)[0], root_seed=0
    )
    assert verdicts[0].verdict == "incomplete" and math.isnan(verdicts[0].risk)
    assert (verdicts[0].num_seeds, verdicts[0].seeds_missing) == (15, 1)
    assert verdicts[1].verdict == "confirmed" and verdicts[1].confirm_level == 0.025


def test_references_and_default_are_compared_on_the_seeds_that_are_complete():
    rng = stream(7, "test")
    losses = library(rng, 1, seeds=20)[0]
    losses[:4] = np.nan
    reference = library(rng, seeds=20)
    reference[:, :4] = 1e6  # seeds the input never completed must not move the threshold
    default = library(rng, 1, seeds=20)[0]
    v = decide({"x": losses}, reference, default, root_seed=0)[0]
    assert v.num_seeds == 16 and v.threshold < 10
    assert v.default_risk == pytest.approx(cvar(default[4:], 0.4))


def test_seeds_that_all_agree_are_flagged():
    rng = stream(8, "test")
    v = decide({"x": np.full(16, 9.0)}, library(rng), library(rng, 1)[0], root_seed=0)[0]
    assert not v.seeds_informative and v.low == v.risk == v.high == 9.0


def test_looking_twice_costs_half_the_level():
    rng = stream(9, "test")
    one, two = (
        decide({"x": library(rng, 1)[0]}, library(rng), library(rng, 1)[0], root_seed=0, looks=k)[0]
        for k in (1, 2)
    )
    assert (one.confirm_level, two.confirm_level) == (0.05, 0.025)


def test_the_mean_can_stand_in_for_the_tail():
    rng = stream(10, "test")
    losses = library(rng, 1)[0]
    v = decide({"x": losses}, library(rng), library(rng, 1)[0], root_seed=0, alpha=None)[0]
    assert v.risk == pytest.approx(losses.mean())


def test_bad_tables_are_refused_by_name():
    rng = stream(11, "test")
    reference, default = library(rng), library(rng, 1)[0]
    with pytest.raises(StatisticsInputError, match="empty"):
        decide({}, reference, default, root_seed=0)
    with pytest.raises(StatisticsInputError, match="same 16 seeds"):
        decide({"x": default}, reference[:, :8], default, root_seed=0)
    with pytest.raises(NotTestable, match="no random reference input"):
        decide({"x": default}, [], default, root_seed=0)
    with pytest.raises(StatisticsInputError, match="'y'"):
        decide({"x": default, "y": default[:5]}, reference, default, root_seed=0)
    with pytest.raises(NotTestable, match="20 are needed"):
        decide({"x": default}, reference[:19], default, root_seed=0)
    with pytest.raises(StatisticsInputError, match="resamples >="):
        decide(
            {str(i): default for i in range(30)}, reference, default, root_seed=0, resamples=1000
        )


def test_random_inputs_are_confirmed_no_more_often_than_the_level():
    """Under the null the shortlist is random too: confirmations per shortlist stay under 5%."""
    trials = confirmed = 0
    for trial in range(150):
        rng = stream(trial, "null")
        # Heavy-tailed losses with input effects that the reference shares.
        table = rng.lognormal(0, 0.3, (69, 1)) * rng.lognormal(0, 0.8, (69, SEEDS))
        shortlist = {str(i): table[i] for i in range(4)}
        verdicts = decide(shortlist, table[5:], table[4], root_seed=trial, resamples=1500)
        confirmed += any(v.verdict == "confirmed" for v in verdicts)
        trials += 1
    assert confirmed / trials <= 0.05


def test_an_input_at_the_threshold_is_confirmed_at_most_at_the_level_and_hardly_refuted():
    """The hardest null for a confirmation, and a real failure for a refutation."""
    rng = stream(0, "threshold-null")
    truth = float(cvar(rng.gamma(4.0, 0.25, 1_000_000), 0.4))
    # References whose 95th percentile is the truth and whose median is a quarter below it.
    levels = np.where(np.arange(64) < 40, 0.75 * truth, truth)
    reference = np.repeat(levels[:, None], SEEDS, axis=1)
    trials = 500
    verdicts = []
    for trial in range(trials):
        losses = stream(trial, "threshold-null-losses").gamma(4.0, 0.25, SEEDS)
        verdicts.append(
            decide({"x": losses}, reference, losses, root_seed=trial, resamples=1000)[0].verdict
        )
    assert verdicts.count("confirmed") / trials <= 0.05
    assert verdicts.count("refuted") / trials <= 0.05


def test_a_real_failure_is_found_almost_always():
    found = 0
    for trial in range(60):
        rng = stream(trial, "power")
        table = rng.gamma(4.0, 0.25, (65, SEEDS))
        bad = 3.0 * rng.gamma(4.0, 0.25, SEEDS)
        v = decide({"x": bad}, table[1:], table[0], root_seed=trial, resamples=2000)[0]
        found += v.verdict == "confirmed"
    assert found >= 54


def test_the_bounds_are_read_at_the_percentile_widened_for_the_number_of_seeds():
    rng = stream(12, "test")
    losses = library(rng, 1)[0]
    v = decide({"x": losses}, library(rng), library(rng, 1)[0], root_seed=5, alpha=None)[0]
    replicates = resampled(losses, root_seed=5, identity="decision:x", resamples=20_000)
    # Phi(-sqrt(16/15) * 1.7531) = Phi(-1.8105) = 0.0351 instead of 0.05
    assert v.low == pytest.approx(np.quantile(replicates, 0.0351), rel=1e-3)
    assert v.high == pytest.approx(np.quantile(replicates, 1 - 0.0351), rel=1e-3)
    assert v.low < np.quantile(replicates, 0.05)
