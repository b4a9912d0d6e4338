"""One-step errors of the same windows driven in several ways, compared window by window (C7, C11).

Every driving gets the ratio of means of spec C7; a difference between two is believed when it
exceeds both a margin and three of its standard errors over windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dreamcheck.doctor.subject import Subject
from dreamcheck.doctor.thresholds import Threshold
from dreamcheck.errors import Abstention

STANDARD_ERRORS = 3.0
MIN_WINDOWS = 16
UNIT = "of a frozen world's error"


@dataclass(frozen=True)
class Driven:
    """One driving of N windows. errors, frozen: [N], L2 distances in latent units."""

    errors: np.ndarray
    frozen: np.ndarray

    @property
    def ratio(self) -> float:
        """Error over a frozen world's; NaN where something is not finite."""
        return float(self.errors.mean() / self.frozen.mean())


def drive(subject: Subject, latents: Tensor, blocks: np.ndarray) -> Driven:
    """One-step errors of windows [B, n, *shape] under model-ready blocks [B, n - 1, A].

    Raises:
        Abstention: the latents hardly move, or there are too few windows.
    """
    if len(latents) < MIN_WINDOWS:
        raise Abstention(
            f"only {len(latents)} windows could be cut, {MIN_WINDOWS} are needed: give more or "
            "longer episodes."
        )
    predicted = subject.runner.rollout(latents[:, :-1], blocks.astype(np.float32), finite=False)[
        :, 0
    ]
    real, last = latents[:, -1].flatten(1), latents[:, -2].flatten(1)
    errors = (predicted.flatten(1) - real).norm(dim=1).double().numpy()
    frozen = (last - real).norm(dim=1).double().numpy()
    if not (np.isfinite(frozen).all() and frozen.mean() > 0):
        raise Abstention(
            "the latents do not move or are not finite, so no error can be related to a frozen "
            "world's; see the checks `collapse` and `model_nan`."
        )
    return Driven(np.where(np.isfinite(errors), errors, np.inf), frozen)


@dataclass(frozen=True)
class Contest:
    """The declared driving against its alternatives.

    best: name of the alternative with the largest believed gain, or None. gain: declared ratio
    minus that of the best alternative, of a frozen world's error. noise: three standard errors of
    the gain of the alternative with the lowest ratio: less cannot be told from 0.
    """

    ratios: dict[str, float]
    declared: float
    best: str | None
    gain: float
    noise: float

    @property
    def measured(self) -> dict[str, tuple[float, str]]:
        """The two numbers a verdict rests on, for ``finding``."""
        return {"gain": (max(self.gain, 0.0), UNIT), "declared": (self.declared, UNIT)}

    def limit(self, margin: Threshold) -> tuple[float, str]:
        """The smallest gain that could have been believed."""
        return max(self.noise, margin.value), UNIT

    def lines(self) -> list[str]:
        """Every driving with its ratio, best first."""
        order = sorted(self.ratios.items(), key=lambda kv: kv[1])
        return [f"one-step error of a frozen world's: declared {self.declared:.3f}"] + [
            f"{name}: {ratio:.3f}" for name, ratio in order
        ]


def contest(declared: Driven, others: dict[str, Driven], margin: Threshold) -> Contest:
    """Who wins, and by how much that can be believed.

    Each alternative is measured against its own frozen world, so drivings that change the latents'
    scale can be compared.
    """
    gains = {}
    noises: dict[str, float] = {}
    base = declared.errors / declared.frozen.mean()
    for name, other in others.items():
        theirs = other.errors / other.frozen.mean()
        if not np.isfinite(theirs).all():
            gains[name] = -np.inf
            continue
        difference = base - theirs
        if not np.isfinite(difference).all():
            gains[name] = np.inf
            continue
        noise = STANDARD_ERRORS * float(difference.std(ddof=1) / np.sqrt(len(difference)))
        noises[name] = noise
        gain = float(difference.mean())
        gains[name] = gain if gain > max(margin.value, noise) else -np.inf
    best = max(gains, key=lambda k: gains[k]) if gains else None
    if best is not None and gains[best] == -np.inf:
        best = None
    return Contest(
        ratios={k: v.ratio for k, v in others.items()},
        declared=declared.ratio,
        best=best,
        gain=max((declared.ratio - v.ratio for v in others.values()), default=0.0),
        noise=noises[min(noises, key=lambda k: others[k].ratio)] if noises else 0.0,
    )


def declared(subject: Subject) -> Driven:
    """The shared sample driven as the model's conventions say."""
    assert subject.model is not None
    sample = subject.sample
    return drive(subject, sample.latents, subject.model.conventions.blocks(sample.actions))
