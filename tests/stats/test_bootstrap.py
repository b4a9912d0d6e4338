"""Bootstrap intervals: keyed streams, known limits, clusters, refusals."""

import numpy as np
import pytest
from scipy import stats as sps

from dreamcheck.stats import (
    NotTestable,
    StatisticsInputError,
    bootstrap_interval,
    cluster_bootstrap,
    percentile_bounds,
    resampled,
)
from dreamcheck.stats.bootstrap import contracted_tail, expanded_tail

SAMPLE = np.random.default_rng(4).gamma(2, 1, 16)


def test_the_stream_belongs_to_the_identity_and_not_to_the_order_of_calls():
    a = resampled(SAMPLE, root_seed=3, identity="a")
    resampled(SAMPLE, root_seed=3, identity="b")
    assert (resampled(SAMPLE, root_seed=3, identity="a") == a).all()
    assert (resampled(SAMPLE, root_seed=3, identity="b") != a).any()
    assert (resampled(SAMPLE, root_seed=4, identity="a") != a).any()


def test_replicates_have_the_mean_and_deviation_that_theory_gives():
    r = resampled(SAMPLE, root_seed=0, identity="x", resamples=40_000)
    sd = SAMPLE.std() / np.sqrt(16)  # population deviation over sqrt n
    assert abs(r.mean() - SAMPLE.mean()) < 4 * sd / 200
    assert r.std() == pytest.approx(sd, rel=0.02)


def test_the_plain_interval_agrees_with_scipy():
    ours = bootstrap_interval(SAMPLE, root_seed=0, identity="x", expanded=False, resamples=40_000)
    oracle = sps.bootstrap(
        (SAMPLE,), np.mean, method="percentile", n_resamples=40_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((oracle.low, oracle.high), rel=0.01)


def test_the_expanded_interval_of_a_mean_is_about_students():
    sample = np.random.default_rng(8).normal(size=16)
    ours = bootstrap_interval(sample, root_seed=0, identity="x", resamples=100_000)
    half = sps.t.ppf(0.975, 15) * sample.std(ddof=1) / 4
    assert ours.high - ours.low == pytest.approx(2 * half, rel=0.05)


def test_one_sided_bounds_spend_everything_on_one_side():
    r = resampled(SAMPLE, root_seed=0, identity="x")
    low, open_high = percentile_bounds(r, side="lower")
    open_low, high = percentile_bounds(r, side="upper")
    both = percentile_bounds(r, confidence=0.9)
    assert (low, high) == pytest.approx(both, rel=1e-12)
    assert open_high == np.inf and open_low == -np.inf


def test_widening_and_its_inverse_cancel():
    for n in (4, 16, 100):
        assert contracted_tail(expanded_tail(0.01, n), n) == pytest.approx(0.01, rel=1e-9)
    assert expanded_tail(0.05, 10**6) == pytest.approx(0.05, rel=1e-4)


def test_equal_values_are_marked_degenerate_instead_of_looking_certain():
    result = bootstrap_interval([2.0] * 8, root_seed=0, identity="x")
    assert result.degenerate and result.low == result.high == 2.0
    assert not bootstrap_interval(SAMPLE, root_seed=0, identity="x").degenerate


def test_one_unit_has_no_interval():
    with pytest.raises(NotTestable, match="at least 2"):
        bootstrap_interval([1.0], root_seed=0, identity="x")


def test_clusters_bring_all_their_rows_as_often_as_drawn():
    clusters = np.array(["b", "a", "b", "c", "a"])
    seen = []

    def statistic(counts):
        seen.append(counts)
        return float(counts.sum())

    cluster_bootstrap(clusters, statistic, rng=np.random.default_rng(0), resamples=600)
    for counts in seen:
        assert counts[0] == counts[2] and counts[1] == counts[4]  # rows of b, rows of a
        assert counts[0] + counts[1] + counts[3] == 3  # three clusters drawn


def test_the_cluster_interval_is_wider_than_the_row_interval_when_rows_repeat():
    rng = np.random.default_rng(6)
    values = np.repeat(rng.normal(size=12), 10)
    clusters = np.repeat(np.arange(12), 10)
    ours = cluster_bootstrap(
        clusters,
        lambda counts: float(np.average(values, weights=counts)),
        rng=np.random.default_rng(0),
    )
    rows = bootstrap_interval(values, root_seed=0, identity="x")
    assert ours.num_units == 12
    assert ours.high - ours.low > 2 * (rows.high - rows.low)


def test_undefined_resamples_are_dropped_and_too_few_leave_no_interval():
    clusters = np.arange(6)

    def only_with_first(counts):
        return float(counts.sum()) if counts[0] else float("nan")

    ours = cluster_bootstrap(clusters, only_with_first, rng=np.random.default_rng(0))
    assert 500 <= ours.num_resamples < 2000
    with pytest.raises(NotTestable, match="500 are needed"):
        cluster_bootstrap(clusters, lambda counts: float("nan"), rng=np.random.default_rng(0))


def test_an_unknown_side_is_refused():
    with pytest.raises(StatisticsInputError, match="side"):
        percentile_bounds(np.arange(10.0), side="left")
