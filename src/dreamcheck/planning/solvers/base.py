"""What every solver shares: the call, the result, the trace, and how elites are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.planning.noise import Noise
from dreamcheck.planning.space import out_of_range

CandidateCost = Callable[[Tensor], Tensor]
"""Candidates [B, K, T, A] -> costs [B, K]; row b is episode b, and depends on row b only."""

NEAR_TIE = 1e-5
"""Relative cost gap under which a decision is called a near-tie (law 5)."""

Bounds = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Iteration:
    """One iteration, as it happened.

    candidates [B, K, T, A], costs [B, K], elites [B, k] ascending indices, mean and std
    [B, T, A] after the refit, margins [B] relative gap between the last elite and the next.
    """

    candidates: np.ndarray
    costs: np.ndarray
    elites: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    margins: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What a solver returns for B episodes.

    actions: float32 [B, T, A], in the candidates' units.
    elite_cost: [B] mean cost of the last elites (not the cost of ``actions``).
    margins: [B, iterations] relative cost gap at the elite boundary; under 1e-5 is a near-tie.
    out_of_range: [B] share of candidate sequences with an action outside the box, mean over
        iterations; NaN where no box was given.
    trace: per iteration, only when asked for.
    """

    actions: np.ndarray
    elite_cost: np.ndarray
    margins: np.ndarray
    out_of_range: np.ndarray
    trace: tuple[Iteration, ...] = field(default=(), repr=False)

    @property
    def near_ties(self) -> np.ndarray:
        """Iterations per episode whose elite set hung on less than 1e-5 of the cost, [B]."""
        return (self.margins < NEAR_TIE).sum(axis=1)


class Solver(Protocol):
    """Finds a cheap plan for every episode of a batch.

    name, settings: written to the record. differentiable: asks the cost for gradients.
    """

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    def solve(
        self,
        cost: CandidateCost,
        *,
        rows: int,
        horizon: int,
        width: int,
        noise: Noise,
        bounds: Bounds | None = None,
        initial: np.ndarray | None = None,
        trace: bool = False,
    ) -> Plan:
        """The plan of every row.

        Args:
            cost: [rows, K, horizon, width] -> [rows, K].
            noise: random numbers by the episodes' identities.
            bounds: the action box in the candidates' units, for the out-of-range share and for
                solvers that clamp.
            initial: [rows, horizon, width], the starting mean; zeros by default.
        """
        ...


def checked_costs(costs: Tensor, candidates: Tensor) -> Tensor:
    """The costs, refused when their shape is wrong or one of them is not finite."""
    if costs.shape != candidates.shape[:2]:
        raise UsageError(
            f"the objective returned costs of shape {tuple(costs.shape)}; expected "
            f"{tuple(candidates.shape[:2])}, one per episode and candidate."
        )
    if not torch.isfinite(costs).all():
        b, k = (~torch.isfinite(costs)).nonzero()[0].tolist()
        raise UsageError(
            f"the cost of candidate {k} of episode {b} is {costs[b, k].item()}. Likely causes: "
            "actions in the wrong units, weights that did not load, an objective that divides "
            "by zero."
        )
    return costs


def best(costs: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """The ``num`` cheapest of each row, [B, num] in order of cost, and the margins [B].

    Ties go to the lower index, on every machine. The margin is the gap between the last one kept
    and the first one left out, relative to the latter; infinite when nothing is left out.
    """
    values = costs.detach().double().cpu().numpy()
    order = np.argsort(values, axis=1, kind="stable")
    if num < values.shape[1]:
        rows = np.arange(len(values))
        last, following = values[rows, order[:, num - 1]], values[rows, order[:, num]]
        scale = np.maximum(np.abs(following), np.finfo(np.float64).tiny)
        margins = (following - last) / scale
    else:
        margins = np.full(len(values), np.inf)
    return torch.from_numpy(order[:, :num].copy()), torch.from_numpy(margins)


def gather(candidates: Tensor, index: Tensor) -> Tensor:
    """[B, K, T, A], [B, k] -> [B, k, T, A]."""
    return candidates[torch.arange(len(candidates))[:, None], index]


class Recorder:
    """Collects what the solvers report, so that each states only its own rule."""

    def __init__(self, bounds: Bounds | None, trace: bool) -> None:
        self._bounds = None if bounds is None else tuple(torch.from_numpy(b) for b in bounds)
        self._keep = trace
        self._margins: list[np.ndarray] = []
        self._outside: list[np.ndarray] = []
        self._trace: list[Iteration] = []

    def see(self, candidates: Tensor) -> None:
        """Note the share outside the box, before any clamp."""
        if self._bounds is not None:
            self._outside.append(out_of_range(candidates, *self._bounds).numpy())

    def iteration(
        self,
        candidates: Tensor,
        costs: Tensor,
        elites: Tensor,
        mean: Tensor,
        std: Tensor,
        margins: Tensor,
    ) -> None:
        """Note one finished iteration."""
        self._margins.append(margins.numpy())
        if self._keep:
            self._trace.append(
                Iteration(
                    candidates=candidates.detach().numpy().copy(),
                    costs=costs.detach().numpy().copy(),
                    elites=elites.sort(dim=1).values.numpy(),
                    mean=mean.detach().numpy().copy(),
                    std=std.detach().numpy().copy(),
                    margins=margins.numpy(),
                )
            )

    def plan(self, actions: Tensor, elite_cost: Tensor) -> Plan:
        """The finished plan."""
        rows = len(actions)
        return Plan(
            actions=actions.detach().float().numpy().copy(),
            elite_cost=elite_cost.detach().double().numpy().copy(),
            margins=np.stack(self._margins, axis=1)
            if self._margins
            else np.full((rows, 0), np.inf),
            out_of_range=(
                np.mean(self._outside, axis=0) if self._outside else np.full(rows, np.nan)
            ),
            trace=tuple(self._trace),
        )


def start(initial: np.ndarray | None, rows: int, horizon: int, width: int) -> Tensor:
    """The starting mean, float32 [rows, horizon, width]."""
    if initial is None:
        return torch.zeros(rows, horizon, width)
    mean = torch.from_numpy(np.array(initial, np.float32))
    if tuple(mean.shape) != (rows, horizon, width):
        raise UsageError(
            f"initial has shape {tuple(mean.shape)}; expected {(rows, horizon, width)}."
        )
    return mean


def checked_sizes(num_samples: int, num_elites: int, iterations: int) -> None:
    """Refuse sizes that no search can have."""
    if not 1 <= num_elites <= num_samples or iterations < 1:
        raise UsageError(
            f"num_samples = {num_samples}, num_elites = {num_elites}, iterations = {iterations}: "
            "need 1 <= num_elites <= num_samples and iterations >= 1."
        )


def elite_spread(elites: Tensor, previous: Tensor) -> Tensor:
    """Standard deviation of the elites, divisor n - 1; one elite keeps the spread there was.

    With one elite n - 1 is 0 and the deviation undefined: the reference solver turns into NaN.

    Args:
        elites: [B, k, T, A]. previous: [B, T, A].
    """
    if elites.shape[1] == 1:
        return previous
    return elites.std(dim=1, correction=1)
