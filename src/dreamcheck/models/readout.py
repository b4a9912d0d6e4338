"""Readouts as data: a probe that turns latents into task state, stored beside its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import Abstention, CheckpointError, InterfaceMismatch, UsageError
from dreamcheck.models.checkpoint import read_tensors, write_json, write_tensors
from dreamcheck.models.protocol import WorldModel
from dreamcheck.tasks.protocol import Column

READOUT_FORMAT = "dreamcheck-readout"
READOUT_VERSION = 1
_TILE = 256


@dataclass(frozen=True, slots=True)
class ColumnError:
    """A probe's error on one state column, on held-out data, in the column's unit."""

    name: str
    unit: str
    r2: float
    mae: float
    rmse: float


def column_errors(
    predicted: np.ndarray, actual: np.ndarray, columns: tuple[Column, ...]
) -> tuple[ColumnError, ...]:
    """R2, mean absolute and root mean squared error per column.

    R2 is against the actual values' own mean; a constant column has none (NaN).

    Args:
        predicted, actual: [N, S], N >= 2.
    """
    predicted = np.asarray(predicted, dtype=np.float64)
    actual = np.asarray(actual, dtype=np.float64)
    if predicted.shape != actual.shape or actual.shape[1] != len(columns) or len(actual) < 2:
        raise UsageError(
            f"predictions {predicted.shape}, states {actual.shape} and {len(columns)} columns do "
            "not belong together (at least 2 rows are needed)."
        )
    residual = predicted - actual
    spread = ((actual - actual.mean(axis=0)) ** 2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = np.where(spread > 0, 1 - (residual**2).sum(axis=0) / spread, np.nan)
    return tuple(
        ColumnError(
            name=column.name,
            unit=column.unit,
            r2=float(r2[i]),
            mae=float(np.abs(residual[:, i]).mean()),
            rmse=float(np.sqrt((residual[:, i] ** 2).mean())),
        )
        for i, column in enumerate(columns)
    )


class _Meta(BaseModel):
    """What readout-NAME.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    format_version: int
    name: str
    kind: str
    columns: list[tuple[str, str]]
    latent_width: int
    model_identity: str
    fitted_on: str
    heldout_on: str
    errors: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class StateProbe:
    """Latents -> task state, fitted on one model's latents and bound to it.

    name: "a", "b", "ridge", ... unique within a checkpoint.
    kind: "ridge" (linear) or "mlp" (two hidden layers, GELU).
    columns: what it reads out, in order, with units.
    model_identity: the model whose latents it was fitted on.
    fitted_on, heldout_on: the data, in words with counts and digests.
    errors: on held-out episodes, one per column.
    tensors: float32 parameters: "in_mean", "in_std", "out_mean", "out_std" and the layers
        "w0", "b0" (and "w1", "b1", "w2", "b2" of an mlp).
    """

    name: str
    kind: str
    columns: tuple[Column, ...]
    model_identity: str
    fitted_on: str
    heldout_on: str
    errors: tuple[ColumnError, ...]
    tensors: dict[str, Tensor]

    @property
    def latent_width(self) -> int:
        """Numbers in one latent."""
        return int(self.tensors["in_mean"].shape[0])

    @property
    def identity(self) -> str:
        """Digest of kind, columns, model and parameters; the held-out errors are not part of it."""
        return digest(
            {
                "kind": self.kind,
                "columns": [(c.name, c.unit) for c in self.columns],
                "model": self.model_identity,
                "tensors": digest_arrays({k: v.numpy() for k, v in self.tensors.items()}),
            }
        )

    @property
    def r2(self) -> float:
        """Mean held-out R2 over columns."""
        return float(np.mean([e.r2 for e in self.errors]))

    @property
    def mae(self) -> float:
        """Mean held-out absolute error over columns; their units must agree to mean something."""
        return float(np.mean([e.mae for e in self.errors]))

    @property
    def heldout_mae(self) -> np.ndarray:
        """Held-out mean absolute error [S], each in its column's unit."""
        return np.array([e.mae for e in self.errors])

    @property
    def heldout_rmse(self) -> np.ndarray:
        """Held-out root mean squared error [S], each in its column's unit."""
        return np.array([e.rmse for e in self.errors])

    def predict(self, latents: Tensor | np.ndarray) -> np.ndarray:
        """State [N, S] of latents [N, D], float64, in the columns' units.

        Rows go through in tiles of one size, so a row's result does not depend on its batch-mates.
        """
        z = torch.as_tensor(latents, dtype=torch.float32)
        if z.ndim != 2 or z.shape[1] != self.latent_width:
            raise InterfaceMismatch(
                f"probe {self.name!r} reads latents [N, {self.latent_width}], got "
                f"{tuple(z.shape)}. Flatten batch and time, and use the probe of this model."
            )
        out = []
        with torch.no_grad():
            for start in range(0, len(z), _TILE):
                tile = z[start : start + _TILE]
                n = len(tile)
                if n < _TILE:
                    tile = torch.cat([tile, tile[:1].expand(_TILE - n, -1)])
                out.append(self._forward(tile)[:n])
        return torch.cat(out).double().numpy() if out else np.zeros((0, len(self.columns)))

    def disagreement(self, latents: Tensor | np.ndarray) -> np.ndarray:
        """Never given: one probe has no second one to part from.

        A single probe reads states wherever a ``Readout`` is asked for, e.g. in ``explain``; only
        what rests on disagreement needs two.

        Raises:
            Abstention: always; it names the way out.
        """
        raise Abstention(
            f"probe {self.name!r} is one probe: disagreement is measured between two, fitted on "
            "disjoint halves of the training episodes. Pass CrossFitted(a, b), or leave it out."
        )

    def _forward(self, z: Tensor) -> Tensor:
        t = self.tensors
        x = (z - t["in_mean"]) / t["in_std"]
        if self.kind == "ridge":
            x = F.linear(x, t["w0"], t["b0"])
        else:
            x = F.gelu(F.linear(x, t["w0"], t["b0"]))
            x = F.gelu(F.linear(x, t["w1"], t["b1"]))
            x = F.linear(x, t["w2"], t["b2"])
        return x * t["out_std"] + t["out_mean"]

    def measured(
        self, latents: Tensor | np.ndarray, states: np.ndarray, heldout_on: str
    ) -> StateProbe:
        """The same probe with its errors on held-out latents and states filled in."""
        errors = column_errors(self.predict(latents), states, self.columns)
        return replace(self, errors=errors, heldout_on=heldout_on)

    def require(self, model: WorldModel) -> None:
        """Refuse a model whose latents this probe was not fitted on.

        Raises:
            InterfaceMismatch: naming both identities.
        """
        if model.identity != self.model_identity:
            raise InterfaceMismatch(
                f"probe {self.name!r} was fitted on model {self.model_identity[:12]} but is used "
                f"with {model.identity[:12]}: its error there is unknown. Fit a probe for this "
                "model (`dreamcheck.training.fit_probe`)."
            )

    def save(self, folder: str | Path) -> None:
        """Write readout-NAME.safetensors and readout-NAME.json into a checkpoint folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"readout-{self.name}"
        write_tensors(stem.with_suffix(".safetensors"), self.tensors)
        meta = _Meta(
            format=READOUT_FORMAT,
            format_version=READOUT_VERSION,
            name=self.name,
            kind=self.kind,
            columns=[(c.name, c.unit) for c in self.columns],
            latent_width=self.latent_width,
            model_identity=self.model_identity,
            fitted_on=self.fitted_on,
            heldout_on=self.heldout_on,
            errors=[
                {"name": e.name, "unit": e.unit, "r2": e.r2, "mae": e.mae, "rmse": e.rmse}
                for e in self.errors
            ],
        )
        write_json(stem.with_suffix(".json"), meta.model_dump())


_SHAPES = {"ridge": ("w0", "b0"), "mlp": ("w0", "b0", "w1", "b1", "w2", "b2")}


def load_readout(folder: str | Path, name: str) -> StateProbe:
    """One readout of a checkpoint folder.

    Raises:
        CheckpointError: missing, unreadable, or tensors that do not fit its description.
    """
    stem = Path(folder) / f"readout-{name}"
    try:
        meta = _Meta.model_validate(json.loads(stem.with_suffix(".json").read_text("utf-8")))
    except FileNotFoundError as error:
        found = ", ".join(readout_names(folder)) or "(none)"
        raise CheckpointError(
            f"{folder} has no readout {name!r}; it has {found}. Train with a preset that fits "
            "probes, or fit one."
        ) from error
    except (ValueError, ValidationError) as error:
        raise CheckpointError(f"{stem}.json is not a readout's description: {error}") from error
    if meta.format != READOUT_FORMAT or meta.format_version != READOUT_VERSION:
        raise CheckpointError(
            f"{stem}.json has format {meta.format} {meta.format_version}; this release reads "
            f"{READOUT_FORMAT} {READOUT_VERSION}."
        )
    tensors = read_tensors(stem.with_suffix(".safetensors"))
    wanted = {"in_mean", "in_std", "out_mean", "out_std", *_SHAPES.get(meta.kind, ())}
    if meta.kind not in _SHAPES or set(tensors) != wanted:
        raise CheckpointError(
            f"{stem}: kind {meta.kind!r} with tensors {sorted(tensors)}; a readout is one of "
            f"{', '.join(_SHAPES)} with {sorted(wanted)}."
        )
    if any(not v.isfinite().all() for v in tensors.values()):
        raise CheckpointError(f"{stem}.safetensors holds NaN or infinity; fit the probe again.")
    probe = StateProbe(
        name=meta.name,
        kind=meta.kind,
        columns=tuple(Column(n, u) for n, u in meta.columns),
        model_identity=meta.model_identity,
        fitted_on=meta.fitted_on,
        heldout_on=meta.heldout_on,
        errors=tuple(ColumnError(**e) for e in meta.errors),
        tensors=tensors,
    )
    if probe.latent_width != meta.latent_width:
        raise CheckpointError(
            f"{stem}: latent width {probe.latent_width} found, {meta.latent_width} expected; the "
            "two files belong to different readouts."
        )
    return probe


def readout_names(folder: str | Path) -> tuple[str, ...]:
    """Names of the readouts beside a checkpoint."""
    return tuple(
        sorted(p.name[len("readout-") : -len(".json")] for p in Path(folder).glob("readout-*.json"))
    )


def load_readouts(folder: str | Path) -> dict[str, StateProbe]:
    """Every readout of a checkpoint folder, by name."""
    return {name: load_readout(folder, name) for name in readout_names(folder)}


class Probe(Protocol):
    """One fitted probe; ``errors`` are held-out, one per column, with mae and rmse."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def identity(self) -> str: ...

    @property
    def errors(self) -> tuple[Any, ...]: ...

    def predict(self, latents: Tensor) -> np.ndarray: ...


class CrossFitted:
    """A readout of two probes fitted on disjoint halves of the training episodes.

    Its value is their mean; its held-out error is the larger of theirs, which the mean's own
    error rarely exceeds. Where both agree and are wrong, the latent is; where they part, neither
    can be trusted.

    Raises:
        InterfaceMismatch: the two belong to different models or read different columns.

    Source: spec/evidence.md section 6.
    """

    def __init__(self, a: Probe, b: Probe) -> None:
        models = [getattr(p, "model_identity", None) for p in (a, b)]
        if a.columns != b.columns or models[0] != models[1]:
            raise InterfaceMismatch(
                f"the probes read {[c.name for c in a.columns]} and {[c.name for c in b.columns]}; "
                "they were not fitted on one model's latents for the same columns, so their "
                "disagreement means nothing."
            )
        self.a, self.b = a, b
        self.columns = a.columns
        self.identity = digest({"cross-fitted": [a.identity, b.identity]})
        self.heldout_mae = np.maximum(_errors(a, "mae"), _errors(b, "mae"))
        self.heldout_rmse = np.maximum(_errors(a, "rmse"), _errors(b, "rmse"))

    def predict(self, latents: Tensor) -> np.ndarray:
        """[N, *shape] -> float64 [N, S]: the mean of both probes."""
        flat = latents.flatten(1)
        return (self.a.predict(flat) + self.b.predict(flat)) / 2

    def disagreement(self, latents: Tensor) -> np.ndarray:
        """Mean |A - B| over columns, [N]."""
        flat = latents.flatten(1)
        return np.abs(self.a.predict(flat) - self.b.predict(flat)).mean(axis=1)


def _errors(probe: Probe, name: str) -> np.ndarray:
    return np.array([getattr(e, name) for e in probe.errors], dtype=np.float64)


def load_crossfitted(folder: str | Path, *, first: str = "a", second: str = "b") -> CrossFitted:
    """The two cross-fitted probes of a checkpoint folder."""
    return CrossFitted(load_readout(folder, first), load_readout(folder, second))
