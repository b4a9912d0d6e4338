"""VIScore of a model that is nothing but arrays, with latents computed elsewhere.

    python examples/score_arrays.py                    # a small world made here, in seconds
    python examples/score_arrays.py golden/healthy.npz # one of the golden cases of the VIScore data

Two things are all that a score needs beside the arrays: a class with the members of a
``WorldModel`` (conventions, latent, history, identity; ``embed_actions`` and ``predict``) and a
``Probe``. No image and no encoder takes part: the latents of the probe's rows are given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.diagnostics.viscore import (
    Criterion,
    LatentBank,
    Probe,
    ScoreSettings,
    bank_from_latents,
    baseline_table,
    score,
    table,
)
from dreamcheck.digest import digest_arrays
from dreamcheck.models.conventions import Conventions
from dreamcheck.models.protocol import LatentSpec


class ArrayModel:
    """A world model whose predictor is a handful of matrices, named as in the golden cases.

    The next latent is bias + Σ over lags (z·M[lag] + u·N[lag]) + g·tanh(z·P + u·Q) +
    e·sin(w·(z·R)), with u the embedded action block; a shorter context drops the later lags.
    """

    device = torch.device("cpu")
    history_min = 1

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._p = {k: torch.from_numpy(np.asarray(v, dtype=np.float32)) for k, v in arrays.items()}
        width = arrays["model_W_act"].shape[0]
        self.history_max = int(arrays["model_M"].shape[0])
        self.latent = LatentSpec(shape=(int(arrays["model_P"].shape[0]),))
        # Whatever changes a prediction must change the identity: it names every cached latent.
        self.identity = digest_arrays({k: np.atleast_1d(v) for k, v in arrays.items()})
        self.conventions = Conventions(
            image_size=1,
            frameskip=1,
            action_dim=width,
            action_mean=(0.0,) * width,
            action_std=(1.0,) * width,
            history=self.history_max,
        )

    def encode(self, observation: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Not called: the bank is made from given latents."""
        raise NotImplementedError("the latents are given")

    def embed_actions(self, blocks: torch.Tensor) -> torch.Tensor:
        """[B, T, A] normalised blocks -> [B, T, E]."""
        return blocks @ self._p["model_W_act"]

    def predict(
        self,
        latents: torch.Tensor,
        actions: torch.Tensor,
        *,
        row_seeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[B, h, D] latents and [B, h, E] embedded blocks, oldest first -> the next latent [B, D]."""
        p = {k.removeprefix("model_"): v for k, v in self._p.items()}
        n = latents.shape[1]
        out = p["bias"]
        for lag in range(n):
            z, u = latents[:, n - 1 - lag], actions[:, n - 1 - lag]
            out = out + z @ p["M"][lag] + u @ p["N"][lag]
        last, act = latents[:, -1], actions[:, -1]
        out = out + p["g"] * torch.tanh(last @ p["P"] + act @ p["Q"])
        return out + p["e"] * torch.sin(p["w"] * (last @ p["R"]))


def load_case(path: str | Path) -> tuple[ArrayModel, Criterion, Probe, LatentBank, dict[str, Any]]:
    """A golden case: model, criterion, probe, bank, and what ``golden.json`` expects of it."""
    path = Path(path)
    with np.load(path) as f:
        arrays = dict(f)
    expected = json.loads((path.parent / "golden.json").read_text())[path.stem]
    task = expected["task"]
    columns = tuple(f"s{i}" for i in range(arrays["state"].shape[1]))
    criterion = Criterion(
        task=f"golden_{path.stem}",
        tolerance=task["tolerance"],
        unit="units",
        metric=task["metric"],
        graded=tuple(columns[i] for i in task["graded_columns"]),
        nuisance=tuple(columns[i] for i in task["nuisance_columns"]),
        probe_targets=tuple(columns[i] for i in task["probe_target_columns"]),
        horizon=task["horizon"],
        curve=task["rollout_h_max"],
        frameskip=1,
    )
    return (*assemble(arrays, criterion, columns), expected)


def assemble(
    arrays: Mapping[str, np.ndarray], criterion: Criterion, columns: tuple[str, ...]
) -> tuple[ArrayModel, Criterion, Probe, LatentBank]:
    """The parts of a score from arrays z, act_blocks, ep_ptr, state and model_*."""
    model = ArrayModel({k: v for k, v in arrays.items() if k.startswith("model_")})
    probe = Probe.from_arrays(
        act_blocks=arrays["act_blocks"],
        ep_ptr=arrays["ep_ptr"],
        state=arrays["state"],
        columns=columns,
        frameskip=criterion.frameskip,
    )
    return model, criterion, probe, bank_from_latents(model, probe, arrays["z"])


def made_here(
    width: int = 16, episodes: int = 20, rows: int = 25
) -> tuple[ArrayModel, Criterion, Probe, LatentBank]:
    """A linear world that the model knows but for its noise; a tolerance about one step wide."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0] * 0.95
    push = rng.standard_normal((4, width)) * 0.4
    blocks = rng.standard_normal((episodes * rows, 4)).astype(np.float32)
    z = np.zeros((episodes * rows, width))
    for e in range(episodes):
        z[e * rows] = rng.standard_normal(width)
        for t in range(e * rows, (e + 1) * rows - 1):
            z[t + 1] = z[t] @ turn + blocks[t] @ push + 0.1 * rng.standard_normal(width)
    nothing, zero = np.zeros((width, width)), np.zeros(())
    arrays = {
        "z": z.astype(np.float32),
        "act_blocks": blocks,
        "ep_ptr": np.arange(episodes + 1) * rows,
        "state": z[:, :2].astype(np.float32),
        "model_W_act": np.eye(4),
        "model_M": turn[None],
        "model_N": push[None],
        "model_P": nothing,
        "model_Q": np.zeros((4, width)),
        "model_R": nothing,
        "model_bias": np.zeros(width),
        "model_g": zero,
        "model_e": zero,
        "model_w": zero,
    }
    criterion = Criterion(
        task="linear", tolerance=1.0, unit="units", graded=("x", "y"), curve=8, frameskip=1
    )
    return assemble(arrays, criterion, ("x", "y"))


def main(path: str | None = None) -> None:
    """Score and print; sixteen latent numbers are outside the calibrated widths, so it is said."""
    model, criterion, probe, bank = load_case(path)[:4] if path else made_here()
    settings = ScoreSettings(reference=not 96 <= bank.width <= 384)
    record = score(model, criterion, probe, bank=bank, cell_id="arrays", settings=settings)
    print(table([record]))
    print(baseline_table([record]))


if __name__ == "__main__":
    main(*sys.argv[1:2])
