"""Encoders that subtract something of the batch's mean, or use its statistics."""

from __future__ import annotations

from collections.abc import Sequence

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import Spoiled
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule


class Mates:
    """Grades: share of the batch mean that is subtracted from every latent."""

    check = "batch_mates"
    unit = "share of the batch mean"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; a hundredth up to all; batch normalisation in training mode."""

        def build(share: float) -> Subject:
            subject = base.subject()

            def encode(model, observation):
                z = model.encode(observation)
                return z - share * z.mean(dim=0, keepdim=True)

            subject.model = Spoiled(subject.model, encode=encode)
            return subject

        def trained() -> Subject:
            subject = base.subject()
            assert isinstance(subject.model, HasModule)
            subject.model.module.train()
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"share-{s:g}", s, True, lambda s=s: build(s))  # type: ignore[misc]
                for s in (0.01, 0.1, 1.0)
            ),
            Case("training-mode", 1.0, True, trained),
        ]


GENERATOR = Mates()
