"""Where are numbers missing?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject


class NanAudit:
    """Rows with NaN or infinity, by place in the episode; only the last action may miss (C4)."""

    name = "nan_audit"
    title = "Numbers are missing only at episode ends"
    group = "data"
    needs: tuple[str, ...] = ("episodes",)

    def examine(self, subject: Subject) -> Finding:
        """Every action and state row is looked at: nothing is sampled."""
        assert subject.episodes is not None
        inside = start = end = states = total = 0
        first = ""
        for e in range(len(subject.episodes.lengths)):
            actions = np.asarray(subject.episodes.actions(e), np.float64)
            holes = np.flatnonzero(~np.isfinite(actions).all(axis=1))
            last = len(actions) - 1
            end += int((holes == last).sum())
            start += int(((holes == 0) & (last > 0)).sum())
            middle = holes[(holes > 0) & (holes < last)]
            inside += len(middle)
            total += len(actions)
            bad = np.flatnonzero(~np.isfinite(np.asarray(subject.episodes.state(e), float)).all(1))
            states += len(bad)
            if not first and (len(middle) or len(bad)):
                what, t = ("action", middle[0]) if len(middle) else ("state", bad[0])
                first = f"first: {what} of episode {e} at step {int(t)}"
        threshold = subject.thresholds.get(self.name, "rows")
        count = inside + start + states
        wrong = count > threshold.value
        missing_end = len(subject.episodes.lengths) - end
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured={
                "rows": (count, "rows"),
                "inside": (inside, "action rows inside"),
                "start": (start, "action rows at the start"),
                "end": (end, "action rows at the end"),
                "states": (states, "state rows"),
            },
            limit=(1, "rows"),
            threshold=threshold,
            evidence=[
                *([first] if first else []),
                *(
                    ["missing first actions: the action column may be shifted by a row"]
                    if start else []
                ),
                f"{total} rows looked at; {missing_end} episodes have a last action",
            ],
            fix="split the episode at the gap or repair the recording; do not fill with zeros"
            if wrong else "",
        )  # fmt: skip


CHECK = NanAudit()
