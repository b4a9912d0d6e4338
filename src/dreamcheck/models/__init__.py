"""World models: what one must offer, conventions, checkpoints, networks, readouts."""

from dreamcheck.models.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm import LeWMConfig, LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.protocol import LatentSpec, WorldModel
from dreamcheck.models.readout import CrossFitted, StateProbe, load_crossfitted, load_readouts
from dreamcheck.models.reference import SupportReference, load_support
from dreamcheck.models.registry import checkpoint_folder, load_model, shipped_models

__all__ = [
    "Checkpoint",
    "Conventions",
    "CrossFitted",
    "LatentSpec",
    "LeWM",
    "LeWMConfig",
    "LeWMNet",
    "StateProbe",
    "SupportReference",
    "WorldModel",
    "checkpoint_folder",
    "load_crossfitted",
    "load_model",
    "load_readouts",
    "load_support",
    "read_checkpoint",
    "save_checkpoint",
    "shipped_models",
]
