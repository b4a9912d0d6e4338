"""Was the model handed over in training mode?"""

from __future__ import annotations

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.subject import Subject
from dreamcheck.models.protocol import HasModule


class TrainingMode:
    """Modules left in training mode: dropout and batch statistics are then part of every number."""

    name = "training_mode"
    title = "The model is in evaluation mode"
    group = "model"
    needs = ("model", "module")

    def examine(self, subject: Subject) -> Finding:
        """Counts modules whose behaviour depends on the mode and which are in training."""
        assert isinstance(subject.model, HasModule)
        modules = list(subject.model.module.named_modules())
        left = [n or "the module itself" for n, m in modules if m.training]
        threshold = subject.thresholds.get(self.name, "modules")
        bad = len(left) > threshold.value
        return finding(
            self,
            Verdict.WRONG if bad else Verdict.FINE,
            measured={
                "in_training": (len(left), "modules"),
                "modules": (len(modules), "modules"),
            },
            limit=(1, "modules"),
            threshold=threshold,
            evidence=[f"in training mode: {', '.join(left[:4])}"] if left else [],
            fix="call module.eval() after loading; load_pretrained of stable-worldmodel returns "
            "the model in training mode" if bad else "",
        )  # fmt: skip


CHECK = TrainingMode()
