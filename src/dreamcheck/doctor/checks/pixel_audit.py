"""Are recorded frames upright, in RGB order, and alive?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import columns_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention

Change = Callable[[np.ndarray], np.ndarray]

ORIENTATIONS: dict[str, Change] = {
    "upright": lambda x: x,
    "flipped left-right": lambda x: x[..., ::-1],
    "flipped up-down": lambda x: x[..., ::-1, :],
    "turned by 180 degrees": lambda x: x[..., ::-1, ::-1],
    "transposed": lambda x: np.swapaxes(x, -1, -2),
    "turned left": lambda x: np.rot90(x, 1, axes=(-2, -1)),
    "turned right": lambda x: np.rot90(x, -1, axes=(-2, -1)),
    "transposed the other way": lambda x: np.rot90(np.swapaxes(x, -1, -2), 2, axes=(-2, -1)),
}
"""How a recorder may have turned a picture; each undoes or equals one of the others."""

ORDERS: dict[str, Change] = {
    "RGB": lambda x: x,
    "BGR": lambda x: x[:, ::-1],
    "inverted": lambda x: 255 - x,
}


class PixelAudit:
    """Blank and frozen frames; orientation and channel order against the simulator's renderer."""

    name = "pixel_audit"
    title = "Recorded frames are upright, RGB and alive"
    group = "data"
    needs: tuple[str, ...] = ("frames",)

    def examine(self, subject: Subject) -> Finding:
        """Mean absolute error of the recorded convention minus that of the best other one."""
        assert subject.episodes is not None
        frames, states, pairs, moving = _sample(subject)
        blank = int((frames.reshape(len(frames), -1).std(axis=1) == 0).sum())
        frozen = (pairs[:, 0] == pairs[:, 1]).reshape(len(pairs), -1).all(axis=1)
        stuck = float(frozen[moving].mean()) if moving.sum() >= 10 else 0.0
        constant = subject.thresholds.get(self.name, "constant")
        still = subject.thresholds.get(self.name, "frozen")
        margin = subject.thresholds.get(self.name, "margin")
        measured: dict[str, tuple[float, str]] = {
            "constant": (blank, "frames"),
            "frozen": (stuck, "share of moving steps"),
        }
        evidence = [f"{len(frames)} frames and {int(moving.sum())} moving steps looked at"]
        fixes, verdict, threshold = [], Verdict.FINE, constant
        if blank > constant.value or stuck > still.value:
            verdict, threshold = Verdict.WRONG, constant if blank else still
            fixes.append("record frames after each step; drop blank ones")
        rendered = self._rendered(subject, states, frames.shape[-1])
        if rendered is None:
            evidence.append("orientation and channels were not compared: no simulator, or it does "
                            f"not draw {frames.shape[-1]} px frames")  # fmt: skip
        else:
            table = {
                (turn, order): float(
                    np.abs(change(recolour(frames)).astype(float) - rendered).mean()
                )
                for turn, change in ORIENTATIONS.items()
                for order, recolour in ORDERS.items()
            }
            own = table.pop(("upright", "RGB"))
            name, best = min(table.items(), key=lambda kv: kv[1])
            measured = {"advantage": (best - own, "0-255"), "error": (own, "0-255"), **measured}
            evidence.append(
                f"as recorded {own:.3g}; best other: {', '.join(name)} {best:.3g} (mean absolute "
                "error, 0-255)"
            )
            if best - own < margin.value:
                verdict, threshold = Verdict.WRONG, margin
                fixes.append(f"convert the frames: they match the renderer when {', '.join(name)}")
            elif best == own and verdict is Verdict.FINE:
                verdict = Verdict.CANNOT_TELL
                evidence.append("several conventions give the same picture")
        return finding(
            self,
            verdict,
            measured=measured,
            limit=(1, "frames") if rendered is None else (0.0, "0-255"),
            threshold=threshold,
            evidence=evidence,
            fix="; ".join(fixes),
        )

    def _rendered(self, subject: Subject, states: np.ndarray, side: int) -> np.ndarray | None:
        task: Any = subject.task
        if task is None or not subject.has("restartable") or side not in task.sizes:
            return None
        if not subject.has("state") or subject.episodes is None:
            return None
        try:
            states = states[:, columns_of(subject.episodes, task)]
        except Abstention:
            return None
        state = task.with_state(task.reset(None, list(range(len(states)))), states)
        return task.observe(state, ("pixels",), image_size=side)["pixels"].astype(float)


def _sample(subject: Subject) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Frames [N, 3, H, W] with states, and consecutive pairs with whether the state moved."""
    assert subject.episodes is not None
    lengths = np.asarray(subject.episodes.lengths)
    rng = subject.rng("pixel_audit")
    frames, states, moving = [], [], []
    for e in rng.permutation(len(lengths))[:16].tolist():
        if lengths[e] < 2:
            continue
        ts = np.sort(rng.choice(lengths[e] - 1, min(6, lengths[e] - 1), replace=False))
        both = np.stack([ts, ts + 1], axis=1).reshape(-1)
        frames.append(subject.episodes.frames(e, both))
        state = np.asarray(subject.episodes.state(e), np.float64)[both]
        states.append(state)
        step = state.reshape(len(ts), 2, -1)
        apart = np.abs(step[:, 1] - step[:, 0])
        # Half a frame of 224 px: less may not change a pixel at a small size.
        moving.append(apart.max(axis=1) > 2.0 if apart.shape[1] else np.zeros(len(ts), bool))
    shown = np.concatenate(frames)
    return (
        shown,
        np.concatenate(states),
        shown.reshape(-1, 2, *shown.shape[1:]),
        np.concatenate(moving),
    )


CHECK = PixelAudit()
