"""Running statistics that lag behind: their variance is a fraction of the true one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule
from dreamcheck.training.batchnorm import norm_layers


class Lag:
    """Grades: log of the factor by which the stored variance is too small."""

    check = "batchnorm"
    unit = "log of the factor on the stored variance"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; a third down to a hundredth of the variance, the mean moving along."""

        def build(factor: float) -> Subject:
            subject = base.subject()
            assert isinstance(subject.model, HasModule)
            with torch.no_grad():
                for layer in norm_layers(subject.model.module).values():
                    assert layer.running_var is not None and layer.running_mean is not None
                    layer.running_mean += 0.2 * np.log(factor) * layer.running_var.sqrt()
                    layer.running_var /= factor
            return subject

        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(f"factor-{k:g}", float(np.log(k)), True, lambda k=k: build(k))  # type: ignore[misc]
                for k in (2.0, 4.0, 10.0, 100.0)
            ),
        ]


GENERATOR = Lag()
