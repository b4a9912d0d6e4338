"""VIScore: is a checkpoint fit to plan with? Veracity, influence, sobriety, and their baselines."""

from dreamcheck.diagnostics.viscore.bank import LatentBank, bank_from_latents, encode_bank
from dreamcheck.diagnostics.viscore.callback import ScoreCallback
from dreamcheck.diagnostics.viscore.criteria import (
    Criterion,
    criterion,
    criterion_names,
    load_criterion,
)
from dreamcheck.diagnostics.viscore.factors import factor_set
from dreamcheck.diagnostics.viscore.probe import Probe, build_probe
from dreamcheck.diagnostics.viscore.record import ScoreRecord, rank, require_comparable
from dreamcheck.diagnostics.viscore.scoring import score, score_many
from dreamcheck.diagnostics.viscore.search import (
    PROBE_OF_PLANNER,
    GivenNoise,
    NumpyNoise,
    TorchNoise,
)
from dreamcheck.diagnostics.viscore.settings import ScoreSettings
from dreamcheck.diagnostics.viscore.table import table, to_csv

__all__ = [
    "PROBE_OF_PLANNER",
    "Criterion",
    "GivenNoise",
    "LatentBank",
    "NumpyNoise",
    "Probe",
    "ScoreCallback",
    "ScoreRecord",
    "ScoreSettings",
    "TorchNoise",
    "bank_from_latents",
    "build_probe",
    "criterion",
    "criterion_names",
    "encode_bank",
    "factor_set",
    "load_criterion",
    "rank",
    "require_comparable",
    "score",
    "score_many",
    "table",
    "to_csv",
]
