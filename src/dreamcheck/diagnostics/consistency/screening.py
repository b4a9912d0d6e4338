"""Screening checkpoints by relative radius and separation rate: score, recovery criterion.

Success is in counts, separation in counts, thresholds in decimals: every comparison is made
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.stats import exact_decimal

SCORE_EPSILON = 1e-12
RECOVERED_SHARE = Fraction(4, 5)
CLEAN_LOSS_POINTS = 5


def screening_score(ir_rel: float, sr: float, *, t_ir: float, t_sr: float) -> float:
    """S = min((t_IR - IR_rel)/t_IR, (SR - t_SR)/t_SR); >= 0 exactly when both thresholds pass.

    Both denominators are the thresholds themselves (with 1e-12 added, as released).

    Source: consistency.md section 7 (paper eq. 12).
    """
    return min(
        (t_ir - ir_rel) / (abs(t_ir) + SCORE_EPSILON),
        (sr - t_sr) / (abs(t_sr) + SCORE_EPSILON),
    )


def separation_cannot_change_sign(*, t_ir: float) -> bool:
    """True when the sign of a score difference to the reference depends on IR_rel alone.

    The SR term is never below -1. For t_IR < 0.5 the reference, whose IR_rel is 1, therefore has the
    score (t_IR - 1)/t_IR < -1 whatever its SR, and Delta S > 0 exactly when IR_rel < 1: SR changes
    the size of Delta S and never its sign. A report that shows the sign says so.
    """
    return t_ir < 0.5


@dataclass(frozen=True, slots=True)
class Level:
    """One checkpoint of an augmentation sweep.

    sigma_max: training noise. ir_raw: invariance radius. sr_count of sr_eligible pairs separated.
    clean_successes, noisy_successes: out of ``episodes``.
    """

    sigma_max: float
    ir_raw: float
    sr_count: int
    sr_eligible: int
    clean_successes: int
    noisy_successes: int
    episodes: int = 300

    @property
    def sr(self) -> float:
        """Separation rate."""
        return self.sr_count / self.sr_eligible


@dataclass(frozen=True)
class Block:
    """One task and run: the levels of a sweep, the unaugmented reference first."""

    task: str
    run: int
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if len(self.levels) < 2:
            raise UsageError(f"{self.task} run {self.run}: a sweep needs at least two levels")
        if not self.levels[0].ir_raw > 0:
            raise Abstention(
                f"{self.task} run {self.run}: the reference's invariance radius is "
                f"{self.levels[0].ir_raw}; relative radii are undefined"
            )
        episodes = {level.episodes for level in self.levels}
        if len(episodes) != 1:
            raise UsageError(f"{self.task} run {self.run}: levels differ in episodes {episodes}")

    @cached_property
    def ir_relative(self) -> tuple[float, ...]:
        """IR_raw of each level over the reference's."""
        return tuple(level.ir_raw / self.levels[0].ir_raw for level in self.levels)

    @cached_property
    def recovered(self) -> tuple[bool, ...]:
        """Which levels recovered the noisy success (section 8), by counts.

        Raises:
            Abstention: no level does better under noise than the reference: no gain to recover.
        """
        base = self.levels[0]
        best = max(level.noisy_successes for level in self.levels)
        if best == base.noisy_successes:
            raise Abstention(
                f"{self.task} run {self.run}: no level beats the reference under noise; there is "
                "no gain to recover"
            )
        return tuple(
            is_recovered(
                level.noisy_successes,
                level.clean_successes,
                base_noisy=base.noisy_successes,
                best_noisy=best,
                base_clean=base.clean_successes,
                episodes=base.episodes,
            )
            for level in self.levels
        )

    def accepted(self, *, t_ir: float, t_sr: float) -> tuple[bool, ...]:
        """Which levels pass both thresholds, inclusive; the rate is compared as a fraction."""
        limit = exact_decimal(t_sr)
        return tuple(
            ir <= t_ir and level.sr_count >= limit * level.sr_eligible
            for ir, level in zip(self.ir_relative, self.levels, strict=True)
        )


def is_recovered(
    noisy: int, clean: int, *, base_noisy: int, best_noisy: int, base_clean: int, episodes: int
) -> bool:
    """At least 80% of the best gain under noise, at most 5 points of clean success lost, by counts.

    Source: consistency.md section 8.
    """
    return (
        noisy - base_noisy >= RECOVERED_SHARE * (best_noisy - base_noisy)
        and 100 * (base_clean - clean) <= CLEAN_LOSS_POINTS * episodes
    )
