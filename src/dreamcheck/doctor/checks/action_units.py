"""Are the recorded actions in the simulator's units?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import columns_of, fit_law, follows, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention


class ActionUnits:
    """Share of actions outside the box, and their gain against the simulator's.

    Normalised actions leave the box or move the state too far per unit.
    """

    name = "action_units"
    title = "Recorded actions are in the environment's units"
    group = "data"
    needs: tuple[str, ...] = ("episodes", "task")

    def examine(self, subject: Subject) -> Finding:
        """The larger relative error of the gain; share outside the box beside it."""
        assert subject.episodes is not None and subject.task is not None
        box = subject.task.action_box
        rows = _actions(subject)
        if not len(rows):
            raise Abstention("no complete action is recorded.")
        outside = subject.thresholds.get(self.name, "outside")
        scale = subject.thresholds.get(self.name, "scale")
        if rows.shape[1] != box.width:
            return finding(
                self,
                Verdict.WRONG,
                measured={"width": (rows.shape[1], "numbers per action")},
                limit=(1, "numbers per action"),
                threshold=outside,
                evidence=[
                    f"an action has {rows.shape[1]} numbers, the simulator takes {box.width}"
                ],
                fix="store one raw action per environment step; a block of several is flattened",
            )
        low, high = np.array(box.low), np.array(box.high)
        slack = 1e-4 * (high - low)
        out = ((rows < low - slack) | (rows > high + slack)).any(axis=1)
        measured = {"outside": (float(out.mean()), "share of actions")}
        evidence = [
            f"{int(out.sum())} of {len(rows)} actions leave [{', '.join(f'{x:g}' for x in low)}] to "
            f"[{', '.join(f'{x:g}' for x in high)}]; range {np.round(rows.min(axis=0), 3).tolist()} "
            f"to {np.round(rows.max(axis=0), 3).tolist()}"
        ]
        gain = self._gain(subject)
        off = 0.0
        if gain is not None:
            off = float(np.abs(gain - 1).max())
            measured = {"scale": (off, "relative"), **measured}
            evidence.append(
                f"gain over the simulator's, per action number: {gain.round(3).tolist()}"
            )
        else:
            evidence.append("the gain was not compared: motion is not additive, or no state")
        bad_scale, bad_range = off > scale.value, float(out.mean()) > outside.value
        bad = bad_scale or bad_range
        # The detection limit is in the headline's unit: the gain where it could be compared.
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured=measured,
            limit=(scale.value, "relative") if gain is not None else (
                max(outside.value, 1 / len(rows)), "share of actions"
            ),
            threshold=scale if gain is not None and not (bad_range and not bad_scale) else outside,
            evidence=evidence,
            fix="undo the normalisation (action * std + mean) or rescale, and store raw actions"
            if bad else "",
        )  # fmt: skip

    def _gain(self, subject: Subject) -> np.ndarray | None:
        """Main response of each action number, data over simulator; None where not comparable."""
        assert subject.episodes is not None and subject.task is not None
        if not subject.has("state"):
            return None
        additive, law = follows(subject.task, subject.rng(self.name))
        if not additive:
            return None
        try:
            columns = columns_of(subject.episodes, subject.task)
            steps = steps_of(subject.episodes, columns=columns)
        except Abstention:
            return None
        mine = fit_law(steps.actions, steps.after - steps.before)
        if mine.coefficients.shape != law.coefficients.shape:
            return None
        if float(mine.explained.max()) < 0.5:
            return None  # another fault: see action_lag and env_replay
        column = np.abs(law.coefficients).argmax(axis=1)
        rows = np.arange(len(column))
        main = law.coefficients[rows, column]
        return np.where(np.abs(main) > 1e-9, mine.coefficients[rows, column] / main, 1.0)


def _actions(subject: Subject) -> np.ndarray:
    assert subject.episodes is not None
    n = len(subject.episodes.lengths)
    if n == 0:
        return np.zeros((0, 1))
    picked = np.unique(np.linspace(0, n - 1, min(64, n)).astype(int))
    rows = np.concatenate(
        [np.asarray(subject.episodes.actions(int(e)), np.float64) for e in picked]
    )
    return rows[np.isfinite(rows).all(axis=1)]


CHECK = ActionUnits()
