"""Does the model hold or return numbers that are none?"""

from __future__ import annotations

import numpy as np
import torch

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule


class ModelNaN:
    """NaN or infinity in parameters and buffers, in latents, and in predictions.

    Frames: the sample where there are data, else noise; and black, white and grey ones. Actions:
    standard normal, and three deviations out.
    """

    name = "model_nan"
    title = "Weights, latents and predictions are finite"
    group = "model"
    needs = ("model",)

    def examine(self, subject: Subject) -> Finding:
        """Wrong when a single number is not finite."""
        model = subject.model
        assert model is not None
        limit = subject.thresholds.get(self.name, "share")
        held, evidence = 0, []
        if isinstance(model, HasModule):
            for name, t in (*model.module.named_parameters(), *model.module.named_buffers()):
                if t.is_floating_point() and not torch.isfinite(t).all():
                    held += int((~torch.isfinite(t)).sum())
                    evidence.append(f"{name} holds NaN or infinity")
        latents = self._latents(subject)
        encoded = int((~torch.isfinite(latents.flatten(1)).all(dim=1)).sum())
        rows, h = len(latents), model.history_max
        window = torch.stack([latents.roll(-i, dims=0) for i in range(h)], dim=1)
        raw = subject.rng("nan").standard_normal((rows, h, model.conventions.action_width))
        predicted = 0
        for size in (1.0, 3.0):
            blocks = (size * raw).astype(np.float32)
            out = subject.runner.rollout(window, blocks, finite=False)
            predicted += int((~torch.isfinite(out.flatten(1)).all(dim=1)).sum())
        if encoded:
            evidence.append(f"{encoded} of {rows} frames have a latent that is not finite")
        if predicted:
            evidence.append(f"{predicted} of {2 * rows} predictions are not finite")
        share = max(encoded / rows, predicted / (2 * rows))
        bad = held > 0 or share > limit.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "share": (share, "of frames or predictions"),
                "weights": (held, "numbers in weights and buffers"),
                "frames": (rows, "frames looked at"),
            },
            # Fewer than this share can hide from this many rows (rule of three).
            limit=(3 / rows, "of frames or predictions"),
            threshold=limit,
            evidence=evidence,
            fix="do not evaluate: weights diverged, did not load, or overflow in this precision"
            if bad else "",
        )  # fmt: skip

    @staticmethod
    def _latents(subject: Subject) -> torch.Tensor:
        assert subject.model is not None
        size = subject.model.conventions.image_size
        flat = np.stack([np.full((3, size, size), v, np.uint8) for v in (0, 127, 255)])
        if subject.has("frames"):
            seen = subject.sample.latents.flatten(0, 1)
        else:
            seen = subject.encode(subject.noise_frames(64))
        return torch.cat([seen, subject.encode(flat)])


CHECK = ModelNaN()
