"""Examining while a model trains: a bounded look at the end of an epoch."""

from __future__ import annotations

from typing import Any

from dreamcheck.doctor.contract import Verdict
from dreamcheck.doctor.examination import Examination, examine
from dreamcheck.doctor.registry import chosen_checks
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import HasModule, WorldModel


class DoctorCallback:
    """Call it at epoch end; training goes on as if it had not run.

    Args:
        parts: of the subject (episodes, task, train, ...), without the model.
        seconds: budget of one examination; checks that would begin later are skipped.
        every: epochs between two. skip: names of checks to leave out.

    Attributes:
        examinations: one per look, oldest first.
    """

    def __init__(
        self, *, seconds: float = 20.0, every: int = 1, skip: tuple[str, ...] = (), **parts: Any
    ) -> None:
        if every < 1 or seconds <= 0:
            raise UsageError(f"every = {every} must be at least 1 and seconds = {seconds} above 0.")
        # In training a model is in training mode on purpose.
        self._checks = chosen_checks(skip=("training_mode", *skip))
        self._seconds, self._every, self._parts = seconds, every, parts
        self.examinations: list[Examination] = []

    def __call__(self, model: WorldModel, *, epoch: int) -> Examination | None:
        """The epoch's examination, or None when this epoch is not looked at."""
        if epoch % self._every:
            return None
        module = model.module if isinstance(model, HasModule) else None
        modes = {} if module is None else {n: m.training for n, m in module.named_modules()}
        try:
            if module is not None:
                module.eval()
            found = examine(
                Subject(model=model, **self._parts), checks=self._checks, seconds=self._seconds
            )
        finally:
            if module is not None:
                for name, m in module.named_modules():
                    m.training = modes[name]
        self.examinations.append(found)
        return found

    @property
    def worst(self) -> Verdict:
        """Of the last examination; fine before the first."""
        return self.examinations[-1].worst if self.examinations else Verdict.FINE
