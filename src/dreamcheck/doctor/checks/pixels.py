"""Do frames reach the encoder as in its training: normalisation, channels, orientation?"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dreamcheck.doctor.contract import Finding, Verdict, finding
from dreamcheck.doctor.forecasting import Driven, contest, declared, drive
from dreamcheck.doctor.subject import Subject
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.conventions import IMAGENET_MEAN, IMAGENET_STD

MOST_WINDOWS = 64

NORMALISATIONS: dict[str, dict[str, Any]] = {
    "ImageNet constants": {
        "pixel_scale": 1 / 255, "pixel_mean": IMAGENET_MEAN, "pixel_std": IMAGENET_STD,
    },
    "0 to 1": {
        "pixel_scale": 1 / 255, "pixel_mean": (0.0, 0.0, 0.0), "pixel_std": (1.0, 1.0, 1.0),
    },
    "-1 to 1": {
        "pixel_scale": 1 / 255, "pixel_mean": (0.5, 0.5, 0.5), "pixel_std": (0.5, 0.5, 0.5),
    },
    "0 to 255": {
        "pixel_scale": 1.0, "pixel_mean": (0.0, 0.0, 0.0), "pixel_std": (1.0, 1.0, 1.0),
    },
}  # fmt: skip

VIEWS = {
    "channels reversed (BGR)": lambda p: p[..., ::-1, :, :],
    "upside down": lambda p: p[..., ::-1, :],
    "left and right swapped": lambda p: p[..., ::-1],
    "rows and columns swapped": lambda p: p.swapaxes(-1, -2),
}


class Pixels:
    """One-step error under other normalisations, channel orders and orientations (C11).

    Every alternative is held against its own frozen world, so latents of another scale compare.
    """

    name = "pixels"
    title = "Frames are shown to the encoder as in training"
    group = "model"
    needs = ("model", "frames")

    def examine(self, subject: Subject) -> Finding:
        """Wrong when another way of showing the frames wins."""
        model = subject.model
        assert model is not None
        margin = subject.thresholds.get(self.name, "margin")
        sample, c = subject.sample, model.conventions
        rows = slice(0, MOST_WINDOWS)
        pixels, blocks = sample.pixels[rows], c.blocks(sample.actions[rows])
        own = declared(subject)
        own = Driven(own.errors[rows], own.frozen[rows])
        others = {}
        for name, view in VIEWS.items():
            if name == "rows and columns swapped" and pixels.shape[-1] != pixels.shape[-2]:
                continue
            shown = np.ascontiguousarray(view(pixels))
            others[name] = drive(subject, subject.encode(shown), blocks)
        for name, constants in NORMALISATIONS.items():
            if all(np.allclose(getattr(c, k), v) for k, v in constants.items()):
                continue
            driven = self._normalised(subject, constants, pixels, blocks)
            if driven is not None:
                others[name] = driven
        result = contest(own, others, margin)
        wrong = result.best is not None
        return finding(
            self,
            Verdict.WRONG if wrong else Verdict.FINE,
            measured=result.measured,
            limit=result.limit(margin),
            threshold=margin,
            evidence=result.lines(),
            fix=f"the model predicts better when frames are shown as '{result.best}': check "
            "pixel_scale, pixel_mean, pixel_std and the reader's channel order and orientation"
            if wrong else "",
        )  # fmt: skip

    @staticmethod
    def _normalised(
        subject: Subject, constants: dict[str, Any], pixels: np.ndarray, blocks: np.ndarray
    ) -> Driven | None:
        """The windows under other constants, None where the model keeps its own."""
        model = subject.model
        assert model is not None
        try:
            other = copy.copy(model)
            other.conventions = model.conventions.model_copy(update=constants)
        except (TypeError, AttributeError):
            return None
        flat = pixels.reshape(-1, *pixels.shape[-3:])
        latents = Runner(other).encode(flat, finite=False)
        return drive(subject, latents.reshape(*pixels.shape[:2], *latents.shape[1:]), blocks)


CHECK = Pixels()
