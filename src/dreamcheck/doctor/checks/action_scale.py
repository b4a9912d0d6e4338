"""Do recorded actions reach the model in the size it was trained with?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import contest, declared, drive
from dreamcheck.doctor.subject import Subject

FACTORS = (0.2, 0.5, 0.8, 1.25, 2.0, 3.0, 5.0, 7.0)
"""Spec C12 sweeps 0.5 to 7; the others find scales that are slightly off."""


class ActionScale:
    """One-step error with the raw actions multiplied by a factor: 1 must win (C12).

    Also how many recorded actions lie outside the task's box: normalised actions in the file.
    """

    name = "action_scale"
    title = "Actions have the scale and units the model was trained with"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when another factor (or actions left unstandardised) wins."""
        assert subject.model is not None
        c, sample = subject.model.conventions, subject.sample
        margin = subject.thresholds.get(self.name, "margin")
        most_outside = subject.thresholds.get(self.name, "outside")
        mean, std = np.asarray(c.action_mean), np.asarray(c.action_std)
        drivings = {f"actions x {k:g}": k * sample.actions for k in FACTORS}
        # blocks() standardises; undoing it beforehand feeds the recorded numbers as they are.
        drivings["recorded numbers, not standardised"] = sample.actions * std + mean
        others = {
            name: drive(subject, sample.latents, c.blocks(raw)) for name, raw in drivings.items()
        }
        own = declared(subject)
        result = contest(own, others, margin)
        outside = self._outside(subject, sample.actions)
        far = outside is not None and outside > most_outside.value
        evidence = result.lines()[:5]
        if outside is not None:
            evidence.append(f"{outside:.1%} of the recorded actions lie outside the task's box")
        wrong = result.best is not None
        fix = ""
        if wrong:
            fix = (
                f"the model predicts better with {result.best}: check action_mean, action_std and "
                "the units of the recorded actions (raw or standardised) against its training"
            )
        elif far:
            fix = "store raw environment actions, or declare their units; the task clamps them"
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.WARN if far else Verdict.FINE,
            measured={
                **result.measured,
                **({} if outside is None else {"outside": (outside, "of recorded actions")}),
            },
            limit=result.limit(margin),
            threshold=margin,
            evidence=evidence,
            fix=fix,
        )

    @staticmethod
    def _outside(subject: Subject, actions: np.ndarray) -> float | None:
        if subject.task is None or actions.shape[-1] != subject.task.action_box.width:
            return None
        low, high = (np.asarray(b) for b in (subject.task.action_box.low,
                                             subject.task.action_box.high))  # fmt: skip
        slack = 1e-4 * (high - low)
        return float(((actions < low - slack) | (actions > high + slack)).any(axis=-1).mean())


CHECK = ActionScale()
