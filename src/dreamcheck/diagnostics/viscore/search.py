"""Small searches that ask whether the model prefers its own fantasies to what was recorded."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from dreamcheck.digest import digest_arrays

NUM_SAMPLES = 128
NUM_ELITES = 16
NUM_ITERATIONS = 4

Cost = Callable[[Tensor], Tensor]
"""Plans [anchors, n, H, A] -> costs [anchors, n]."""

ProbeName = Literal["mini-cem", "mini-adamw", "single-adamw"]

PROBE_OF_PLANNER: dict[str, ProbeName] = {
    "cem": "mini-cem",
    "mppi": "mini-cem",
    "icem": "mini-cem",
    "predictive-sampling": "mini-cem",
    "adamw-multi-start": "mini-adamw",
    "adamw-single-start": "single-adamw",
}
"""Same search family, matched share of the budget (spec/viscore.md section 6.1)."""


class Noise(Protocol):
    """Where a search takes its standard normal numbers from; its name goes to the record."""

    name: str

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """float32 standard normal numbers of the shape, on the CPU."""
        ...


class NumpyNoise:
    """One generator seeded with crc32 of the UTF-8 cell id: the same numbers on every device."""

    def __init__(self, cell_id: str) -> None:
        seed = zlib.crc32(cell_id.encode("utf-8"))
        self._rng = np.random.default_rng(seed)
        self.name = f"numpy crc32({cell_id})={seed}"

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """float32 from float64 draws, in C order."""
        return torch.from_numpy(self._rng.standard_normal(shape).astype(np.float32))


class TorchNoise:
    """Reproduction mode: torch's generator on a device, seeded with crc32 of the cell id.

    CPU and GPU generators give different numbers, so the released column (GPU) is not reproduced
    on a CPU.

    Source: spec/viscore.md section 6, "Seeding".
    """

    def __init__(self, cell_id: str, *, device: str | torch.device = "cpu") -> None:
        self._device = torch.device(device)
        seed = zlib.crc32(cell_id.encode("utf-8"))
        self._generator = torch.Generator(device=self._device).manual_seed(seed)
        self.name = f"torch {self._device.type} crc32({cell_id})={seed}"

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """The next draws of the generator."""
        return torch.randn(shape, generator=self._generator, device=self._device).cpu()


class GivenNoise:
    """Tensors given beforehand, in the order in which the search draws them."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays = [np.asarray(a, dtype=np.float32) for a in arrays]
        self._next = 0
        content = digest_arrays({str(i): a for i, a in enumerate(self._arrays)})
        self.name = f"given {content[:12]}"

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """The next array.

        Raises:
            ValueError: none is left, or its shape is not the one the search needs.
        """
        if self._next >= len(self._arrays):
            raise ValueError(
                f"the search draws noise {self._next + 1} times but {len(self._arrays)} arrays "
                "were given."
            )
        array = self._arrays[self._next]
        if array.shape != shape:
            raise ValueError(
                f"noise array {self._next} has shape {array.shape}; the search needs {shape} "
                "(anchors, candidates, horizon in blocks, block width)."
            )
        self._next += 1
        return torch.from_numpy(array)


class KeptNoise:
    """Another source's numbers, kept as drawn, so that some anchors can be searched again on them."""

    def __init__(self, source: Noise) -> None:
        self._source = source
        self._drawn: list[Tensor] = []
        self.name = source.name

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """The source's next numbers, kept."""
        self._drawn.append(self._source.normal(shape))
        return self._drawn[-1]

    def rows(self, index: Tensor) -> GivenNoise:
        """What was drawn so far, for these anchors only, from the first draw on."""
        return GivenNoise([d[index].numpy() for d in self._drawn])


@dataclass(frozen=True)
class Found:
    """What a search ends with.

    plans: [anchors, H, A] the plan that is scored.
    elite_costs: [anchors, elites] of the last iteration; None where there are no elites.
    costs: [anchors] of the plan, when the search evaluated it already.
    """

    plans: Tensor
    elite_costs: Tensor | None
    costs: Tensor | None = None


def mini_cem(cost: Cost, recorded: Tensor, noise: Noise) -> Found:
    """Four iterations of 128 samples and 16 elites around the recorded plan.

    The mean is not itself a candidate and nothing is clamped; the final mean is what is scored.

    Args:
        recorded: [anchors, H, A] normalised blocks, the first mean.

    Source: spec/viscore.md section 6.3.
    """
    mean, std = recorded, torch.ones_like(recorded)
    rows = torch.arange(len(recorded)).unsqueeze(1)
    elite_costs = None
    for _ in range(NUM_ITERATIONS):
        epsilon = noise.normal((len(recorded), NUM_SAMPLES, *recorded.shape[1:]))
        samples = mean.unsqueeze(1) + std.unsqueeze(1) * epsilon
        costs = cost(samples)
        # Sorted indices: the refit then does not depend on the order among equal costs.
        index = torch.topk(costs, NUM_ELITES, dim=1, largest=False).indices.sort(dim=1).values
        elites = samples[rows, index]
        elite_costs = costs[rows, index]
        mean = elites.mean(dim=1)
        std = elites.std(dim=1, correction=1) + 1e-4
    return Found(plans=mean, elite_costs=elite_costs)


GradCost = Callable[[Tensor], Tensor]
"""Like Cost, differentiable: plans [anchors, n, H, A] -> costs [anchors, n] with a graph."""


def adamw_search(
    cost: GradCost,
    recorded: Tensor,
    noise: Noise,
    *,
    num_starts: int,
    num_steps: int,
    learning_rate: float = 0.1,
) -> Found:
    """AdamW on the plan itself from several starts; the plan of lowest cost wins.

    Start 0 is the recorded plan, the others add standard normal noise. Ours: the authors released
    only the values of their gradient probes (spec/viscore.md section 6.1).
    """
    starts = recorded.unsqueeze(1).repeat(1, num_starts, 1, 1)
    if num_starts > 1:
        shape = (len(recorded), num_starts - 1, *recorded.shape[1:])
        starts[:, 1:] += noise.normal(shape)
    # Every anchor and start has its own parameter slice: AdamW is elementwise, so rows are
    # independent although they share one optimiser.
    plans = starts.clone().requires_grad_(True)
    optimizer = torch.optim.AdamW([plans], lr=learning_rate)
    with torch.enable_grad():
        for _ in range(num_steps):
            optimizer.zero_grad(set_to_none=True)
            cost(plans).sum().backward()
            optimizer.step()
    final = plans.detach()
    with torch.no_grad():
        costs = cost(final).detach()
    best = costs.argmin(dim=1)
    rows = torch.arange(len(recorded))
    return Found(plans=final[rows, best], elite_costs=None, costs=costs[rows, best])
