"""Fitting state probes on frozen latents: ridge and a two-layer network.

Source: spec/protocol.md section 6 (R1, R2), with the split by episode of R7.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dreamcheck.errors import UsageError
from dreamcheck.models.readout import StateProbe
from dreamcheck.streams import stream
from dreamcheck.tasks.protocol import Column

RIDGE_PENALTY = 1.0
HIDDEN = 256


def fit_probe(
    latents: Tensor | np.ndarray,
    states: np.ndarray,
    *,
    kind: str,
    columns: tuple[Column, ...],
    model_identity: str,
    name: str = "probe",
    fitted_on: str = "",
    seed: int = 0,
    steps: int = 3000,
) -> StateProbe:
    """A probe without held-out errors yet; add them with ``probe.measured``.

    Args:
        latents: [N, D] of training episodes; states: [N, S].
        kind: "ridge" (closed form, penalty 1 on standardised inputs, the constant included) or
            "mlp" (two hidden layers of 256 with GELU, AdamW 2e-3 with weight decay 1e-5, cosine
            to 0, batches of 256).
        steps: of the network.
    """
    z = torch.as_tensor(np.asarray(latents), dtype=torch.float32)
    y = np.asarray(states, dtype=np.float64)
    if z.ndim != 2 or y.ndim != 2 or len(z) != len(y) or len(z) < 2 or len(columns) != y.shape[1]:
        raise UsageError(
            f"latents {tuple(z.shape)}, states {y.shape} and {len(columns)} columns do not belong "
            "together; one latent and one state per row, at least two rows."
        )
    if kind == "ridge":
        tensors = _ridge(z, y)
    elif kind == "mlp":
        tensors = _network(z, y, seed=seed, name=name, steps=steps)
    else:
        raise UsageError(f"probe kind {kind!r} is not one of ridge, mlp.")
    return StateProbe(
        name=name,
        kind=kind,
        columns=columns,
        model_identity=model_identity,
        fitted_on=fitted_on,
        heldout_on="",
        errors=(),
        tensors=tensors,
    )


def _ridge(z: Tensor, y: np.ndarray) -> dict[str, Tensor]:
    x = z.double().numpy()
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-8
    design = np.concatenate([(x - mean) / std, np.ones((len(x), 1))], axis=1)
    gram = design.T @ design + RIDGE_PENALTY * np.eye(design.shape[1])
    coefficients = np.linalg.solve(gram, design.T @ y)  # [D + 1, S]
    width = y.shape[1]
    return _float32(
        in_mean=mean,
        in_std=std,
        w0=coefficients[:-1].T,
        b0=coefficients[-1],
        out_mean=np.zeros(width),
        out_std=np.ones(width),
    )


def _network(z: Tensor, y: np.ndarray, *, seed: int, name: str, steps: int) -> dict[str, Tensor]:
    in_mean, in_std = z.mean(dim=0), z.std(dim=0, unbiased=False) + 1e-8
    out_mean, out_std = y.mean(axis=0), y.std(axis=0)
    out_std = np.where(out_std < 1e-8, 1.0, out_std)
    x = (z - in_mean) / in_std
    target = torch.from_numpy((y - out_mean) / out_std).float()
    rng = stream(seed, "probe", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        net = nn.Sequential(
            nn.Linear(x.shape[1], HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, y.shape[1]),
        )
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = torch.from_numpy(rng.integers(len(x), size=min(256, len(x))))
        loss = F.mse_loss(net(x[rows]), target[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    linears = [m for m in net if isinstance(m, nn.Linear)]
    layers = {}
    for i, linear in enumerate(linears):
        layers[f"w{i}"], layers[f"b{i}"] = linear.weight, linear.bias
    return _float32(in_mean=in_mean, in_std=in_std, out_mean=out_mean, out_std=out_std, **layers)


def _float32(**values: Tensor | np.ndarray) -> dict[str, Tensor]:
    return {
        k: torch.as_tensor(v).detach().to(torch.float32).clone().contiguous()
        for k, v in values.items()
    }
