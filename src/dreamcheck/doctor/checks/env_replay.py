"""Does the simulator reproduce the recording: its frames at its states, its states from its actions?"""

from __future__ import annotations

from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import columns_of, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError

LONG = 40
EPISODES = 12


class EnvReplay:
    """Replay of recorded actions from recorded states, and re-rendering at them (E1)."""

    name = "env_replay"
    title = "The simulator reproduces the recording"
    group = "environment"
    needs: tuple[str, ...] = ("state", "restartable")

    def examine(self, subject: Subject) -> Finding:
        """Replay error in steps' worth of motion, its first divergence, and the render error."""
        assert subject.episodes is not None and subject.task is not None
        position = subject.thresholds.get(self.name, "position")
        pixels = subject.thresholds.get(self.name, "pixels")
        columns = columns_of(subject.episodes, subject.task)
        steps = steps_of(subject.episodes, limit=1000, columns=columns)
        size = float(np.median(np.linalg.norm(steps.after - steps.before, axis=1)))
        if size == 0:
            raise Abstention("most recorded steps do not move: a replay would show nothing.")
        if steps.actions.shape[1] != subject.task.action_box.width:
            raise Abstention("recorded actions have another width than the simulator's.")
        try:
            errors = replay(subject, columns) / size  # [E, k]
        except UsageError as refused:
            return finding(
                self,
                Verdict.WRONG,
                measured={"diverged": (1.0, "share of replays")},
                limit=(position.value, "of a step's displacement / sqrt(step)"),
                threshold=position,
                evidence=[f"the simulator refuses a recorded state or action: {refused}"],
                fix="bring the recorded states to the simulator's units and column order",
            )
        k = np.arange(1, errors.shape[1] + 1)
        beyond = errors > position.value * np.sqrt(k)
        diverged = np.where(beyond.any(axis=1), beyond.argmax(axis=1) + 1, 0)
        share = float((diverged > 0).mean())
        worst = float(np.nanmax(errors / np.sqrt(k)))
        measured: dict[str, tuple[float, str]] = {
            "replay": (worst, "of a step's displacement / sqrt(step)"),
            "diverged": (share, "share of replays"),
            "one_step": (float(np.nanmedian(errors[:, 0])), "of a step's displacement"),
            "first": (int(diverged[diverged > 0].min()) if share else 0, "step, 0 for none"),
        }
        evidence = [
            f"{len(errors)} replays of up to {errors.shape[1]} steps; a step moves {size:.3g}"
        ]
        bad_render = False
        shown = self._render_error(subject, columns)
        if shown is None:
            evidence.append("frames were not re-rendered: none recorded, or not in a size it draws")
        else:
            measured["pixels"] = (shown, "0-255")
            bad_render = shown > pixels.value
        bad = share > 0
        if bad:
            e = int(diverged.argmax() if diverged.max() else 0)
            hit = np.flatnonzero(diverged)
            e, at = int(hit[0]), int(diverged[hit[0]])
            evidence.append(
                f"replay {e} leaves the tolerance at step {at}: {errors[e, at - 1]:.3g} against "
                f"{position.value * np.sqrt(at):.3g} steps' worth"
            )
        return finding(
            self,
            Verdict.WRONG if bad or bad_render else Verdict.FINE,
            measured=measured,
            limit=(position.value, "of a step's displacement / sqrt(step)"),
            threshold=pixels if bad_render and not bad else position,
            evidence=evidence,
            fix="; ".join(
                [
                    *(["use the simulator, physics and action units the data were recorded with; "
                       "from a divergence at step 1 look at units and alignment first"] if bad
                      else []),
                    *(["use the renderer the data were recorded with (size, colours, antialiasing)"]
                      if bad_render else []),
                ]
            ),
        )  # fmt: skip

    def _render_error(self, subject: Subject, columns: np.ndarray) -> float | None:
        assert subject.episodes is not None
        task: Any = subject.task
        if not subject.has("frames"):
            return None
        found = []
        for e in range(min(EPISODES, len(subject.episodes.lengths))):
            ts = np.unique(np.linspace(0, int(subject.episodes.lengths[e]) - 1, 4).astype(int))
            frames = subject.episodes.frames(e, ts)
            if frames.shape[-1] not in task.sizes:
                return None
            placed = task.with_state(
                task.reset(None, list(range(len(ts)))),
                np.asarray(subject.episodes.state(e))[ts][:, columns],
            )
            drawn = task.observe(placed, ("pixels",), image_size=frames.shape[-1])["pixels"]
            found.append(np.abs(frames.astype(float) - drawn).mean())
        return float(np.mean(found))


def replay(subject: Subject, columns: np.ndarray) -> np.ndarray:
    """Distance between replayed and recorded states, [E, steps]; NaN past an episode's end."""
    assert subject.episodes is not None
    task: Any = subject.task
    lengths = np.asarray(subject.episodes.lengths)
    chosen = np.flatnonzero(lengths > 1)[:EPISODES]
    steps = int(min(LONG, lengths[chosen].max() - 1))
    out = np.full((len(chosen), steps), np.nan)
    for i, e in enumerate(chosen.tolist()):
        states = np.asarray(subject.episodes.state(e), np.float64)[:, columns]
        actions = np.asarray(subject.episodes.actions(e), np.float64)
        state = task.with_state(task.reset(None, [0]), states[:1])
        for t in range(min(steps, len(states) - 1)):
            if not np.isfinite(actions[t]).all():
                break
            state = task.step(state, actions[t][None].astype(np.float32))
            there = np.asarray(task.observe(state, ("state",))["state"], np.float64)[0]
            out[i, t] = np.linalg.norm(there - states[t + 1])
    return out


CHECK = EnvReplay()
