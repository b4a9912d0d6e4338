"""Is every action stored in the row it leaves?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import fit_law, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

LAGS = (-2, -1, 0, 1, 2)


class ActionLag:
    """Explained displacement at each lag of the actions; lag 0 must win (C2)."""

    name = "action_lag"
    title = "Actions stand in the row they leave"
    group = "data"
    needs = ("state",)

    def examine(self, subject: Subject) -> Finding:
        """The lag that explains displacement best, and by how much."""
        assert subject.episodes is not None
        shares: dict[int, float] = {}
        for lag in LAGS:
            steps = steps_of(subject.episodes, lag=lag)
            # No trimming: a shifted action is wrong exactly where a trimmed fit would look away.
            law = fit_law(steps.actions, steps.after - steps.before, trim=0.0)
            shares[lag] = float(law.explained.max())
        best = max(shares, key=lambda k: shares[k])
        gain = shares[best] - shares[0]
        if shares[best] < 0.1:
            raise Abstention(
                f"no lag explains the displacement (at most {shares[best]:.0%}): the motion is not "
                "additive in the action, so a shift cannot be seen this way."
            )
        threshold = subject.thresholds.get(self.name, "gain")
        bad = best != 0 and gain > threshold.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "lag": (best, "steps"),
                "gain": (gain, "explained share"),
                "explained": (shares[0], "explained share at lag 0"),
            },
            limit=(1, "steps"),
            threshold=threshold,
            evidence=[
                "explained displacement by lag: "
                + ", ".join(f"{k:+d}: {v:.1%}" for k, v in shares.items())
            ],
            fix=f"shift the action column by {best:+d} row(s): row t must hold the action that "
            "leaves frame t" if bad else "",
        )  # fmt: skip


def shifted(actions: np.ndarray, by: int) -> np.ndarray:
    """One episode's actions [L, A] moved ``by`` rows later, the last row NaN."""
    out = np.roll(actions[:-1], by, axis=0)
    return np.concatenate([out, actions[-1:]])


CHECK = ActionLag()
