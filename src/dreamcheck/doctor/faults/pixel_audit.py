"""Frames blank, frozen, turned or recoloured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.doctor.contract import Base, Case
from dreamcheck.doctor.faults._rooms import SIDE, changed, films, graded, room, seed_of
from dreamcheck.doctor.subject import Subject
from dreamcheck.streams import stream


class Spoilt:
    """Grades: share of frames that are blank or late; 1 for a wrong convention in all of them."""

    check = "pixel_audit"
    unit = "share of frames"
    uses_model = False

    def cases(self, base: Base) -> Sequence[Case]:
        """Late frames from one in four, blank ones from one in ten; turned and BGR frames."""
        data = films(seed_of(base))
        flat = np.concatenate([data.frames(e, np.arange(int(data.lengths[e]))) for e in data])
        assert flat.shape[-1] == SIDE

        def subject(pixels: np.ndarray) -> Subject:
            return Subject(task=room(), episodes=changed(data, pixels=pixels), seed=seed_of(base))

        def blank(share: float) -> Subject:
            rng = stream(seed_of(base), "doctor-fault", "blank")
            pixels = flat.copy()
            pixels[rng.random(len(pixels)) < share] = 0
            return subject(pixels)

        def late(share: float) -> Subject:
            rng = stream(seed_of(base), "doctor-fault", "late")
            pixels = flat.copy()
            for i in np.flatnonzero(rng.random(len(pixels)) < share):
                if i:
                    pixels[i] = pixels[i - 1]
            return subject(pixels)

        turned = {
            "flipped": flat[..., ::-1].copy(),
            "transposed": np.swapaxes(flat, -1, -2).copy(),
            "bgr": flat[:, ::-1].copy(),
        }
        return [
            *graded((0.0, 0.1, 0.5), blank),
            *[Case(f"late-{s:g}", s, True, lambda s=s: late(s)) for s in (0.25, 1.0)],  # type: ignore[misc]
            *[
                Case(name, 1.0, True, lambda p=p: subject(p))  # type: ignore[misc]
                for name, p in turned.items()
            ],
        ]


GENERATOR = Spoilt()
