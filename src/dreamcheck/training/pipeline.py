"""From a recipe to a checkpoint with its model card: record, train, recalibrate, measure, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.data.episodes import ArrayEpisodes, Split, split_episodes
from dreamcheck.data.windows import Windows
from dreamcheck.digest import digest
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm_model import fit_action_statistics
from dreamcheck.training.loop import Training, autocast_dtype
from dreamcheck.training.progress import LineProgress, Progress
from dreamcheck.training.recipe import Recipe, load_recipe
from dreamcheck.training.record import policy_of, record_episodes, task_of


@dataclass(frozen=True)
class Prepared:
    """Recorded data, split by episode, and the conventions fitted on its training part."""

    episodes: ArrayEpisodes
    digest: str
    split: Split
    conventions: Conventions
    nan_action_rows: int


def prepare(recipe: Recipe, *, progress: Progress | None = None) -> Prepared:
    """The recipe's episodes, made with the simulator, and what training needs to read them."""
    episodes = record_episodes(
        task_of(recipe.data),
        policy_of(recipe.data),
        env_seeds=recipe.data.first_env_seed + np.arange(recipe.data.episodes),
        steps=recipe.data.steps,
        image_size=recipe.data.image_size,
        root_seed=recipe.seed,
        progress=progress,
    )
    split = split_episodes(episodes, heldout=recipe.data.heldout, seed=recipe.seed)
    mean, std, nan_rows = fit_action_statistics([episodes.actions(int(e)) for e in split.train])
    conventions = Conventions(
        image_size=recipe.model.image_size,
        frameskip=recipe.data.frameskip,
        action_dim=len(mean),
        action_mean=mean,
        action_std=std,
        history=recipe.model.history,
    )
    return Prepared(episodes, episodes.digest, split, conventions, nan_rows)


def training_fingerprint(recipe: Recipe, data_digest: str) -> str:
    """What a training state depends on, to the bit: recipe, data and numerics profile."""
    values = recipe.model_dump(include={"seed", "data", "model", "objective", "optimiser"})
    values["optimiser"].pop("save_every")
    return digest(
        {
            "recipe": values,
            "data": data_digest,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "instruction_set": torch.backends.cpu.get_cpu_capability(),
            "dtype": str(autocast_dtype(recipe.optimiser.precision)),
        }
    )


def train_preset(
    name_or_path: str | Path,
    out: str | Path,
    *,
    resume: bool = True,
    threads: int = 2,
    progress: Progress | None = None,
    **overrides: Any,
) -> Training:
    progress = progress or LineProgress()
    torch.set_num_threads(threads)
    recipe = load_recipe(name_or_path, **overrides)
    out = Path(out)
    prepared = prepare(recipe, progress=progress)
    windows = Windows(
        prepared.episodes,
        num_frames=recipe.model.history + 1,
        frameskip=recipe.data.frameskip,
        subset=prepared.split.train,
    )
    training = Training(
        recipe,
        windows,
        prepared.conventions,
        state_path=out / ".training" / "state.safetensors",
        fingerprint=training_fingerprint(recipe, prepared.digest),
    )
    if resume:
        training.load()
    training.run(progress=progress)
    return training
