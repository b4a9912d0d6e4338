"""How many environment steps lie between two recorded rows?"""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import columns_of, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError

MOST = 10


class FrameskipData:
    """Steps per row measured by holding each recorded action 0 to 10 steps in the simulator."""

    name = "frameskip_data"
    title = "One recorded row is one environment step"
    group = "data"
    needs: tuple[str, ...] = ("state", "restartable")

    def examine(self, subject: Subject) -> Finding:
        """The number of held steps that fits best, and the share of rows that did not move."""
        assert subject.episodes is not None and subject.task is not None
        task: Any = subject.task
        steps = steps_of(
            subject.episodes, limit=400, columns=columns_of(subject.episodes, subject.task)
        )
        box = subject.task.action_box
        if steps.actions.shape[1] != box.width:
            raise Abstention(
                f"an action has {steps.actions.shape[1]} numbers, the simulator takes {box.width}: "
                "see action_units."
            )
        n = len(steps)
        state = task.reset(None, list(range(n)))
        try:
            state = task.with_state(state, steps.before.astype(np.float32))
        except UsageError as e:
            raise Abstention(f"the simulator refuses a recorded state: {e}") from e
        errors = [np.linalg.norm(steps.after - steps.before, axis=1)]
        for _ in range(MOST):
            state = task.step(state, steps.actions.astype(np.float32))
            there = np.asarray(task.observe(state, ("state",))["state"], np.float64)
            errors.append(np.linalg.norm(steps.after - there, axis=1))
        table = np.stack(errors)  # [steps held, N]
        moves = np.linalg.norm(steps.actions, axis=1) > 0.05
        if moves.sum() < 30:
            raise Abstention("fewer than 30 recorded actions are above rest.")
        medians = np.median(table[:, moves], axis=1)
        best = int(medians.argmin())
        choice = table[:, moves].argmin(axis=0)
        # Ties go to one step: a row against a wall looks the same after any number.
        one = table[1, moves] <= table[:, moves].min(axis=0) + 1e-6
        stuck = float(np.mean((choice == 0) & ~one))
        wanted = subject.thresholds.get(self.name, "steps")
        share = subject.thresholds.get(self.name, "share")
        bad = best != int(wanted.value) or stuck > share.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "steps": (best, "environment steps per row"),
                "stuck": (stuck, "share of rows that repeat the row before"),
                "rows": (int(moves.sum()), "rows"),
            },
            limit=(1, "environment steps per row"),
            threshold=wanted if best != int(wanted.value) else share,
            evidence=[
                "median miss by steps held: "
                + ", ".join(f"{k}: {m:.3g}" for k, m in enumerate(medians[:6])),
            ],
            fix="record every environment step, and let the model's frameskip skip; or declare the "
            f"{max(best, 1)} step(s) that one row spans and set the model's frameskip accordingly"
            if bad else "",
        )  # fmt: skip


CHECK = FrameskipData()
