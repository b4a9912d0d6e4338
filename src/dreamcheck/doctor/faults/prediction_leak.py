"""Rollouts into which a later block leaks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import Spoiled
from dreamcheck.doctor.subject import Subject
from dreamcheck.imagination.runner import open_loop


class Leak:
    """Grades: share of the next block's embedding that is mixed into the current one's."""

    check = "prediction_leak"
    unit = "share of the next block"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; a thousandth up to all."""

        def build(share: float) -> Subject:
            subject = base.subject()

            def rollout(model, latents, actions):
                later = torch.cat([actions[:, 1:], actions[:, -1:]], dim=1)
                return open_loop(model, latents, (1 - share) * actions + share * later)

            subject.model = Spoiled(subject.model, rollout=rollout)
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"share-{s:g}", s, True, lambda s=s: build(s))  # type: ignore[misc]
                for s in (0.001, 0.01, 0.1, 1.0)
            ),
        ]


GENERATOR = Leak()
