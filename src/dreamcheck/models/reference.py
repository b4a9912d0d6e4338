"""The training distribution beside a checkpoint: some of its states and their latents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.spatial import cKDTree

from dreamcheck.digest import Value
from dreamcheck.errors import CheckpointError, InterfaceMismatch
from dreamcheck.models.checkpoint import read_tensors, write_json, write_tensors
from dreamcheck.models.protocol import WorldModel
from dreamcheck.tasks.protocol import Column

REFERENCE_FORMAT = "dreamcheck-support"
REFERENCE_VERSION = 1
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995, 1.0)


class _Meta(BaseModel):
    """What support.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    format_version: int
    columns: list[tuple[str, str]]
    model_identity: str
    source: str
    constants: dict[str, Any]
    quantiles: list[float]
    state_distances: list[float]
    latent_distances: list[float]


@dataclass(frozen=True, eq=False)
class SupportReference:
    """Training frames an input's distance to training is measured against (law 12).

    states: float32 [R, S] in the columns' units. latents: float32 [R, D] of the same frames.
    episodes, frames: int64 [R], where they were recorded.
    columns: of the states. model_identity: whose latents they are.
    source: the data in words, with its digest.
    constants: task coordinates that training never varied, with the value they had.
    state_distances, latent_distances: quantiles (at QUANTILES) of every row's distance to its
        nearest other row; states divided by their standard deviation first.
    """

    states: np.ndarray
    latents: np.ndarray
    episodes: np.ndarray
    frames: np.ndarray
    columns: tuple[Column, ...]
    model_identity: str
    source: str
    constants: Mapping[str, Value] = field(default_factory=dict)

    @property
    def state_distances(self) -> list[float]:
        """Leave-one-out nearest-neighbour distances of the standardised states, at QUANTILES."""
        spread = self.states.std(axis=0)
        return _leave_one_out(self.states / np.where(spread > 1e-9, spread, 1.0))

    @property
    def latent_distances(self) -> list[float]:
        """Leave-one-out nearest-neighbour distances of the latents, at QUANTILES."""
        return _leave_one_out(self.latents)

    def require(self, model: WorldModel) -> None:
        """Refuse another model's latents.

        Raises:
            InterfaceMismatch: naming both identities.
        """
        if model.identity != self.model_identity:
            raise InterfaceMismatch(
                f"the support reference holds latents of model {self.model_identity[:12]} but is "
                f"used with {model.identity[:12]}: distances between them mean nothing. Encode the "
                "training frames with this model."
            )

    def save(self, folder: str | Path) -> None:
        """Write support.safetensors and support.json into a checkpoint folder."""
        folder = Path(folder)
        write_tensors(
            folder / "support.safetensors",
            {
                "states": torch.from_numpy(self.states.astype(np.float32)),
                "latents": torch.from_numpy(self.latents.astype(np.float32)),
                "episodes": torch.from_numpy(self.episodes.astype(np.int32)),
                "frames": torch.from_numpy(self.frames.astype(np.int32)),
            },
        )
        meta = _Meta(
            format=REFERENCE_FORMAT,
            format_version=REFERENCE_VERSION,
            columns=[(c.name, c.unit) for c in self.columns],
            model_identity=self.model_identity,
            source=self.source,
            constants=dict(self.constants),
            quantiles=list(QUANTILES),
            state_distances=self.state_distances,
            latent_distances=self.latent_distances,
        )
        write_json(folder / "support.json", meta.model_dump())


def _leave_one_out(points: np.ndarray) -> list[float]:
    points = np.asarray(points, dtype=np.float64)
    distances, _ = cKDTree(points).query(points, k=2)
    return [float(q) for q in np.quantile(distances[:, 1], QUANTILES)]


def load_support(folder: str | Path) -> SupportReference | None:
    """The support reference beside a checkpoint, or None where it has none.

    Raises:
        CheckpointError: unreadable, or its two files do not fit together.
    """
    folder = Path(folder)
    path = folder / "support.json"
    if not path.is_file():
        return None
    try:
        meta = _Meta.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        raise CheckpointError(f"{path} is not a support reference: {error}") from error
    if meta.format != REFERENCE_FORMAT or meta.format_version != REFERENCE_VERSION:
        raise CheckpointError(
            f"{path} has format {meta.format} {meta.format_version}; this release reads "
            f"{REFERENCE_FORMAT} {REFERENCE_VERSION}."
        )
    tensors = read_tensors(folder / "support.safetensors")
    wanted = {"states", "latents", "episodes", "frames"}
    if set(tensors) != wanted or len({len(v) for v in tensors.values()}) != 1:
        raise CheckpointError(
            f"{folder / 'support.safetensors'} holds {sorted(tensors)}; expected equally long "
            f"{sorted(wanted)}."
        )
    if tensors["states"].shape[1] != len(meta.columns):
        raise CheckpointError(
            f"{path} names {len(meta.columns)} columns but the states have "
            f"{tensors['states'].shape[1]}; the two files belong to different checkpoints."
        )
    return SupportReference(
        states=tensors["states"].numpy(),
        latents=tensors["latents"].numpy(),
        episodes=tensors["episodes"].numpy().astype(np.int64),
        frames=tensors["frames"].numpy().astype(np.int64),
        columns=tuple(Column(n, u) for n, u in meta.columns),
        model_identity=meta.model_identity,
        source=meta.source,
        constants=meta.constants,
    )
