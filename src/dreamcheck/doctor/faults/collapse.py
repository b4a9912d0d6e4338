"""Encoders whose latents shrink to a point or to a line."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import Spoiled
from dreamcheck.doctor.subject import Subject


class Shrunk:
    """Grades: -log10 of what is left of the spread around one fixed latent."""

    check = "collapse"
    unit = "powers of ten the spread has shrunk"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; a thirtieth of the spread left, down to nothing; everything on one line."""

        def point(left: float) -> Subject:
            subject = base.subject()
            subject.model = Spoiled(
                subject.model, encode=lambda model, o: left * model.encode(o) + (1 - left)
            )
            return subject

        def line() -> Subject:
            subject = base.subject()

            def encode(model, observation):
                z = model.encode(observation)
                return z[:, :1] * torch.ones_like(z)

            subject.model = Spoiled(subject.model, encode=encode)
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            Case("thirtieth", 1.5, True, lambda: point(10**-1.5)),
            Case("hundredth", 2.0, True, lambda: point(0.01)),
            Case("point", 6.0, True, lambda: point(1e-6)),
            Case("line", 6.0, True, line),
        ]


GENERATOR = Shrunk()
