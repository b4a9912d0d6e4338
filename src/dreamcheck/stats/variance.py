"""Where the variance of a loss table lies: between inputs, checkpoints, seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.stats.estimate import NotTestable


@dataclass(frozen=True, slots=True)
class VarianceSplit:
    """Components of variance of one loss; each is at least 0, shares sum to 1.

    inputs: between inputs, over seeds (and checkpoints).
    checkpoints: between checkpoints and their interplay with inputs; 0 for one checkpoint.
    seeds: what is left: seeds and their interplay with the rest.
    total: the sum, in squared loss units.
    """

    inputs: float
    checkpoints: float
    seeds: float
    total: float

    def share(self, component: str) -> float:
        """A component over the total; NaN when nothing varies."""
        value = float(getattr(self, component))
        return value / self.total if self.total > 0 else float("nan")


def variance_split(losses: Any) -> VarianceSplit:
    """Random-effects components of a complete loss table.

    Args:
        losses: [inputs, seeds] or [checkpoints, inputs, seeds], finite, at least 2 inputs and 2
            seeds. With deterministic rollouts the seed component is 0 and the input share is 1:
            more seeds then add nothing.

    Raises:
        NotTestable: fewer than 2 inputs or seeds, or a loss is missing.

    Source: evidence.md section 3; unbiased analysis-of-variance estimators, negative ones set to 0.
    """
    table = np.asarray(losses, dtype=float)
    if table.ndim == 2:
        table = table[None]
    if table.ndim != 3 or table.shape[1] < 2 or table.shape[2] < 2:
        raise NotTestable(
            f"losses of shape {np.shape(losses)}: at least 2 inputs on 2 seeds are needed",
            given=np.shape(losses),
            needed=2,
        )
    if not np.isfinite(table).all():
        raise NotTestable(
            f"{int((~np.isfinite(table)).sum())} losses are missing; the split needs a complete "
            "table: keep the inputs and seeds that are complete and say how many were left out"
        )
    num_checkpoints, num_inputs, num_seeds = table.shape
    within = float(table.var(axis=2, ddof=1).mean())
    cells = table.mean(axis=2)  # [checkpoints, inputs]; its variance holds within / num_seeds
    by_input = cells.mean(axis=0)
    if num_checkpoints == 1:
        inputs = max(0.0, float(by_input.var(ddof=1)) - within / num_seeds)
        checkpoints = 0.0
    else:
        # Between checkpoints inside one input: main effect and interplay together.
        spread = float(cells.var(axis=0, ddof=1).mean())
        checkpoints = max(0.0, spread - within / num_seeds)
        # Only the interplay part differs from input to input; the main effect is common to all.
        residual = cells - by_input[None, :] - cells.mean(axis=1)[:, None] + cells.mean()
        interplay = float((residual**2).sum()) / ((num_checkpoints - 1) * (num_inputs - 1))
        inputs = max(0.0, float(by_input.var(ddof=1)) - interplay / num_checkpoints)
    return VarianceSplit(inputs, checkpoints, within, inputs + checkpoints + within)
