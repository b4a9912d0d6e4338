"""Two cross-fitted probes read as one: their mean, their larger error, their disagreement."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Column


class Probe(Protocol):
    """One fitted probe; ``errors`` are held-out, one per column, with mae and rmse."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def identity(self) -> str: ...

    @property
    def errors(self) -> tuple[object, ...]: ...

    def predict(self, latents: Tensor) -> np.ndarray: ...


class CrossFitted:
    """A readout of two probes fitted on disjoint halves of the training episodes.

    Its value is their mean; its held-out error is the larger of theirs, which the mean's own
    error rarely exceeds; where the two part, neither can be trusted.

    Source: spec/evidence.md section 6.
    """

    def __init__(self, a: Probe, b: Probe) -> None:
        if a.columns != b.columns:
            raise UsageError(f"the probes read {a.columns} and {b.columns}; they must agree.")
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


class InLengths:
    """A readout whose sine and cosine of an angle are read as the end of an arm, in the positions'
    unit, so that all of its numbers have one unit.

    arm: length of the arm in that unit, e.g. half of PushT's bar: turning the block by a small
        angle then counts as much as the way its tip travels.
    """

    def __init__(self, readout: CrossFitted, *, arm: float) -> None:
        units = {c.unit for c in readout.columns} - {"1"}
        if len(units) != 1:
            raise UsageError(
                f"the readout's columns have the units {sorted(units)}; one is needed."
            )
        self.inner, self.arm = readout, arm
        unit = units.pop()
        self.scale = np.array([arm if c.unit == "1" else 1.0 for c in readout.columns])
        self.columns = tuple(Column(c.name, unit) for c in readout.columns)
        self.identity = digest({"in lengths": readout.identity, "arm": arm})
        self.heldout_mae = readout.heldout_mae * self.scale
        self.heldout_rmse = readout.heldout_rmse * self.scale

    def predict(self, latents: Tensor) -> np.ndarray:
        """[N, *shape] -> float64 [N, S], all in the positions' unit."""
        return self.inner.predict(latents) * self.scale

    def of_states(self, states: np.ndarray) -> np.ndarray:
        """Task states [..., S] in the same unit."""
        return states * self.scale

    def disagreement(self, latents: Tensor) -> np.ndarray:
        """Mean |A - B| over columns, [N]."""
        flat = latents.flatten(1)
        apart = np.abs(self.inner.a.predict(flat) - self.inner.b.predict(flat)) * self.scale
        return apart.mean(axis=1)
