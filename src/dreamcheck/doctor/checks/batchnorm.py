"""Does evaluation mode distort what batch normalisation passes on?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Sample, Subject
from dreamcheck.models.protocol import HasModule, WorldModel
from dreamcheck.training.batchnorm import layer_reports, mode_losses

MOST_WINDOWS = 128


class BatchNorm:
    """Prediction error in evaluation mode over that with batch statistics, on the same clips.

    Held-out clips decide; training clips beside them tell a mode effect from a data effect. Every
    pass restores modes and buffers (B1-B5, B7).
    """

    name = "batchnorm"
    title = "Evaluation-mode batch normalisation does not distort"
    group = "model"
    needs = ("model", "module", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when the gap exceeds the threshold."""
        model = subject.model
        assert model is not None and isinstance(model, HasModule)
        most = subject.thresholds.get(self.name, "gap")
        layers = layer_reports(model.module)
        if not layers:
            return finding(
                self, Verdict.FINE, threshold=most,
                evidence=["the model has no batch normalisation with running statistics"],
            )  # fmt: skip
        held = four_way(model, subject.sample)
        gap = held["eval"] / held["batch_statistics"]
        half = len(subject.sample.pixels) // 2
        halves = [
            np.log(m["eval"] / m["batch_statistics"])
            for m in (
                four_way(model, subject.sample, rows=slice(0, half)),
                four_way(model, subject.sample, rows=slice(half, None)),
            )
        ]
        noise = float(np.exp(abs(halves[0] - halves[1])))
        evidence = [
            f"held-out clips: evaluation {held['eval']:.4g}, batch statistics "
            f"{held['batch_statistics']:.4g}, training mode {held['train']:.4g}"
        ]
        measured = {
            "gap": (gap, "evaluation over batch statistics"),
            "amplification": (max(r.amplification for r in layers), "1 / sqrt(running variance)"),
            "batches": (max(r.batches for r in layers), "batches counted"),
        }
        if subject.train is not None and subject.has("frames"):
            seen = four_way(model, subject.train_sample)
            evidence.append(
                f"training clips: evaluation {seen['eval']:.4g}, batch statistics "
                f"{seen['batch_statistics']:.4g}, training mode {seen['train']:.4g}"
            )
            mode = held["eval"] - held["batch_statistics"]
            data = held["batch_statistics"] - seen["batch_statistics"]
            measured["mode_effect"] = (mode, "squared latent units")
            measured["data_effect"] = (data, "squared latent units")
            measured["training_clip_gap"] = (
                seen["eval"] / seen["batch_statistics"], "evaluation over batch statistics",
            )  # fmt: skip
            if abs(mode) > 3 * abs(data):
                evidence.append("the mode dominates, not the data")
            elif abs(data) > 3 * abs(mode):
                evidence.append("the data dominate, not the mode")
        for r in layers:
            evidence.append(
                f"{r.name}: running variance {r.variance_mean:.3g} (least {r.variance_min:.3g}), "
                f"amplification {r.amplification:.3g}, {r.batches} batches"
            )
        wrong = not gap <= most.value
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured=measured,
            limit=(max(noise, 1.0), "evaluation over batch statistics"),
            threshold=most,
            evidence=evidence,
            fix="the stored statistics lag behind the weights: `dreamcheck doctor CKPT --data "
            "TRAINING --recalibrate OUT` writes a repaired copy; compare it only with repaired "
            "ones" if wrong else "",
        )  # fmt: skip


def four_way(
    model: WorldModel, sample: Sample, *, rows: slice = slice(0, MOST_WINDOWS)
) -> dict[str, float]:
    """Mean squared one-step prediction error of the clips in every mode."""
    assert isinstance(model, HasModule)
    pixels = torch.from_numpy(np.ascontiguousarray(sample.pixels[rows]))
    blocks = torch.from_numpy(model.conventions.blocks(sample.actions[rows]))

    def loss(_: int) -> Mapping[str, float]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            latents, predicted = forward(model, pixels, blocks)
        return {"prediction": float((predicted - latents[:, -1]).square().mean())}

    return {
        mode: terms["prediction"] for mode, terms in mode_losses(model.module, loss, [0]).items()
    }


def forward(model: WorldModel, pixels: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Latents [B, n, *shape] and the prediction of the last, through every normalised path."""
    b, n = pixels.shape[:2]
    flat = pixels.reshape(b * n, *pixels.shape[2:]).to(model.device)
    latents = model.encode({"pixels": flat})
    latents = latents.reshape(b, n, *latents.shape[1:])
    actions = model.embed_actions(blocks.to(model.device))
    return latents, model.predict(latents[:, :-1], actions)


CHECK = BatchNorm()
