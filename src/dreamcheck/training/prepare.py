"""A recipe's data: recorded, split by episode, and the conventions fitted on the training part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes, Split, split_episodes
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.lewm_model import fit_action_statistics
from dreamcheck.training.progress import Progress
from dreamcheck.training.recipe import Recipe
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
