"""Does an action move the frame it is recorded with, or the one beside it?"""

from __future__ import annotations

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import contest, drive
from dreamcheck.doctor.subject import Subject


class ActionLag:
    """One-step error with the actions shifted by environment steps and by whole blocks (C2, P12)."""

    name = "model_lag"
    title = "Actions are not shifted against the frames"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when another lag than 0 wins."""
        assert subject.model is not None
        c = subject.model.conventions
        f, n = c.frameskip, subject.model.history_max + 1
        margin = subject.thresholds.get(self.name, "margin")
        # One block to spare on both sides; the frames in the middle are the windows.
        clips = subject.draw(frames=n + 2, role="lag")
        latents = subject.encode(clips.pixels[:, 1 : n + 1])
        span = (n - 1) * f
        lags = sorted({0, -f, f, *(k for k in (-2, -1, 1, 2) if abs(k) < f)})
        driven = {
            lag: drive(subject, latents, c.blocks(clips.actions[:, f + lag : f + lag + span]))
            for lag in lags
        }
        others = {f"actions {abs(k)} step(s) {'later' if k > 0 else 'earlier'}": d
                  for k, d in driven.items() if k}  # fmt: skip
        result = contest(driven[0], others, margin)
        wrong = result.best is not None
        best = min(driven, key=lambda k: driven[k].ratio)
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured={
                "best_lag": (best if wrong else 0, "environment steps"),
                **result.measured,
            },
            limit=(1, "environment steps"),
            threshold=margin,
            evidence=result.lines(),
            fix=f"the model predicts better with {result.best}: action t must move frame t to "
            "t + 1 and the last row of an episode be NaN (files of stable-worldmodel 0.1.1 hold "
            "the actions one row early)" if wrong else "",
        )  # fmt: skip


CHECK = ActionLag()
