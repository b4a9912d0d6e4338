"""Meta-evaluation: whether a metric ranks checkpoints, judged on runs, beside what costs nothing."""

from dreamcheck.diagnostics.viscore.meta.bootstrap import (
    Interval,
    calibration_statistic,
    cluster_bootstrap,
    pooled_statistic,
)
from dreamcheck.diagnostics.viscore.meta.calibration import (
    calibration_error,
    constant_reference,
    fit_isotonic,
    frozen_error,
)
from dreamcheck.diagnostics.viscore.meta.evaluate import (
    MetaReport,
    factor_ablation,
    meta_evaluate,
    transfer,
    transfer_rows,
)
from dreamcheck.diagnostics.viscore.meta.pool import Pool
from dreamcheck.diagnostics.viscore.meta.ranking import (
    fixed_epoch,
    one_per_run,
    partial_given_epoch,
    pooled,
    resolvability,
    spearman,
    within_task,
)
from dreamcheck.diagnostics.viscore.meta.split import RunSplit, split_runs

__all__ = [
    "Interval",
    "MetaReport",
    "Pool",
    "RunSplit",
    "calibration_error",
    "calibration_statistic",
    "cluster_bootstrap",
    "constant_reference",
    "factor_ablation",
    "fit_isotonic",
    "fixed_epoch",
    "frozen_error",
    "meta_evaluate",
    "one_per_run",
    "partial_given_epoch",
    "pooled",
    "pooled_statistic",
    "resolvability",
    "spearman",
    "split_runs",
    "transfer",
    "transfer_rows",
    "within_task",
]
