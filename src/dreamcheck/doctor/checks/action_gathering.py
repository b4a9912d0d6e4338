"""Are the raw actions of a block put together the way the model reads them?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import contest, declared, drive
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.conventions import Conventions


class ActionGathering:
    """One-step error under other ways to make a block of the same width (C9-C11)."""

    name = "action_gathering"
    title = "A block's actions are gathered as in training"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when another gathering wins."""
        assert subject.model is not None
        c, sample = subject.model.conventions, subject.sample
        margin = subject.thresholds.get(self.name, "margin")
        others = {
            name: drive(subject, sample.latents, blocks)
            for name, blocks in gatherings(c, sample.actions).items()
        }
        result = contest(declared(subject), others, margin)
        wrong = result.best is not None
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured=result.measured,
            limit=result.limit(margin),
            threshold=margin,
            evidence=result.lines(),
            fix=f"the model predicts better when a block is '{result.best}': set action_combine "
            "(or the loader) to what its training used" if wrong else "",
        )  # fmt: skip


def gatherings(c: Conventions, actions: np.ndarray) -> dict[str, np.ndarray]:
    """Other blocks [B, n, action_width] from raw actions [B, n * frameskip, A]."""
    scaled = (actions - np.asarray(c.action_mean)) / np.asarray(c.action_std)
    b, f, a = len(actions), c.frameskip, c.action_dim
    g = scaled.reshape(b, -1, f, a)
    n = g.shape[1]
    if c.action_width == a:
        return {
            "mean of the block": g.mean(axis=2),
            "first action": g[:, :, 0],
            "last action": g[:, :, -1],
            "sum of the block": g.sum(axis=2),
        }
    if c.action_width != f * a:
        return {}
    wide = (b, n, f * a)
    return {
        "every action, step by step": g.reshape(wide),
        "every action, dimension by dimension": g.swapaxes(2, 3).reshape(wide),
        "every action, last step first": g[:, :, ::-1].reshape(wide),
        "block mean held": np.repeat(g.mean(axis=2, keepdims=True), f, axis=2).reshape(wide),
        "first action held": np.repeat(g[:, :, :1], f, axis=2).reshape(wide),
        "last action held": np.repeat(g[:, :, -1:], f, axis=2).reshape(wide),
    }


CHECK = ActionGathering()
