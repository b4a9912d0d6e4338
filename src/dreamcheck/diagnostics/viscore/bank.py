"""The latent bank: what the encoder makes of a probe, kept under the names of both."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dreamcheck.diagnostics.viscore.probe import Probe
from dreamcheck.digest import digest, digest_arrays
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.imagination.runner import frozen
from dreamcheck.models.protocol import WorldModel, plan_space

ENCODE_ROWS = 128


@dataclass(frozen=True)
class LatentBank:
    """Latents of every probe row.

    latents: float32 [F, *latent.shape], what the predictor reads.
    points: float32 [F, P], the same where distances are measured (``plan_space``).
    model_identity, probe_digest: what made them; a bank of another pair is refused.
    """

    latents: Tensor
    points: np.ndarray
    model_identity: str
    probe_digest: str

    @property
    def width(self) -> int:
        """P: numbers in one point."""
        return int(self.points.shape[1])

    @cached_property
    def covariance_trace(self) -> float:
        """tr cov over all rows, float64, divisor F - 1."""
        return float(self.points.astype(np.float64).var(axis=0, ddof=1).sum())

    @cached_property
    def effective_rank(self) -> float:
        """Participation ratio (tr C)² / tr C² of the points' covariance; NaN when constant.

        Between 1 (all variance along one direction) and min(P, F - 1).
        """
        x = self.points.astype(np.float64)
        x = x - x.mean(axis=0)
        gram = x.T @ x if x.shape[1] <= x.shape[0] else x @ x.T
        square = float((gram**2).sum())
        return float(np.trace(gram) ** 2 / square) if square > 0 else float("nan")

    def check(self, model: WorldModel, probe: Probe) -> None:
        """Refuse a bank that another model or another probe made.

        Raises:
            EvidenceError: the identity or the probe digest differs; the message says which.
        """
        if self.model_identity != model.identity:
            raise EvidenceError(
                f"the latent bank was made by model {self.model_identity[:12]} but the model "
                f"under test is {model.identity[:12]}: old latents would be scored with new "
                "weights. Encode again."
            )
        if self.probe_digest != probe.digest:
            raise EvidenceError(
                f"the latent bank belongs to probe {self.probe_digest[:12]}, not to "
                f"{probe.digest[:12]}. Encode again."
            )


def bank_from_latents(model: WorldModel, probe: Probe, latents: Tensor | np.ndarray) -> LatentBank:
    """A bank from latents computed elsewhere, [F, *latent.shape].

    Raises:
        UsageError: another number of rows, another latent shape, or a value that is not finite.
    """
    z = torch.as_tensor(np.asarray(latents, dtype=np.float32))
    shape = (probe.num_rows, *model.latent.shape)
    if tuple(z.shape) != shape:
        raise UsageError(
            f"latents have shape {tuple(z.shape)}; expected {shape}: one row per probe row, each "
            "of the shape the model declares. Latents of another checkpoint?"
        )
    if not torch.isfinite(z).all():
        row = int((~torch.isfinite(z.flatten(1)).all(dim=1)).nonzero()[0])
        raise UsageError(
            f"latent {row} holds NaN or infinity; the encoder diverged or its input was not finite."
        )
    with frozen(model):
        points = torch.cat([plan_space(model, part) for part in z.split(ENCODE_ROWS)])
    return LatentBank(
        latents=z,
        points=points.float().cpu().numpy(),
        model_identity=model.identity,
        probe_digest=probe.digest,
    )


def encode_bank(
    model: WorldModel,
    probe: Probe,
    *,
    cache: str | Path | None = None,
    batch: int = ENCODE_ROWS,
    on_rows: Callable[[int], None] | None = None,
) -> LatentBank:
    """The bank of a model and a probe, from the cache when the same pair was encoded before.

    The cache file's name is a digest of the model's identity (parameters, buffers, architecture,
    conventions) and the probe's digest, and the file holds a digest of the latents: latents of
    other weights or another probe cannot be read, and an altered file is refused.

    Args:
        cache: a folder; None encodes without keeping.
        batch: frames encoded at a time.
        on_rows: told how many frames were encoded, batch by batch.

    Raises:
        UsageError: the probe has no frames, or the model needs an observation the probe lacks.
        EvidenceError: a cached file was altered.

    Source: spec/viscore.md section 3.
    """
    path = None
    if cache is not None:
        name = digest(["latent-bank", 1, model.identity, probe.digest])
        path = Path(cache) / f"{name}.npz"
        if path.is_file():
            if on_rows is not None:
                on_rows(probe.num_rows)
            return bank_from_latents(model, probe, _read(path))
    if probe.frames is None:
        raise UsageError(
            "the probe holds no frames to encode: build it from episodes that have pixels, or "
            "give the latents with bank_from_latents(model, probe, latents)."
        )
    unknown = set(model.conventions.observation_keys) - {"pixels", "state"}
    if unknown:
        raise UsageError(
            f"the encoder needs {sorted(unknown)} beside pixels, which a probe does not carry; "
            "encode outside and give the latents with bank_from_latents(model, probe, latents)."
        )
    out = []
    with frozen(model):
        for start in range(0, probe.num_rows, batch):
            rows = np.arange(start, min(start + batch, probe.num_rows))
            # The last batch is filled up by its first row: a short batch changes the last bits.
            filled = np.concatenate([rows, np.full(batch - len(rows), rows[0])])
            observation = {"pixels": torch.as_tensor(probe.frames(filled)).to(model.device)}
            if "state" in model.conventions.observation_keys:
                observation["state"] = torch.as_tensor(probe.state[filled]).to(model.device)
            out.append(model.encode(observation)[: len(rows)].float().cpu())
            if on_rows is not None:
                on_rows(len(rows))
    bank = bank_from_latents(model, probe, torch.cat(out))
    if path is not None:
        _write(path, bank.latents.numpy())
    return bank


def _write(path: Path, latents: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as f:
            np.savez(f, latents=latents, content=np.array(digest_arrays({"latents": latents})))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> np.ndarray:
    try:
        with np.load(path, allow_pickle=False) as f:
            latents, content = f["latents"], str(f["content"])
    except (OSError, KeyError, ValueError) as e:
        raise EvidenceError(
            f"the cached latent bank {path.name} is unreadable ({e}); delete it."
        ) from e
    if digest_arrays({"latents": latents}) != content:
        raise EvidenceError(f"the cached latent bank {path.name} was altered; delete it.")
    return latents
