"""Meta-evaluation: hand-worked statistics, independent oracles, laws, and the released pools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.isotonic import IsotonicRegression

from dreamcheck.diagnostics.viscore.meta import (
    Pool,
    calibration_error,
    calibration_statistic,
    cluster_bootstrap,
    constant_reference,
    factor_ablation,
    fit_isotonic,
    fixed_epoch,
    frozen_error,
    meta_evaluate,
    one_per_run,
    partial_given_epoch,
    pooled_statistic,
    resolvability,
    spearman,
    split_runs,
    transfer,
    within_task,
)
from dreamcheck.diagnostics.viscore.meta.released import Released
from dreamcheck.errors import Abstention, UsageError

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "viscore"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the released tables (../shared/data/viscore) are not here"
)
TASKS = ("pusht", "reacher", "tworoom")


def pool_of(metric, labels, *, tasks=None, runs=None, epochs=None, **more):
    n = len(labels)
    return Pool(
        name="made",
        runs=np.asarray(runs if runs is not None else [f"r{i}" for i in range(n)]),
        tasks=np.asarray(tasks if tasks is not None else ["pusht"] * n),
        epochs=np.asarray(epochs if epochs is not None else np.zeros(n), dtype=float),
        labels=np.asarray(labels, dtype=float),
        metrics={
            "vis": np.asarray(metric, dtype=float),
            **{k: np.asarray(v, dtype=float) for k, v in more.items()},
        },
    )


# Ranking


def test_spearman_averages_tied_ranks():
    # Ranks of the metric 1, 2.5, 2.5, 4 and of the label 1, 2, 3, 4: covariance 4.5, variances
    # 4.5 and 5, so rho = 4.5 / √22.5 = 0.948683.
    got = spearman(np.array([1.0, 2, 2, 3]), np.array([10.0, 20, 30, 40]))
    assert got == pytest.approx(4.5 / np.sqrt(22.5), abs=1e-12)


def test_spearman_agrees_with_scipy_on_ties_and_missing_rows():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 40).astype(float), rng.integers(0, 5, 40).astype(float)
    x[[3, 17]] = np.nan
    kept = np.isfinite(x)
    assert spearman(x, y) == pytest.approx(spearmanr(x[kept], y[kept]).statistic, abs=1e-12)


def test_a_constant_metric_is_undefined_and_not_zero():
    assert np.isnan(spearman(np.ones(9) + 1e-12 * np.arange(9), np.arange(9.0)))
    assert np.isnan(spearman(np.arange(3.0), np.arange(3.0)))
    assert np.isnan(spearman(np.arange(9.0), np.ones(9)))


def test_resolvability_is_the_spread_over_a_labels_standard_error():
    # Labels 40 and 60: mean 50, so one label of 50 episodes has se 100 √(.25/50) = 7.0711;
    # their std (n − 1) is 14.1421: resolvability 2.
    assert resolvability(np.array([40.0, 60.0])) == pytest.approx(2.0)
    assert resolvability(np.array([100.0, 100.0])) == 0.0
    assert np.isnan(resolvability(np.array([50.0])))


def test_what_only_follows_the_epoch_has_no_partial_correlation():
    rng = np.random.default_rng(1)
    epochs = np.tile(np.arange(40.0), 3)
    labels = epochs + rng.standard_normal(120) * 4
    follower = epochs + rng.standard_normal(120) * 4
    knower = labels + rng.standard_normal(120) * 1
    pool = pool_of(follower, labels, epochs=epochs, knower=knower)
    assert within_task(pool, "vis", "pusht") > 0.8
    assert abs(partial_given_epoch(pool, "vis", "pusht")) < 0.2
    assert partial_given_epoch(pool, "knower", "pusht") > 0.6
    assert np.isnan(partial_given_epoch(pool, "epoch", "pusht"))


def test_thinned_views_count_runs_and_not_checkpoints():
    runs = np.repeat([f"r{i}" for i in range(6)], 5)
    epochs = np.tile(np.arange(5.0), 6)
    quality = np.repeat(np.arange(6.0), 5)
    # Across runs the metric is the label; inside a run it runs against it.
    pool = pool_of(10 * quality - epochs, 10 * quality + epochs, runs=runs, epochs=epochs)
    single = one_per_run(pool, "vis", "pusht")
    assert single.rho == pytest.approx(1.0) and single.num_rows == 6
    at_epoch = fixed_epoch(pool, "vis", "pusht")
    assert at_epoch.rho == pytest.approx(1.0) and at_epoch.num_ways == 5
    assert np.isnan(fixed_epoch(pool, "epoch", "pusht").rho)
    assert np.isnan(one_per_run(pool.where(quality < 3), "vis", "pusht").rho)


# Calibration


def test_an_isotonic_fit_pools_violators_and_merges_ties_first():
    # Values 1 (10), 2 (30 and 50: mean 40, weight 2), 3 (10): 40, 40 | 10 violate and pool to
    # (2·40 + 10) / 3 = 30.
    fitted = fit_isotonic(np.array([1.0, 2, 2, 3]), np.array([10.0, 30, 50, 10]))
    np.testing.assert_allclose(fitted.outcomes, [10, 30, 30])
    # Halfway between knots, and clipped outside.
    np.testing.assert_allclose(fitted([1.5, 0.0, 99.0]), [20, 10, 30])


def test_isotonic_maps_agree_with_scikit_learn():
    rng = np.random.default_rng(2)
    x = np.round(rng.random(80), 1)
    y = 50 * x + rng.standard_normal(80) * 20
    ours = fit_isotonic(x, y)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    at = np.linspace(-0.5, 1.5, 101)
    np.testing.assert_allclose(ours(at), theirs.predict(at), atol=1e-10)


def test_a_map_is_fitted_on_the_other_tasks_only():
    tasks = np.repeat(TASKS, 5)
    metric = np.tile(np.arange(5.0), 3)
    labels = np.where(tasks == "reacher", 20 * metric, 10 * metric)
    pool = pool_of(metric, labels, tasks=tasks)
    # Reacher is predicted by 10 x, an error of 10 x: mean 20. PushT and Two-Room are predicted
    # by the mean of 10 x and 20 x, an error of 5 x: mean 10.
    assert calibration_error(pool, "vis") == pytest.approx((20 + 10 + 10) / 3)


def test_the_constant_reference_is_the_other_tasks_median():
    tasks = np.repeat(TASKS, 4)
    labels = np.repeat([10.0, 20.0, 60.0], 4)
    # PushT: median of eight labels 20 and 60 is 40, error 30; Reacher: 35, 15; Two-Room: 15, 45.
    assert constant_reference(pool_of(labels, labels, tasks=tasks)) == pytest.approx(30.0)
    # Three rows of PushT are too few to be judged, and seven rows too few to fit the others on.
    few = pool_of(labels, labels, tasks=tasks).where(np.arange(12) > 0)
    assert np.isnan(constant_reference(few))


def test_a_frozen_map_is_not_refitted():
    fit = pool_of(np.arange(10.0), 10 * np.arange(10.0))
    pool = pool_of([1.0, 2.0, np.nan], [30.0, 20.0, 77.0])
    got = frozen_error(fit, pool, "vis")
    # Predictions 10 and 20: errors 20 and 0. The reference is the fit's median label 45.
    assert (got.error, got.reference, got.num_used) == (10.0, pytest.approx(20.0), 2)
    with pytest.raises(Abstention, match="no row of the fit"):
        frozen_error(pool_of([np.nan], [1.0]), pool, "vis")


# Resampling runs


def test_whole_runs_are_resampled():
    rng = np.random.default_rng(3)
    labels = rng.random(6) * 100
    metric = labels + rng.standard_normal(6) * 20
    once = pool_of(metric, labels)
    # Ten identical checkpoints per run carry no more information than one.
    copied = once.where(np.repeat(np.arange(6), 10))
    a = cluster_bootstrap(
        once, "vis", pooled_statistic, rng=np.random.default_rng(0), tasks=("pusht",)
    )
    b = cluster_bootstrap(
        copied, "vis", pooled_statistic, rng=np.random.default_rng(0), tasks=("pusht",)
    )
    # The same runs are drawn, so every resample has the same correlation.
    assert (b.low, b.high) == pytest.approx((a.low, a.high), abs=1e-12)


def test_an_interval_with_too_few_finite_resamples_is_undefined():
    pool = pool_of(
        np.arange(12.0),
        np.arange(12.0),
        tasks=np.repeat(TASKS, 4),
        runs=["a"] * 4 + ["b"] * 4 + ["c"] * 4,
    )
    # All three runs are drawn in 3!/27 = 22 % of the resamples: 444 of 2000 on average.
    got = cluster_bootstrap(pool, "vis", calibration_statistic, rng=np.random.default_rng(0))
    assert np.isnan(got.low) and 350 < got.num_finite < 500


def test_no_run_is_on_both_sides_of_a_split():
    rng = np.random.default_rng(4)
    runs = np.repeat([f"run{i:02d}" for i in range(16)], 10)
    tasks = np.repeat(["pusht", "reacher"], 80)
    labels = rng.random(160) * 100
    pool = pool_of(labels, labels, runs=runs, tasks=tasks)
    fresh = {f"run{i:02d}": i for i in range(16)}
    objectives = {r: "visreg" if int(r[3:]) % 2 else "sigreg" for r in fresh}
    split = split_runs(pool, fresh_labels=fresh, objectives=objectives)
    assert not set(split.development) & set(split.test)
    assert set(split.development) | set(split.test) == set(fresh)
    for task in ("pusht", "reacher"):
        left = pool.labels[np.isin(pool.runs, split.development) & (tasks == task)]
        assert len(left) >= 20 and resolvability(left) >= 2.2
    # The best-labelled runs move first.
    assert {"run15", "run07"} <= set(split.test)
    flat = pool_of(labels, np.full(160, 50.0), runs=runs, tasks=tasks)
    assert split_runs(flat, fresh_labels=fresh, objectives=objectives).test == ()


# The report


def test_labels_that_cannot_rank_are_not_correlated():
    rng = np.random.default_rng(5)
    n = 24
    tasks = np.repeat(["pusht", "cube"], n)
    labels = np.concatenate([rng.random(n) * 100, 50 + rng.standard_normal(n)])
    pool = pool_of(
        labels + rng.standard_normal(2 * n), labels, tasks=tasks, epochs=np.tile(np.arange(n), 2)
    )
    report = meta_evaluate(pool, resamples=50)
    assert report.unresolvable == ("cube",)
    cube = [r for r in report.task_rows if r.task == "cube"]
    assert all(np.isnan(r.rho) and "nothing can be ranked" in r.reason for r in cube)
    assert any(n.startswith("† cube") for n in report.notes)
    assert {r.metric for r in report.task_rows} == {"vis", "epoch"}


def test_missing_labels_and_unknown_metrics_are_named():
    with pytest.raises(UsageError, match="1 labels are missing"):
        pool_of([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(UsageError, match="has no metric 'acc'; it has vis, epoch"):
        within_task(pool_of([1.0], [1.0]), "acc", "pusht")


def test_transfer_uses_each_planners_label_and_probe():
    base = pool_of([0.0] * 6, [0.0] * 6, veracity=[0.5] * 6, influence=[1.0] * 6)
    labels = {"cem": np.arange(6.0), "ms": np.arange(6.0)[::-1]}
    probes = {"mcem": np.arange(6.0) / 10, "madam": np.full(6, 0.2)}
    pools = transfer(base, labels, probes, {"cem": "mcem", "ms": "madam"})
    assert within_task(pools["cem"], "vis", "pusht") == pytest.approx(1.0)
    assert np.isnan(within_task(pools["ms"], "vis", "pusht"))
    np.testing.assert_allclose(pools["ms"].metric("vis"), 0.1)


@needs_data
def test_on_the_released_pool_the_epoch_alone_ranks_pusht_as_well_as_the_score():
    pool = Released.read(DATA).development
    report = meta_evaluate(pool, metrics=("vis",), resamples=60)
    rho = {(r.metric, r.task): r.rho for r in report.task_rows}
    assert rho["epoch", "pusht"] == pytest.approx(rho["vis", "pusht"], abs=0.05)
    told = [n for n in report.notes if n.startswith("on pusht the epoch number alone ranks")]
    assert bool(told) == (rho["epoch", "pusht"] >= rho["vis", "pusht"])
    # At a fixed epoch, or with the epoch partialled out, nothing of the score's ranking is left.
    pusht = next(r for r in report.task_rows if (r.metric, r.task) == ("vis", "pusht"))
    assert pusht.fixed_epoch.rho < 0.2 and pusht.partial_given_epoch < 0.2


@needs_data
def test_the_ablation_of_the_released_pool_is_the_papers_table():
    got = factor_ablation(Released.read(DATA).development)
    # Table 9: VIS 0.876 / 10.2, veracity 0.796 / 12.4, influence 0.543 / 21.9, sobriety 0.889 / 9.3.
    wanted = {"VIS": (0.876, 10.2), "V": (0.796, 12.4), "I": (0.543, 21.9), "S": (0.889, 9.3)}
    for name, (rho, error) in wanted.items():
        assert got[name][0] == pytest.approx(rho, abs=6e-4)
        assert got[name][1] == pytest.approx(error, abs=0.06)
