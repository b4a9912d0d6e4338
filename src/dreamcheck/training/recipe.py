"""A training recipe as data: what `train` reads from a TOML file and writes into the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dreamcheck.digest import digest
from dreamcheck.models.lewm import LeWMConfig
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text

PRESETS = "dreamcheck.training.presets"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataRecipe(_Part):
    """What is recorded, from default resets of a task.

    episodes, steps: episodes of ``steps`` environment steps (steps + 1 frames).
    first_env_seed: episode i is the default reset of environment seed first_env_seed + i; keep it
        away from the seeds evaluations use.
    heldout: share of the episodes that no gradient ever sees.
    """

    task: str = "tworoom"
    policy: str = "exploratory"
    episodes: int = Field(gt=1)
    steps: int = Field(gt=0)
    image_size: int = Field(gt=0)
    frameskip: int = Field(default=5, gt=0)
    first_env_seed: int = Field(default=1_000_000, ge=0)
    heldout: float = Field(default=0.1, gt=0, lt=1)


class ObjectiveRecipe(_Part):
    """Prediction loss + weight x regulariser, the latter over all frames of a clip."""

    regulariser: Literal["sigreg", "visreg"] = "sigreg"
    weight: float = Field(ge=0)
    directions: int = Field(default=1024, gt=0)
    knots: int = Field(default=17, gt=1)


class OptimiserRecipe(_Part):
    """AdamW; the rate rises linearly over ``warmup`` of the steps, then falls as a cosine to 0.

    precision: "auto" is bfloat16 autocast where the processor computes it natively.
    """

    steps: int = Field(gt=0)
    batch: int = Field(gt=1)
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(default=1e-3, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = Field(default=0.01, ge=0, lt=1)
    clip_norm: float = Field(default=1.0, gt=0)
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    save_every: int = Field(default=100, gt=0)


class AugmentRecipe(_Part):
    """Noise on every frame of a training clip, targets included; see ``training.augment``.

    sigma_max: in display units on [0, 1]; every frame draws its own sigma ~ U(0, sigma_max).
    """

    kind: Literal["gaussian"] = "gaussian"
    sigma_max: float = Field(ge=0, le=1, allow_inf_nan=False)


class RefinementRecipe(_Part):
    """The second phase: the predictor alone on the frozen encoder's latents; 0 steps skip it.

    forecast: steps of its loss; the first is teacher-forced, the rest are fed on predictions.
    """

    steps: int = Field(default=0, ge=0)
    batch: int = Field(default=256, gt=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=1e-3, ge=0)
    warmup: float = Field(default=0.02, ge=0, lt=1)
    clip_norm: float = Field(default=1.0, gt=0)
    forecast: int = Field(default=1, gt=0)


class MeasureRecipe(_Part):
    """What is measured on the trained model, and with how much data.

    more_heldout: fresh episodes recorded for measuring only, beside those of the split; a batch
        drawn from few episodes is not distributed like training.
    """

    more_heldout: int = Field(default=0, ge=0)
    recalibration_batches: int = Field(default=100, gt=0)
    loss_batches: int = Field(default=16, gt=0)
    probe_frames: int = Field(default=16000, gt=0)
    heldout_frames: int = Field(default=4000, gt=0)
    probe_steps: int = Field(default=3000, gt=0)
    windows: int = Field(default=2000, gt=0)
    forecast: int = Field(default=8, gt=0)
    support_rows: int = Field(default=4000, gt=1)


class Floors(_Part):
    """What a model must reach to ship; the card states every margin."""

    probe_r2: float = 0.995
    one_step_ratio: float = 0.05
    mode_gap: float = 1.2
    size_mb: float = 8.0


class Recipe(_Part):
    """Everything that decides what is trained. ``seed`` is the root of every random stream.

    augment: None, or what is done to the frames of a training clip.
    """

    name: str
    seed: int = Field(default=0, ge=0)
    data: DataRecipe
    model: LeWMConfig
    objective: ObjectiveRecipe
    optimiser: OptimiserRecipe
    augment: AugmentRecipe | None = None
    refinement: RefinementRecipe = RefinementRecipe()
    measure: MeasureRecipe = MeasureRecipe()
    floors: Floors = Floors()

    def values(self, *names: str) -> dict[str, Any]:
        """The named fields, or all, as plain data; an augmentation that is off has none.

        A recipe without one therefore keeps the digest it had before there were any.
        """
        values = self.model_dump(mode="json", include=set(names) or None)
        if values.get("augment") is None:
            values.pop("augment", None)
        return values

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of every field."""
        return digest(self.values())


def presets() -> tuple[str, ...]:
    """Names of the recipes that ship."""
    return preset_names(PRESETS)


def load_recipe(name_or_path: str | Path, **overrides: Any) -> Recipe:
    """A preset by name, or a TOML file by path.

    Args:
        overrides: "section.field" or top-level field -> value, replacing what the file says.

    Raises:
        UsageError: no such preset or file, or a field that cannot be used; the field is named.
    """
    text, origin = preset_text(PRESETS, str(name_or_path), kind="training preset")
    values = parse_toml(text, origin=origin)
    for key, value in overrides.items():
        section, _, field = key.rpartition(".")
        target = values.setdefault(section, {}) if section else values
        target[field] = value
    return model_from(Recipe, values, origin=origin, whole="the recipe")
