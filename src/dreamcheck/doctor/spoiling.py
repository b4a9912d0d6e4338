"""Parts with a fault put in, of a known size: what fault generators build their subjects with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from dreamcheck.data.episodes import ArrayEpisodes, Episodes
from dreamcheck.models.conventions import Conventions


class Spoiled:
    """A model with one method replaced; everything else is the original's.

    Args:
        encode, embed_actions, predict: functions (model, *arguments) that replace the method.
    """

    def __init__(
        self,
        model: Any,
        *,
        encode: Callable[..., Tensor] | None = None,
        embed_actions: Callable[..., Tensor] | None = None,
        predict: Callable[..., Tensor] | None = None,
        rollout: Callable[..., Tensor] | None = None,
        conventions: Conventions | None = None,
    ) -> None:
        self.original = model
        self.conventions = conventions or model.conventions
        self._encode, self._embed, self._predict = encode, embed_actions, predict
        self.latent, self.device = model.latent, model.device
        self.history_min, self.history_max = model.history_min, model.history_max
        if hasattr(model, "module"):
            self.module = model.module
        if rollout is not None:
            self.rollout = lambda z, a: rollout(model, z, a)

    @property
    def identity(self) -> str:
        """Of the original, marked."""
        return "spoiled " + str(self.original.identity)

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """As the original, or the replacement."""
        if self.conventions is not self.original.conventions:
            self.original = copy.copy(self.original)
            self.original.conventions = self.conventions
        if self._encode is not None:
            return self._encode(self.original, observation)
        return self.original.encode(observation)

    def embed_actions(self, blocks: Tensor) -> Tensor:
        """As the original, or the replacement."""
        if self._embed is not None:
            return self._embed(self.original, blocks)
        return self.original.embed_actions(blocks)

    def predict(
        self, latents: Tensor, actions: Tensor, *, row_seeds: Sequence[int] | None = None
    ) -> Tensor:
        """As the original, or the replacement."""
        if self._predict is not None:
            return self._predict(self.original, latents, actions)
        return self.original.predict(latents, actions)


def with_conventions(model: Any, conventions: Conventions) -> Any:
    """The same model driven under other conventions."""
    other = copy.copy(model)
    other.conventions = conventions
    return other


def with_episodes(
    episodes: Episodes | None,
    *,
    actions: Callable[[np.ndarray], np.ndarray] | None = None,
    pixels: Callable[[np.ndarray], np.ndarray] | None = None,
    keep: Callable[[int], np.ndarray] | None = None,
) -> ArrayEpisodes:
    """Episodes with each episode's raw actions [L, A] or frames [L, 3, s, s] changed.

    keep: frames of an episode of that length that stay, for other recording rates; actions of
    kept frames are taken along and the last one made NaN.
    """
    assert episodes is not None
    lengths, acts, frames, states = [], [], [], []
    for e in range(len(episodes.lengths)):
        n = int(episodes.lengths[e])
        rows = np.arange(n) if keep is None else keep(n)
        a = np.array(episodes.actions(e)[rows], dtype=np.float64)
        a[-1] = np.nan
        if actions is not None:
            a = actions(a)
        px = episodes.frames(e, rows)
        lengths.append(len(rows))
        acts.append(a)
        frames.append(px if pixels is None else pixels(px))
        states.append(episodes.state(e)[rows])
    return ArrayEpisodes(
        lengths=np.array(lengths),
        actions=np.concatenate(acts),
        pixels=np.concatenate(frames),
        state=np.concatenate(states),
        columns=episodes.columns,
    )
