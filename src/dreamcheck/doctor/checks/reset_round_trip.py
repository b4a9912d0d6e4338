"""Is a state that was set the state that is read, and is the goal image drawn at the goal state?"""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError

ROWS = 32


class ResetRoundTrip:
    """Set states, read them back, find swapped columns; goal picture against the goal's state."""

    name = "reset_round_trip"
    title = "Set states come back, goal pictures show the goal"
    group = "environment"
    needs: tuple[str, ...] = ("restartable",)

    def examine(self, subject: Subject) -> Finding:
        """Largest read-back error over the column's spread; render error of the goal picture."""
        task: Any = subject.task
        rng = subject.rng(self.name)
        seeds = [int(s) for s in rng.integers(0, 2**31 - 1, ROWS)]
        wanted = self._states(subject, seeds)
        state = task.reset(None, seeds[: len(wanted)])
        try:
            placed = task.with_state(state, wanted)
        except UsageError as e:
            raise Abstention(f"the simulator refuses a recorded state: {e}") from e
        got = np.asarray(task.observe(placed, ("state",))["state"], np.float64)
        spread = wanted.std(axis=0)
        spread = np.where(spread > 1e-9, spread, 1.0)
        error = np.abs(got - wanted).max(axis=0) / spread
        limit = subject.thresholds.get(self.name, "state")
        pixel = subject.thresholds.get(self.name, "pixels")
        bad = bool(error.max() > limit.value)
        evidence, fixes = [], []
        if bad:
            names = [c.name for c in task.columns]
            c = int(error.argmax())
            evidence.append(
                f"{names[c]}: set {wanted[0, c]:.4g}, read {got[0, c]:.4g} {task.columns[c].unit}"
            )
            order = _order(wanted, got, tolerance=limit.value * float(spread.min()))
            if order is not None:
                said = [names[i] for i in order]
                evidence.append(f"the columns come back as {', '.join(said)}")
                fixes.append("set the state in the order in which it is read")
            else:
                fixes.append("set the state exactly, or branch by reset and replay of the prefix")
        shown = self._goal_error(task, state)
        measured = {"state": (float(error.max()), "of the column's spread")}
        bad_goal = False
        if shown is not None:
            measured["goal_pixels"] = (shown, "0-255")
            bad_goal = shown > pixel.value
            if bad_goal:
                fixes.append(
                    "render the goal picture at the goal state, velocities and walls alike"
                )
        return finding(
            self,
            Verdict.WRONG if bad or bad_goal else Verdict.FINE,
            measured=measured,
            limit=(limit.value, "of the column's spread"),
            threshold=pixel if bad_goal and not bad else limit,
            evidence=[*evidence, f"{len(wanted)} states set and read"],
            fix="; ".join(fixes),
        )

    def _states(self, subject: Subject, seeds: list[int]) -> np.ndarray:
        """Recorded states where there are any, else those of other resets, some steps on."""
        task: Any = subject.task
        columns = [c.name for c in task.columns]
        data = subject.episodes
        if data is not None and [c.name for c in data.columns] == columns:
            picked = subject.rng("reset rows").permutation(len(data.lengths))[:ROWS].tolist()
            ends = [np.asarray(data.state(e), np.float64)[-1] for e in picked]
            found = np.array(ends).reshape(len(ends), len(columns))
            found = found[np.isfinite(found).all(axis=1)]
            if len(found) >= 8:
                return found.astype(np.float32).astype(np.float64)
        state = task.reset(None, [s + 1 for s in seeds])
        for _ in range(5):
            state = task.step(state, np.zeros((len(seeds), task.action_box.width), np.float32))
        return np.asarray(task.observe(state, ("state",))["state"], np.float64)

    def _goal_error(self, task: Any, state: Any) -> float | None:
        side = min(task.sizes)
        shown = task.goal_observation(state, image_size=side)
        if "pixels" not in shown or "state" not in shown:
            return None
        goals = np.asarray(shown["state"], np.float64)
        if "goal" in shown and np.shape(shown["goal"]) == goals.shape:
            goals = np.asarray(shown["goal"], np.float64)
        drawn = task.observe(task.with_state(state, goals), ("pixels",), image_size=side)["pixels"]
        return float(np.abs(shown["pixels"].astype(float) - drawn).mean())


def _order(wanted: np.ndarray, got: np.ndarray, *, tolerance: float) -> list[int] | None:
    """Which column of ``wanted`` each column of ``got`` holds, if it is another order."""
    apart = np.abs(got[:, :, None] - wanted[:, None, :]).max(axis=0)  # [got, wanted]
    best = apart.argmin(axis=1)
    fits = apart[np.arange(len(best)), best].max() <= tolerance
    swapped = sorted(best.tolist()) == list(range(len(best))) and best.tolist() != sorted(best)
    return best.tolist() if fits and swapped else None


CHECK = ResetRoundTrip()
