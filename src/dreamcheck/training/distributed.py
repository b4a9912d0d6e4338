"""Regularisers whose batch is spread over processes: the same number and gradient as in one.

SIGReg compares the batch's characteristic function with a normal one. Its statistic is not a mean
over samples, so computing it per process and averaging is another loss: each process would see a
smaller batch and its own sampling error (le-wm issue 24). Here the sums over the batch are added up
across processes first.

Gradients follow DistributedDataParallel's rule, which averages parameter gradients over processes:
after that averaging they equal those of one process with the whole batch. BatchNorm layers need
``torch.nn.SyncBatchNorm`` for the same reason. Every process must use the same directions.

Source: spec/viscore.md section 13.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dreamcheck.errors import UsageError
from dreamcheck.training.losses import VISRegTerms, visreg


class _SumOverProcesses(torch.autograd.Function):
    """Adds up a tensor over all processes; so does its gradient on the way back.

    Every process holds the whole loss, so each sum's gradient arrives once per process; dividing
    by their number is what gradient averaging does afterwards.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.detach().clone()
        dist.all_reduce(total)
        return total


def num_processes() -> int:
    """How many processes train together; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_processes(value: Tensor) -> Tensor:
    """The sum over processes, differentiable; the value itself where there is one process."""
    if num_processes() == 1:
        return value
    result: Tensor = _SumOverProcesses.apply(value)
    return result


def shared_directions(directions: Tensor) -> Tensor:
    """Process 0's directions, on every process: one draw per call, as in one process."""
    if num_processes() > 1:
        directions = directions.contiguous().clone()
        dist.broadcast(directions, src=0)
    return directions


def sigreg_across(latents: Tensor, directions: Tensor, *, knots: int = 17) -> Tensor:
    """SIGReg of the batch of all processes together; equal on every process.

    Args:
        latents: [T, B, D], this process's part; B may differ between processes.
        directions: [D, K] unit columns, the same everywhere (``shared_directions``).
        knots: equally spaced points on [0, 3], at least 2.
    """
    latents, directions = latents.float(), directions.float()
    t = torch.linspace(0.0, 3.0, knots, device=latents.device)
    phi = torch.exp(-t * t / 2)
    weights = 2.0 * (3.0 / (knots - 1)) * phi
    weights[0] /= 2
    weights[-1] /= 2
    angles = (latents @ directions).unsqueeze(-1) * t  # [T, B, K, knots]
    sums = torch.stack([angles.cos().sum(dim=1), angles.sin().sum(dim=1)])
    count = torch.tensor(float(latents.shape[1]), device=latents.device)
    total = sum_over_processes(sums)
    batch = sum_over_processes(count)
    real, imaginary = total[0] / batch - phi, total[1] / batch
    return (batch * ((real * real + imaginary * imaginary) @ weights)).mean()


def gather_batch(latents: Tensor) -> Tensor:
    """[T, B, D] of every process side by side, [T, sum of B, D], differentiable.

    Raises:
        UsageError: processes hold batches of different sizes.
    """
    n = num_processes()
    if n == 1:
        return latents
    sizes = torch.zeros(n, dtype=torch.int64, device=latents.device)
    sizes[dist.get_rank()] = latents.shape[1]
    dist.all_reduce(sizes)
    if (sizes != latents.shape[1]).any():
        raise UsageError(
            f"processes hold batches of {sizes.tolist()} rows; sorting over the whole batch needs "
            "equal ones. Drop the last partial batch."
        )
    # Everyone fills in its own place of a table of zeros; the sum is the gathered batch.
    rank, b = dist.get_rank(), latents.shape[1]
    before = latents.new_zeros(latents.shape[0], rank * b, latents.shape[2])
    after = latents.new_zeros(latents.shape[0], (n - rank - 1) * b, latents.shape[2])
    return sum_over_processes(torch.cat([before, latents, after], dim=1))


def visreg_across(latents: Tensor, directions: Tensor, **weights: float) -> VISRegTerms:
    """VISReg of the batch of all processes together; its shape term sorts over the whole batch.

    Args:
        latents: [T, B, D], this process's part; B equal on every process.
        directions: [D, K] unit columns, the same everywhere.
        weights: as for ``losses.visreg``.
    """
    return visreg(gather_batch(latents), directions, **weights)
