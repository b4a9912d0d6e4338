"""Simulators that draw slightly other frames: brightness, a shift by pixels, no walls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamcheck.doctor.bases import LinearToy
from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.subject import Subject


class OtherRenderer:
    """A task that draws through another renderer; everything else is the original's."""

    def __init__(self, task: Any, *, change: Any) -> None:
        self._task, self._change = task, change

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._task, name)

    def observe(self, state: Any, keys: Any, *, image_size: int | None = None) -> dict[str, Any]:
        """As the task, frames changed."""
        seen = self._task.observe(state, keys, image_size=image_size)
        if "pixels" in seen:
            seen = {**seen, "pixels": self._change(seen["pixels"])}
        return seen


class Redrawn:
    """Grades: mean absolute change of a pixel, of 255."""

    check = "domain_guard"
    unit = "mean absolute pixel change of 255"
    uses_model = True

    def cases(self, base: Base) -> Sequence[Case]:
        """Clean; darker by 5 %, 20 %; shifted by a pixel; a look-alike without walls."""

        def build(change) -> Subject:
            subject = base.subject()
            subject.task = OtherRenderer(subject.task, change=change)
            return subject

        def darker(share: float):
            return lambda p: (p * (1 - share)).astype(np.uint8)

        def bleached(p: np.ndarray) -> np.ndarray:
            dark = p.max(axis=1, keepdims=True) < 60
            return np.where(dark, np.uint8(255), p)

        changes = {
            "darker-5": darker(0.05),
            "darker-20": darker(0.2),
            "shifted-3": lambda p: np.roll(p, 3, axis=-1),
            "shifted": lambda p: np.roll(p, 1, axis=-1),
            "no-walls": bleached,
        }
        probe = base.subject()
        assert probe.task is not None and probe.model is not None
        if isinstance(probe.model, LinearToy):
            # It sees the dot and nothing else; another brightness is no fault for it.
            changes = {k: changes[k] for k in ("shifted", "shifted-3")}
        state = probe.task.reset(None, range(8))
        size = probe.model.conventions.image_size
        seen = probe.task.observe(state, ("pixels",), image_size=size)["pixels"]
        graded = {
            name: float(np.abs(change(seen).astype(float) - seen).mean())
            for name, change in changes.items()
        }
        order = sorted(graded, key=lambda name: graded[name])
        return [
            Case("clean", 0.0, False, base.subject),
            *(
                Case(name, graded[name], True, lambda name=name: build(changes[name]))  # type: ignore[misc]
                for name in order
            ),
        ]


GENERATOR = Redrawn()
