"""Frames with wrong constants, swapped channels or turned upside down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import with_conventions, with_episodes
from dreamcheck.doctor.subject import Subject


class Shown:
    """Grades: share of the wrong constants; 1 for swapped channels and mirrored frames."""

    check = "pixels"
    unit = "share of the wrong constants (1: swapped or mirrored)"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; constants half way to 0..1 and all the way; channels; upside down."""

        def constants(share: float) -> Subject:
            subject = base.subject()
            assert subject.model is not None
            c = subject.model.conventions
            mean = tuple(((1 - share) * np.asarray(c.pixel_mean)).tolist())
            std = tuple(((1 - share) * np.asarray(c.pixel_std) + share).tolist())
            subject.model = with_conventions(
                subject.model, c.model_copy(update={"pixel_mean": mean, "pixel_std": std})
            )
            return subject

        def view(turn) -> Subject:
            subject = base.subject()
            subject.episodes = with_episodes(subject.episodes, pixels=turn)
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            Case("half-way", 0.5, True, lambda: constants(0.5)),
            Case("0-to-1", 1.0, True, lambda: constants(1.0)),
            Case("bgr", 1.0, True, lambda: view(lambda p: p[:, ::-1].copy())),
            Case("upside-down", 1.0, True, lambda: view(lambda p: p[:, :, ::-1].copy())),
        ]


GENERATOR = Shown()
