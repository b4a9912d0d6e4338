"""Training: recipes as data, the loop, SIGReg and VISReg, precise BN, probes, the model card."""

from dreamcheck.training.batchnorm import in_mode, layer_reports, mode_losses, recalibrate
from dreamcheck.training.losses import prediction_loss, sigreg, unit_directions, visreg
from dreamcheck.training.pipeline import TrainResult, train_preset
from dreamcheck.training.probes import fit_probe
from dreamcheck.training.progress import LineProgress, Progress, Silent
from dreamcheck.training.recipe import Recipe, load_recipe, presets

__all__ = [
    "LineProgress",
    "Progress",
    "Recipe",
    "Silent",
    "TrainResult",
    "fit_probe",
    "in_mode",
    "layer_reports",
    "load_recipe",
    "mode_losses",
    "prediction_loss",
    "presets",
    "recalibrate",
    "sigreg",
    "train_preset",
    "unit_directions",
    "visreg",
]
