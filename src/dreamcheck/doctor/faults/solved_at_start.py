"""Starts that are solved before anything moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import changed, graded, seed_of, walks
from dreamcheck.doctor.subject import Subject
from dreamcheck.planning.protocol import load_protocol


def _moving(data: ArrayEpisodes) -> ArrayEpisodes:
    """States that drift 2 px a step beside the recorded ones' first: no start near its goal."""

    def drift(states: np.ndarray, e: int) -> np.ndarray:
        first = np.clip(states[0], 20, 80)
        return first + np.arange(len(states))[:, None] * np.array([1.5, 1.5])

    return changed(data, state=drift)


class Trivial:
    """Grades: share of episodes that never leave their start."""

    check = "solved_at_start"
    unit = "share of starts"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """From one episode in ten to all; TwoRoom walks at offset 25 are the clean ones."""
        data = walks(seed_of(base), episodes=60)

        def build(grade: float) -> Subject:
            far = _moving(data)
            count = round(grade * len(far.lengths))

            def still(states: np.ndarray, e: int) -> np.ndarray:
                return np.repeat(states[:1], len(states), axis=0) if e < count else states

            protocol = load_protocol("lewm-repo").replace(num_eval=50)
            return Subject(
                protocol=protocol, episodes=changed(far, state=still), seed=seed_of(base)
            )

        return graded((0.0, 0.1, 0.2, 0.5, 1.0), build)


GENERATOR = Trivial()
