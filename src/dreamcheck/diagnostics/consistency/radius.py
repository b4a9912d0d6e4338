"""Invariance radius and separation rate from distances, motion scales and logged states.

Plain NumPy. N anchors, M draws of a perturbation, H observed future frames, D latent width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.stats import lower_median, quantile

MOTION_EPSILON = 1e-8
RADIUS_QUANTILE = 0.90
LOCAL_QUANTILE = 0.35
SEPARATION_MARGIN = 0.10


def motion_scale(observed: Any) -> np.ndarray:
    """s: median length of the H observed latent steps, [...], from [..., H + 1, D].

    The first entry is the last history frame, the others the next H frames; an even number of
    steps interpolates the two middle ones.

    Source: consistency.md section 5.2.
    """
    u = np.asarray(observed, dtype=float)
    if u.ndim < 2 or u.shape[-2] < 2:
        raise UsageError(f"observed latents of shape {u.shape}: [..., H + 1, D] with H >= 1 needed")
    return np.median(np.linalg.norm(np.diff(u, axis=-2), axis=-1), axis=-1)


@dataclass(frozen=True, slots=True)
class Radius:
    """An invariance radius in units of clean motion.

    raw: the quantile over anchors of the draw-averaged normalised distances.
    per_anchor: those averages, [N].
    num_still: anchors whose window did not move (s = 0): their values are near 1e8, count them.
    """

    raw: float
    per_anchor: tuple[float, ...]
    num_still: int


def invariance_radius(distances: Any, scales: Any, *, q: float = RADIUS_QUANTILE) -> Radius:
    """IR_raw: distances over motion scales, averaged over draws, then the q-quantile over anchors.

    Args:
        distances: ACPC [M, N], one row per draw (or [N] for one draw).
        scales: motion scales [N].

    Raises:
        UsageError: shapes disagree or a value is not finite.

    Source: consistency.md section 5.3-5.4.
    """
    d, s = np.atleast_2d(np.asarray(distances, dtype=float)), np.asarray(scales, dtype=float)
    if s.ndim != 1 or d.ndim != 2 or d.shape[1] != s.size:
        raise UsageError(f"distances {d.shape} need one motion scale per anchor, got {s.shape}")
    if not (np.isfinite(d).all() and np.isfinite(s).all()):
        raise UsageError("a distance or motion scale is not finite: the radius would hide it")
    # Draws first, then the quantile: pooling draws answers another question.
    per_anchor = (d / (s + MOTION_EPSILON)).mean(axis=0)
    return Radius(quantile(per_anchor, q), tuple(float(v) for v in per_anchor), int((s == 0).sum()))


def relative_radius(raw: float, reference_raw: float) -> float:
    """IR_rel: the radius over the unaugmented reference's under the same shift.

    Raises:
        Abstention: the reference's radius is not positive (a collapsed encoder).
    """
    if not reference_raw > 0:
        raise Abstention(
            f"the reference's invariance radius is {reference_raw:.3g}: nothing can be relative to "
            "it. The reference does not react to this shift, or its latents have collapsed"
        )
    return raw / reference_raw


def median_bits(values: Any) -> np.ndarray:
    """Bit of each value: strictly above the lower of the two middle values, int [n]."""
    array = np.asarray(values, dtype=float)
    return (array > lower_median(array)).astype(int)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Nearest differently labelled anchor of each anchor, chosen from logged states only.

    neighbour: index, or None where none lies within the cutoff.
    cutoff: the local quantile of all off-diagonal state distances.
    """

    neighbour: tuple[int | None, ...]
    cutoff: float

    @property
    def eligible(self) -> int:
        """Anchors that have a neighbour."""
        return sum(j is not None for j in self.neighbour)


def pair_anchors(states: Any, labels: Any, *, q: float = LOCAL_QUANTILE) -> Pairing:
    """Pairs for the separation rate: nearest state of another label within the local cutoff.

    Args:
        states: [N, S], each coordinate standardised over the dataset.
        labels: [N] or [N, bits]; rows are compared whole.

    First index wins a tie; pairs need not be mutual.

    Source: consistency.md section 6.
    """
    y, bits = np.asarray(states, dtype=float), np.asarray(labels)
    bits = bits[:, None] if bits.ndim == 1 else bits
    if y.ndim != 2 or len(bits) != len(y) or len(y) < 2:
        raise UsageError(f"states {y.shape} and labels {bits.shape}: one of each per anchor needed")
    distance = np.linalg.norm(y[:, None] - y[None], axis=-1)
    cutoff = quantile(distance[~np.eye(len(y), dtype=bool)], q)
    other = (bits[:, None] != bits[None]).any(axis=-1) & (distance <= cutoff)
    masked = np.where(other, distance, np.inf)
    nearest = masked.argmin(axis=1)
    return Pairing(tuple(int(j) if other[i].any() else None for i, j in enumerate(nearest)), cutoff)


@dataclass(frozen=True, slots=True)
class Separation:
    """The separation rate as whole numbers: 95 of 100 is 0.95, not float32's 0.94999999."""

    count: int
    eligible: int
    threshold: float

    @property
    def rate(self) -> float:
        """count / eligible."""
        return self.count / self.eligible


def separation(
    different_distances: Any, *, raw_radius: float, margin: float = SEPARATION_MARGIN
) -> Separation:
    """SR: how many differently labelled pairs stay strictly farther apart than radius + margin.

    Args:
        different_distances: [eligible] normalised distances of clean pairs under the anchor's
            actions.

    Raises:
        Abstention: no anchor has a neighbour; the rate is undefined, not 0.

    Source: consistency.md section 6.6.
    """
    d = np.asarray(different_distances, dtype=float)
    if d.size == 0:
        raise Abstention("no anchor has a differently labelled neighbour: no separation rate")
    if not np.isfinite(d).all():
        raise UsageError("a pair distance is not finite")
    threshold = raw_radius + margin
    return Separation(int((d > threshold).sum()), int(d.size), threshold)
