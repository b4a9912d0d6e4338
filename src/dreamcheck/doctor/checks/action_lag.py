"""Is every action stored in the row it leaves?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import Law, Steps, fit_law, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

LAGS = (-2, -1, 0, 1, 2)


class ActionLag:
    """Explained displacement at each lag of the actions; lag 0 must win (C2)."""

    name = "action_lag"
    title = "Actions stand in the row they leave"
    group = "data"
    needs: tuple[str, ...] = ("state",)

    def examine(self, subject: Subject) -> Finding:
        """The lag that explains displacement best, and by how much."""
        assert subject.episodes is not None
        moves = {lag: steps_of(subject.episodes, lag=lag) for lag in LAGS}
        # No trimming: a shifted action is wrong exactly where a trimmed fit would look away.
        laws = {lag: fit_law(m.actions, m.after - m.before, trim=0.0) for lag, m in moves.items()}
        shares = {lag: float(law.explained.max()) for lag, law in laws.items()}
        best = max(shares, key=lambda k: shares[k])
        gain = shares[best] - shares[0]
        if shares[best] < 0.1:
            raise Abstention(
                f"no lag explains the displacement (at most {shares[best]:.0%}): the motion is not "
                "additive in the action, so a shift cannot be seen this way."
            )
        threshold = subject.thresholds.get(self.name, "gain")
        part = subject.thresholds.get(self.name, "share")
        late, seen = _episodes_late(moves, laws[best], margin=threshold.value)
        all_late = best != 0 and gain > threshold.value
        some_late = seen > 0 and late / seen > part.value
        bad = all_late or some_late
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "lag": (best, "steps"),
                "gain": (gain, "explained share"),
                "episodes": (late / max(seen, 1), "share of episodes better off at another lag"),
                "explained": (shares[0], "explained share at lag 0"),
            },
            limit=(1, "steps"),
            threshold=part if some_late and not all_late else threshold,
            evidence=[
                f"{late} of {seen} episodes are explained better at another lag than 0",
                "explained displacement by lag: "
                + ", ".join(f"{k:+d}: {v:.1%}" for k, v in shares.items())
            ],
            fix="row t must hold the action that leaves frame t: take each action from "
            f"{best:+d} row(s) on" if all_late else "row t must hold the action that leaves frame "
            "t: some episodes were recorded otherwise, shift them or leave them out" if bad else "",
        )  # fmt: skip


def _episodes_late(moves: dict[int, Steps], law: Law, *, margin: float) -> tuple[int, int]:
    """Episodes that another lag explains better than lag 0 by ``margin``, and episodes judged."""
    late = judged = 0
    for e in np.unique(moves[0].episodes):
        misses = {}
        for lag, m in moves.items():
            rows = m.episodes == e
            moved = (m.after - m.before)[rows]
            total = float(((moved - moved.mean(axis=0)) ** 2).sum()) if rows.sum() >= 10 else 0.0
            if total > 0:
                rest = moved - m.actions[rows] @ law.coefficients
                misses[lag] = float((rest**2).sum()) / total
        if len(misses) == len(moves):
            judged += 1
            late += min(misses.values()) < misses[0] - margin
    return late, judged


def shifted(actions: np.ndarray, by: int) -> np.ndarray:
    """One episode's actions [L, A] moved ``by`` rows later, the last row NaN."""
    out = np.roll(actions[:-1], by, axis=0)
    return np.concatenate([out, actions[-1:]])


CHECK = ActionLag()
