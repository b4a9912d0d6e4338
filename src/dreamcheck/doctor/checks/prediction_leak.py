"""Does a prediction depend on an action it cannot know?"""

from __future__ import annotations

import numpy as np
import torch

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject

ROWS = 64
STEPS = 3


class HistoryLeak:
    """Later blocks are changed; earlier predictions must not move.

    Measured against how much the block that really leaves a latent moves its prediction. Looks at
    the rollout the model offers and, where the module has a teacher-forced pass, at that too.
    """

    name = "prediction_leak"
    title = "Predictions know no later action"
    group = "model"
    needs = ("model",)

    def examine(self, subject: Subject) -> Finding:
        """Wrong when a later block moves an earlier prediction."""
        model = subject.model
        assert model is not None
        limit = subject.thresholds.get(self.name, "share")
        h = model.history_max
        rng = subject.rng("leak")
        latents = self._latents(subject, h)
        rows, width = len(latents), model.conventions.action_width
        blocks = rng.standard_normal((rows, h - 1 + STEPS, width)).astype(np.float32)
        base = subject.runner.rollout(latents, blocks, finite=False).flatten(2)
        leaked = allowed = 0.0
        for k in range(STEPS):
            changed = blocks.copy()
            changed[:, h - 1 + k] = rng.standard_normal((rows, width))
            moved = (subject.runner.rollout(latents, changed, finite=False).flatten(2) - base).abs()
            allowed = max(allowed, float(moved[:, k].max()))
            if k:
                leaked = max(leaked, float(moved[:, :k].max()))
        leaked = max(leaked, self._teacher_forced(subject, latents, blocks[:, :h]))
        share = leaked / allowed if allowed > 0 else 0.0
        bad = share > limit.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "share": (share, "of the effect of the action that is known"),
                "moved": (leaked, "latent units"),
            },
            limit=(limit.value, "of the effect of the action that is known"),
            threshold=limit,
            evidence=[
                f"changing a later block moves an earlier prediction by up to {leaked:.3g}; the "
                f"block leaving the latent moves its own by {allowed:.3g} ({rows} rows, {STEPS} "
                "steps)"
            ],
            fix="mask later positions and pair frame i with the block that leaves it; a leak makes "
            "one-step errors too good and plans worthless" if bad else "",
        )  # fmt: skip

    @staticmethod
    def _latents(subject: Subject, h: int) -> torch.Tensor:
        assert subject.model is not None
        if subject.has("frames"):
            return subject.sample.latents[:ROWS, :h]
        if subject.support is not None:
            z = torch.from_numpy(subject.support.latents[: ROWS + h]).float()
            z = z.reshape(len(z), *subject.model.latent.shape)
        else:
            z = subject.encode(subject.noise_frames(ROWS + h))
        return torch.stack([z[i : i + len(z) - h] for i in range(h)], dim=1)

    @staticmethod
    def _teacher_forced(subject: Subject, latents: torch.Tensor, blocks: np.ndarray) -> float:
        """How far earlier positions of the module's own pass move with the last block."""
        from dreamcheck.imagination.runner import frozen
        from dreamcheck.models.lewm_model import LeWM

        model = subject.model
        if not isinstance(model, LeWM) or latents.shape[1] < 2:
            return 0.0
        with frozen(model):
            a = torch.from_numpy(blocks)
            b = a.clone()
            b[:, -1] += 1.0
            z = latents.to(model.device)
            one, two = (
                model.module(z, model.module.embed_actions(x.to(model.device))) for x in (a, b)
            )
            return float((one - two)[:, :-1].abs().max())


CHECK = HistoryLeak()
