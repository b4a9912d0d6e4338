"""How many recorded rows does one prediction really span?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import contest, drive
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError


class Frameskip:
    """One-step error with frames cut 1, 2, ... rows apart; the declared distance must win.

    The actions between two frames are stretched or thinned to the block's length and keep their
    size per step, so a model trained at another rate is at its best there.
    """

    name = "frameskip"
    title = "The frameskip is what was declared"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when another distance wins."""
        assert subject.model is not None
        c = subject.model.conventions
        f, n = c.frameskip, subject.model.history_max + 1
        margin = subject.thresholds.get(self.name, "margin")
        count = subject.windows
        driven = {}
        for skip in sorted({1, max(1, f // 2), max(1, (f + 1) // 2), f, 2 * f}):
            try:
                clips = subject.draw(frames=n, frameskip=skip, count=count, role=f"skip {skip}")
            except UsageError:
                continue  # episodes too short for this distance
            at = np.minimum((np.arange(f) * skip) // f, skip - 1)
            raw = clips.actions.reshape(len(clips.actions), n - 1, skip, -1)[:, :, at]
            raw = raw.reshape(len(raw), (n - 1) * f, -1)
            driven[skip] = drive(subject, subject.encode(clips.pixels), c.blocks(raw))
        if f not in driven:
            raise Abstention(
                f"no episode is long enough for windows of {n} frames, {f} rows apart."
            )
        # Windows of different distances are not the same windows, so gains are not paired.
        own = driven.pop(f)
        result = _unpaired(own, driven, margin.value)
        best, gain, noise = result
        lines = contest(own, {}, margin).lines() + [
            f"frames {k} rows apart: {d.ratio:.3f}" for k, d in sorted(driven.items())
        ]
        wrong = best is not None
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured={
                "rows": (best if best is not None else f, "recorded rows per prediction"),
                "gain": (gain, "of a frozen world's error"),
                "declared": (own.ratio, "of a frozen world's error"),
            },
            limit=(max(noise, margin.value), "of a frozen world's error"),
            threshold=margin,
            evidence=lines,
            fix=f"the model predicts best with frames {best} rows apart, not {f}: the data were "
            "already subsampled, or frameskip belongs to another model" if wrong else "",
        )  # fmt: skip


def _unpaired(own, driven, margin):
    """Best other distance whose ratio is lower beyond the margin and three standard errors."""

    def mean_and_error(d):
        values = d.errors / d.frozen.mean()
        return values.mean(), values.std(ddof=1) / np.sqrt(len(values))

    base, base_se = mean_and_error(own)
    best, most, noises = None, 0.0, [0.0]
    for skip, d in driven.items():
        value, se = mean_and_error(d)
        noise = 3 * float(np.hypot(se, base_se))
        noises.append(noise)
        gain = float(base - value)
        if gain > max(margin, noise) and gain > most:
            best, most = skip, gain
    return best, most, max(noises)


CHECK = Frameskip()
