"""Does the screen tell which checkpoint stands another shift better? Blur and resize pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dreamcheck.diagnostics.consistency.screening import CLEAN_LOSS_POINTS, screening_score
from dreamcheck.diagnostics.consistency.transfer import Arithmetic
from dreamcheck.errors import UsageError
from dreamcheck.stats import Estimate, spearman

GAIN_POINTS = 5


@dataclass(frozen=True, slots=True)
class ShiftPair:
    """An augmented checkpoint against its unaugmented reference under one shift.

    base_shifted, augmented_shifted, base_clean, augmented_clean: successes out of ``episodes``.
    ir_relative: the augmented checkpoint's radius over the reference's, under this shift.
    base_sr_count, augmented_sr_count: separated pairs of ``sr_eligible``.
    """

    task: str
    run: int
    shift: str
    base_shifted: int
    augmented_shifted: int
    base_clean: int
    augmented_clean: int
    ir_relative: float
    base_sr_count: int
    augmented_sr_count: int
    sr_eligible: int
    episodes: int = 300

    @property
    def met(self) -> bool:
        """Success under the shift rises by 5 points or more, clean success falls by 5 at most."""
        gained = 100 * (self.augmented_shifted - self.base_shifted) >= GAIN_POINTS * self.episodes
        lost = 100 * (self.base_clean - self.augmented_clean)
        return gained and lost <= CLEAN_LOSS_POINTS * self.episodes

    def delta_score(self, *, t_ir: float, t_sr: float) -> float:
        """Screening score of the augmented checkpoint minus the reference's (IR_rel 1)."""
        augmented = screening_score(
            self.ir_relative, self.augmented_sr_count / self.sr_eligible, t_ir=t_ir, t_sr=t_sr
        )
        base = screening_score(1.0, self.base_sr_count / self.sr_eligible, t_ir=t_ir, t_sr=t_sr)
        return augmented - base


@dataclass(frozen=True, slots=True)
class ShiftScreen:
    """Predicted (Delta S > 0) against met, over pairs.

    precision, recall, balanced_accuracy: None when undefined.
    spearman: success change with Delta S.
    """

    pairs: int
    tp: int
    tn: int
    fp: int
    fn: int
    balanced_accuracy: float | None
    precision: float | None
    recall: float | None
    spearman: Estimate

    @property
    def sign_agreement(self) -> int:
        """Pairs in which prediction and outcome agree."""
        return self.tp + self.tn


def screen_shifts(
    pairs: Sequence[ShiftPair], delta_scores: Sequence[float], *, arithmetic: Arithmetic = "exact"
) -> ShiftScreen:
    """How the sign of Delta S predicts, and its size orders, the success change under a shift.

    Args:
        delta_scores: one per pair, at the thresholds of its task.
        arithmetic: "exact" ranks success changes as counts; "released_float" as differences of
            percentages, in which two equal gains are unequal in the last bit.

    Source: consistency.md sections 10 and 16.2.
    """
    if not pairs or len(pairs) != len(delta_scores):
        raise UsageError(f"{len(pairs)} pairs and {len(delta_scores)} score differences")
    cells = [(d > 0, p.met) for p, d in zip(pairs, delta_scores, strict=True)]
    tp, tn = cells.count((True, True)), cells.count((False, False))
    fp, fn = cells.count((True, False)), cells.count((False, True))
    if arithmetic == "exact":
        gains = [float(p.augmented_shifted - p.base_shifted) for p in pairs]
    else:
        gains = [
            100 * p.augmented_shifted / p.episodes - 100 * p.base_shifted / p.episodes
            for p in pairs
        ]
    rates = [Fraction(a, a + b) for a, b in ((tp, fn), (tn, fp)) if a + b]
    return ShiftScreen(
        pairs=len(pairs),
        tp=tp,
        tn=tn,
        fp=fp,
        fn=fn,
        balanced_accuracy=float(sum(rates, Fraction(0)) / len(rates)) if rates else None,
        precision=tp / (tp + fp) if tp + fp else None,
        recall=tp / (tp + fn) if tp + fn else None,
        spearman=spearman(gains, list(delta_scores)),
    )
