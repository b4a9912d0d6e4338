"""A readout whose numbers share one unit, where a task's angles have an arm."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import Readout
from dreamcheck.models.readout import CrossFitted
from dreamcheck.tasks.protocol import Column, Task


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


def in_lengths(readout: Readout | None, task: Task) -> Readout | None:
    """The readout in one unit where the task says how long an angle's arm is, else as it is."""
    arm = getattr(task, "arm", None)
    if arm is None or not isinstance(readout, CrossFitted):
        return readout
    return InLengths(readout, arm=float(arm))
