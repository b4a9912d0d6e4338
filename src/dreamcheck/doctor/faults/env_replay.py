"""Recordings of another simulator than the one at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._altered import Altered
from dreamcheck.doctor.faults._rooms import changed, films, graded, room, seed_of
from dreamcheck.doctor.subject import Subject


class Drifted:
    """Grades: relative difference of the simulator's speed; frames brighter by 50 times as many levels."""

    check = "env_replay"
    unit = "relative"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From two percent to twofold; a renderer that is off by one to fifty levels."""
        data = films(seed_of(base))

        def slow(grade: float) -> Subject:
            return Subject(task=Altered(room(), gain=1 + grade), episodes=data, seed=seed_of(base))

        def bright(grade: float) -> Subject:
            flat = np.concatenate([data.frames(e, np.arange(int(data.lengths[e]))) for e in data])
            paler = (flat * (1 - 0.2 * grade)).astype(np.uint8)
            return Subject(task=room(), episodes=changed(data, pixels=paler), seed=seed_of(base))

        return [
            *graded((0.0, 0.02, 0.05, 0.2, 1.0), slow),
            *[Case(f"paler-{g:g}", g, True, lambda g=g: bright(g)) for g in (0.05, 1.0)],  # type: ignore[misc]
        ]


GENERATOR = Drifted()
