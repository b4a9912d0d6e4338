"""Models that return NaN for some frames, or hold it in a weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.spoiling import Spoiled
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule


class NotANumber:
    """Grades: share of the predictions that are NaN."""

    check = "model_nan"
    unit = "share of predictions"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; every hundredth prediction up to all; one weight."""

        def some(share: float) -> Subject:
            subject = base.subject()
            every = round(1 / share)

            def predict(model, latents, actions):
                out = model.predict(latents, actions)
                # Which rows is decided by their content, as a real overflow would be.
                key = (latents[:, -1].flatten(1).sum(dim=1) * 1e4).abs().long() % every
                return torch.where((key == 0)[:, None], torch.nan, out)

            subject.model = Spoiled(subject.model, predict=predict)
            return subject

        def weight() -> Subject:
            subject = base.subject()
            assert isinstance(subject.model, HasModule)
            tensors = [*subject.model.module.parameters(), *subject.model.module.buffers()]
            with torch.no_grad():
                next(t for t in tensors if t.is_floating_point()).view(-1)[0] = torch.nan
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"share-{s:g}", s, True, lambda s=s: some(s))  # type: ignore[misc]
                for s in (0.01, 0.1, 1.0)
            ),
            Case("weight", 1.0, True, weight),
        ]


GENERATOR = NotANumber()
