"""Evaluation episodes that were trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, habits, seed_of, walks
from dreamcheck.doctor.subject import Subject


class Shared:
    """Grades: share of the evaluation episodes that are in the training data."""

    check = "train_eval_overlap"
    unit = "share of episodes"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """One episode in forty to all; copies rounded to half precision; other seeds are clean."""
        train = walks(seed_of(base), episodes=60)
        own = walks(seed_of(base) + 5000, episodes=40)

        def build(grade: float) -> Subject:
            count = round(grade * 40)
            parts = own.subset(np.arange(count, 40))
            held = train.subset(np.arange(count))
            made = parts if not count else held if count == 40 else held.joined(parts)
            return Subject(episodes=made, train=train, seed=seed_of(base))

        def rounded() -> Subject:
            made = changed(
                train.subset(np.arange(4)),
                actions=lambda a, e: a.astype(np.float16).astype(np.float64),
                state=lambda s, e: s + 0.01,
            ).joined(changed(own.subset(np.arange(36))))
            return Subject(episodes=made, train=train, seed=seed_of(base))

        return [
            *graded((0.0, 0.025, 0.1, 0.5, 1.0), build),
            Case("rounded-copies", 0.1, True, rounded),
            *habits(base),
        ]


GENERATOR = Shared()
