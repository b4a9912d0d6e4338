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
    """Recorded data, split by episode, and the conventions fitted on its training part.

    heldout: the split's held-out episodes and those recorded for measuring only; no gradient and
        no statistic ever sees one of them.
    digest, heldout_digest: of ``episodes`` and of ``heldout``.
    """

    episodes: ArrayEpisodes
    digest: str
    split: Split
    heldout: ArrayEpisodes
    heldout_digest: str
    conventions: Conventions
    nan_action_rows: int


def prepare(recipe: Recipe, *, progress: Progress | None = None) -> Prepared:
    """The recipe's episodes, made with the simulator, and what training needs to read them."""
    data, more = recipe.data, recipe.measure.more_heldout

    def record(first: int, count: int) -> ArrayEpisodes:
        return record_episodes(
            task_of(data),
            policy_of(data),
            env_seeds=first + np.arange(count),
            steps=data.steps,
            image_size=data.image_size,
            root_seed=recipe.seed,
            progress=progress,
        )

    episodes = record(data.first_env_seed, data.episodes)
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
    heldout = episodes.subset(split.heldout)
    if more:
        heldout = heldout.joined(record(data.first_env_seed + data.episodes, more))
    return Prepared(
        episodes=episodes,
        digest=episodes.digest,
        split=split,
        heldout=heldout,
        heldout_digest=heldout.digest,
        conventions=conventions,
        nan_action_rows=nan_rows,
    )
