"""Screening: score, recovery by counts, threshold choice, transfer, shifts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamcheck.diagnostics.consistency import (
    Block,
    Level,
    ShiftPair,
    block_outcome,
    choose_thresholds,
    is_recovered,
    screen_shifts,
    screening_score,
    separation_cannot_change_sign,
    summarise,
    transfer_splits,
)
from dreamcheck.errors import Abstention, UsageError

rates = st.integers(0, 100).map(lambda k: k / 100)


def test_the_score_by_hand():
    # (0.3 - 0.5)/0.3 = -2/3 is below (0.9 - 0.95)/0.95 = -0.0526
    assert screening_score(0.5, 0.9, t_ir=0.3, t_sr=0.95) == pytest.approx(-2 / 3)
    # (0.3 - 0.1)/0.3 = 2/3 is above (1 - 0.95)/0.95 = 0.0526
    assert screening_score(0.1, 1.0, t_ir=0.3, t_sr=0.95) == pytest.approx(0.05 / 0.95)


@given(st.floats(0, 3), rates)
def test_the_score_is_not_negative_exactly_when_both_thresholds_pass(ir, sr):
    score = screening_score(ir, sr, t_ir=0.3, t_sr=0.95)
    assert (score >= 0) == (ir <= 0.3 and sr >= 0.95)


@given(st.floats(0, 3), rates, rates)
def test_below_half_the_sign_of_a_difference_depends_on_the_radius_alone(ir, sr, base_sr):
    assert separation_cannot_change_sign(t_ir=0.3) and not separation_cannot_change_sign(t_ir=0.5)
    base = screening_score(1.0, base_sr, t_ir=0.3, t_sr=0.95)
    assert base == pytest.approx(-7 / 3)
    difference = screening_score(ir, sr, t_ir=0.3, t_sr=0.95) - base
    if abs(ir - 1) > 1e-9:
        assert (difference > 0) == (ir < 1)


def test_recovery_is_decided_by_counts_at_both_edges():
    # Gain of 100 to recover: 80 suffice. 15 of 300 are exactly 5 points.
    edge = dict(base_noisy=50, best_noisy=150, base_clean=240, episodes=300)
    assert is_recovered(130, 225, **edge)
    assert not is_recovered(129, 225, **edge)
    assert not is_recovered(130, 224, **edge)
    # In percentages the same edge is lost: 62 to 47 of 300 is more than 5 points in floats.
    assert 100 * 62 / 300 - 100 * 47 / 300 > 5
    assert is_recovered(130, 47, base_noisy=50, best_noisy=150, base_clean=62, episodes=300)


def level(sigma, ir, noisy, *, sr=100, clean=250):
    return Level(sigma, ir, sr, 100, clean, noisy)


def block(noisy, ir, *, task="T", run=1, sr=None):
    """Levels 0.00, 0.01, ... with the given noisy successes and raw radii."""
    sr = sr or [100] * len(noisy)
    return Block(
        task,
        run,
        tuple(
            level(round(i * 0.01, 2), r, n, sr=s)
            for i, (n, r, s) in enumerate(zip(noisy, ir, sr, strict=True))
        ),
    )


def test_a_rate_at_the_threshold_is_accepted_as_a_fraction():
    b = block([10, 100, 100], [2.0, 0.2, 0.2], sr=[0, 95, 94])
    assert b.accepted(t_ir=0.3, t_sr=0.95) == (False, True, False)
    odd = Block("T", 1, (Level(0, 1.0, 0, 61, 1, 1), Level(0.01, 0.1, 58, 61, 1, 2)))
    assert odd.accepted(t_ir=0.3, t_sr=0.95) == (False, True)  # 58/61 = 0.9508


def test_a_block_outcome_by_hand():
    # best gain 100: recovered from 90 up; relative radius 1, .5, .1, .4, .1
    b = block([10, 20, 90, 110, 95], [2.0, 1.0, 0.2, 0.8, 0.2])
    o = block_outcome(b, t_ir=0.3, t_sr=0.95)
    assert b.recovered == (False, False, True, True, True)
    assert (o.first_recovered, o.first_accepted) == (2, 2)
    assert (o.tp, o.tn, o.fp, o.fn, o.early) == (2, 2, 0, 1, 0)
    assert o.step_gap == 0
    assert o.balanced_accuracy == Fraction(5, 6)
    assert (o.precision, o.recall) == (1, Fraction(2, 3))
    loose = block_outcome(b, t_ir=0.5, t_sr=0.95)
    assert (loose.first_accepted, loose.early, loose.fp, loose.step_gap) == (1, 1, 1, 1)
    none = block_outcome(b, t_ir=0.01, t_sr=0.95)
    assert none.precision is None and none.step_gap == 100 and none.recall == 0


def test_without_a_gain_there_is_nothing_to_recover():
    with pytest.raises(Abstention, match="no gain to recover"):
        block_outcome(block([50, 40], [2.0, 1.0]), t_ir=0.3, t_sr=0.95)


def test_a_reference_without_a_radius_is_refused():
    with pytest.raises(Abstention, match="relative radii are undefined"):
        block([1, 2], [0.0, 1.0])


def test_the_choice_prefers_the_smaller_gap_then_fewer_early_acceptances():
    # Recovered from level 2. t_IR 0.2 accepts from 2 (gap 0), 0.3 from 1 (gap 1, one early).
    b = block([10, 20, 100, 100], [1.0, 0.25, 0.15, 0.15])
    chosen = choose_thresholds([b])
    assert (chosen.t_ir, chosen.mean_gap, chosen.early) == (0.15, 0.0, 0)
    assert chosen.t_sr == 0.95  # the larger of equal ones


def tied_blocks():
    """Two blocks whose gaps tie exactly between t_IR 0.2 and 0.3, once late and once early."""
    # A: recovered from 2. t 0.2 accepts from 3 (0.03 - 0.02), t 0.3 from 2.
    late = block([10, 10, 100, 100, 100], [1.0, 0.9, 0.25, 0.15, 0.15], task="A")
    # B: recovered from 2. t 0.2 accepts from 2, t 0.3 from 1 (0.02 - 0.01).
    early = block([10, 10, 100, 100, 100], [1.0, 0.25, 0.18, 0.18, 0.18], task="B")
    return [late, early]


def test_an_exact_tie_goes_to_fewer_early_acceptances_and_the_float_rule_decides_otherwise():
    blocks = tied_blocks()
    grid = {"t_ir_grid": (0.2, 0.3), "t_sr_grid": (0.95,)}
    exact = choose_thresholds(blocks, **grid)
    assert (exact.t_ir, exact.mean_gap, exact.early) == (0.2, 0.5, 0)
    released = choose_thresholds(blocks, arithmetic="released_float", **grid)
    # 0.03 - 0.02 = 0.009999999999999998 < 0.02 - 0.01 = 0.01: here it happens to agree,
    assert released.t_ir == 0.2
    # and with the roles of the levels exchanged it does not.
    late = block([10, 100, 100, 100], [1.0, 0.25, 0.15, 0.15], task="A")  # 0.02 - 0.01
    early = block([10, 10, 10, 100, 100], [1.0, 0.9, 0.25, 0.18, 0.18], task="B")  # 0.03 - 0.02
    assert choose_thresholds([late, early], **grid).t_ir == 0.2
    assert choose_thresholds([late, early], arithmetic="released_float", **grid).t_ir == 0.3


def test_transfer_splits_cover_every_proper_subset_and_test_on_the_rest():
    blocks = [
        block([10, 20, 100, 100], [1.0, 0.25, 0.15, 0.15], task=t, run=r)
        for t in "ABC"
        for r in (1, 2)
    ]
    splits = transfer_splits(blocks)
    assert [s.source for s in splits] == [
        ("A",), ("B",), ("C",), ("A", "B"), ("A", "C"), ("B", "C"),
    ]  # fmt: skip
    for s in splits:
        assert set(s.source) | set(s.test) == set("ABC") and not set(s.source) & set(s.test)
        assert s.metrics.balanced_accuracy == 1.0 and s.metrics.mean_step_gap == 0.0
        assert {o.task for o in s.outcomes} == set(s.test)
    assert summarise(splits, num_source_tasks=2).balanced_accuracy_range == (1.0, 1.0)
    with pytest.raises(UsageError, match="only"):
        transfer_splits(blocks[:2])


def test_runs_are_averaged_inside_a_task_before_tasks():
    # Task A: one run; task B: three runs. Chosen on C; A is perfect, B misses everywhere.
    good = block([10, 20, 100, 100], [1.0, 0.4, 0.15, 0.15], task="A")
    bad = [block([10, 20, 100, 100], [1.0, 0.9, 0.9, 0.9], task="B", run=r) for r in (1, 2, 3)]
    source = block([10, 20, 100, 100], [1.0, 0.4, 0.15, 0.15], task="C")
    split = next(s for s in transfer_splits([good, *bad, source]) if s.source == ("C",))
    assert split.metrics.mean_step_gap == 50.0  # not 75
    assert split.metrics.balanced_accuracy == 0.75  # (1 + 0.5) / 2
    assert split.metrics.precision == 1.0 and split.metrics.undefined_precision == 3


def pair(base, augmented, *, ir=0.2, clean=250):
    return ShiftPair("T", 1, "blur", base, augmented, 250, clean, ir, 10, 95, 100)


def test_a_shift_pair_is_met_at_exactly_five_points_and_not_with_a_clean_loss():
    assert pair(100, 115).met and not pair(100, 114).met
    assert pair(100, 200, clean=235).met and not pair(100, 200, clean=234).met


def test_the_shift_screen_counts_predictions_and_ranks_counts():
    pairs = [pair(100, 200), pair(100, 190), pair(100, 100, ir=1.5), pair(100, 110, ir=0.9)]
    delta = [p.delta_score(t_ir=0.3, t_sr=0.95) for p in pairs]
    assert [d > 0 for d in delta] == [True, True, False, True]
    screen = screen_shifts(pairs, delta)
    assert (screen.tp, screen.tn, screen.fp, screen.fn) == (2, 1, 1, 0)
    assert screen.balanced_accuracy == 0.75 and screen.precision == pytest.approx(2 / 3)
    assert screen.sign_agreement == 3


def test_equal_gains_tie_as_counts_and_not_as_released_percentages():
    pairs = [pair(133, 290), pair(59, 216), pair(100, 110)]
    delta = [2.2, 2.4, 1.0]
    exact = screen_shifts(pairs, delta).spearman.value
    released = screen_shifts(pairs, delta, arithmetic="released_float").spearman.value
    # Ranks of the gains 2.5 2.5 1 against 2 3 1: sqrt(3)/2; untied 3 2 1: 0.5
    assert exact == pytest.approx(3**0.5 / 2) and released == pytest.approx(0.5)
