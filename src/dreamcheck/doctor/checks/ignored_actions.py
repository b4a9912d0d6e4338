"""Does the model look at the actions at all?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import STANDARD_ERRORS, declared, drive
from dreamcheck.doctor.subject import Subject


class IgnoredActions:
    """One-step error with another window's actions: it must be worse (C11).

    Also whether the model beats a frozen world at all.
    """

    name = "ignored_actions"
    title = "Predictions follow the actions"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when other actions do as well; a warning when a frozen world does."""
        assert subject.model is not None
        c, sample = subject.model.conventions, subject.sample
        least = subject.thresholds.get(self.name, "gain")
        most = subject.thresholds.get(self.name, "ratio")
        own = declared(subject)
        n = len(sample.actions)
        turned = np.roll(np.arange(n), max(1, n // 2))
        other = drive(subject, sample.latents, c.blocks(sample.actions[turned]))
        difference = (other.errors - own.errors) / own.frozen.mean()
        gain = float(difference.mean())
        noise = STANDARD_ERRORS * float(difference.std(ddof=1) / np.sqrt(n))
        ignored = not gain > least.value
        weak = not own.ratio < most.value
        cannot = ignored and np.isfinite(noise) and gain + noise > least.value and gain > noise
        verdict = (
            Verdict.CANNOT_TELL if cannot
            else Verdict.WRONG if ignored
            else Verdict.WARN if weak
            else Verdict.FINE
        )  # fmt: skip
        return finding(
            self,
            verdict,
            measured={
                "gain": (gain, "of a frozen world's error"),
                "declared": (own.ratio, "of a frozen world's error"),
            },
            limit=(max(noise, least.value), "of a frozen world's error"),
            threshold=most if weak and not ignored else least,
            evidence=[
                f"error with the recorded actions {own.ratio:.3f}, with another window's "
                f"{other.ratio:.3f} of a frozen world's ({n} windows)"
            ],
            fix="the action path is not wired in or not trained: check the embedder's input width "
            "and normalisation" if ignored
            else "the model is no better than assuming nothing moves: see the other checks of how "
            "it is driven" if weak else "",
        )  # fmt: skip


CHECK = IgnoredActions()
