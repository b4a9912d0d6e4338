"""Do the summed actions of a block explain how far the state moved?"""

from __future__ import annotations

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.motion import columns_of, follows, steps_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention


class ActionAggregation:
    """Physics identity: displacement over a block against the law of the simulator (C5).

    The simulator's own gain is used, so data whose blocks keep only one action per block, or whose
    actions were averaged, miss it. Blocks in contact drop out of the median.
    """

    name = "action_aggregation"
    title = "A block's summed actions explain its displacement"
    group = "data"
    needs: tuple[str, ...] = ("state", "task")

    def examine(self, subject: Subject) -> Finding:
        """Median error of the summed-action rule over the median block displacement."""
        assert subject.episodes is not None and subject.task is not None
        conventions = getattr(subject.model, "conventions", None)
        span = int(conventions.frameskip) if conventions is not None else 5
        additive, law = follows(subject.task, subject.rng(self.name), span=1)
        if not additive:
            raise Abstention("the simulator's motion is not additive in the action.")
        columns = columns_of(subject.episodes, subject.task)
        steps = steps_of(subject.episodes, span=span, columns=columns)
        first = steps_of(subject.episodes, span=1, columns=columns)
        moved = steps.after - steps.before
        if steps.actions.shape[1] != law.coefficients.shape[0]:
            raise Abstention(
                f"an action has {steps.actions.shape[1]} numbers, the simulator's "
                f"{law.coefficients.shape[0]}: see action_units."
            )
        size = float(np.median(np.linalg.norm(moved, axis=1)))
        if size == 0:
            raise Abstention("more than half of the recorded blocks do not move.")
        error = float(np.median(np.linalg.norm(moved - steps.actions @ law.coefficients, axis=1)))
        single = first.after - first.before - first.actions @ law.coefficients
        threshold = subject.thresholds.get(self.name, "error")
        relative = error / size
        bad = relative > threshold.value
        noise = float(np.median(np.abs(single))) * np.sqrt(span) / size
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "error": (relative, "of the block displacement"),
                "displacement": (size, "state units per block"),
                "blocks": (len(steps), "blocks"),
            },
            limit=(max(noise, threshold.value), "of the block displacement"),
            threshold=threshold,
            evidence=[
                f"blocks of {span} steps, {len(steps)} of them: median displacement {size:.3g}, "
                f"median miss of the summed-action rule {error:.3g}"
            ],
            fix="store every environment step's action (dense), not one per block, and sum or "
            "concatenate them over a block" if bad else "",
        )  # fmt: skip


CHECK = ActionAggregation()
