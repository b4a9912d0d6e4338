"""The record of one score: frozen, complete, and refusing comparisons that mean nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from dreamcheck.diagnostics.viscore.baselines import Baselines
from dreamcheck.errors import ExitCode, InterfaceMismatch

CALIBRATED_WIDTHS = (96, 384)
CALIBRATED_AT = 192


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """Everything measured about one checkpoint.

    factors: the factor set, initials in order; a subset is another scale than "VIS".
    scale: what the number may be compared with, in words; equal scales on equal probes compare.
    vis: product of the included factors; NaN when abstained.
    veracity, influence, sobriety: in [0, 1]; NaN when excluded or not measurable.
    reasons: (factor, why it is NaN), for included factors only.
    status: "ok" or "abstained". binding: the smallest included factor.
    saturated: included factors at 1 - 1e-6 or above; they separate nothing.
    d_tol, d_tol_half, sigma_roll: latent units. nmse: at the horizon; nmse_curve: k = 1 ... h_max.
    m_emp, m_emp_one_step, tau: nats. spectrum: λ of the capacity, largest first.
    near_tie_below: |gap| below which a sign is not to be relied on (near_ties lists the anchors);
        search_precision: float32, or what the checked fast mode found.
    gaps: squared latent units, one per sobriety anchor; anchors: their probe rows.
    width: numbers of a latent where distances are measured; width_status: "calibrated",
        "uncalibrated width", "projected to 192" or "reference rule at any width".
    nats_per_effective_dimension: m_emp over the bank's participation ratio.
    samples_per_dimension: residual windows over width.
    seconds: (stage, wall time), not part of the comparison of records.
    """

    task: str
    cell_id: str
    model_identity: str
    probe_digest: str
    criterion_digest: str
    factors: str
    scale: str
    vis: float
    veracity: float
    influence: float
    sobriety: float
    status: str
    reasons: tuple[tuple[str, str], ...]
    saturated: tuple[str, ...]
    binding: str
    d_tol: float
    d_tol_half: float
    num_pairs: int
    num_pair_candidates: int
    sigma_roll: float
    nmse: float
    nmse_curve: tuple[float, ...]
    num_clips: int
    covariance_trace: float
    m_emp: float
    m_emp_one_step: float
    tau: float
    spectrum: tuple[float, ...]
    capacity_form: str
    p_hat: float
    gap_resolution: float
    num_gaps_below_resolution: int
    near_tie_below: float
    search_precision: str
    gaps: tuple[float, ...]
    anchors: tuple[int, ...]
    search: str
    noise: str
    horizon: int
    history: int
    frameskip: int
    width: int
    width_status: str
    nats_per_effective_dimension: float
    samples_per_dimension: float
    num_predictions: int
    baselines: Baselines | None = None
    seconds: tuple[tuple[str, float], ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """0 scored, 3 abstained."""
        return ExitCode.DONE if self.status == "ok" else ExitCode.ABSTAINED

    @property
    def near_ties(self) -> tuple[int, ...]:
        """Probe rows of the anchors whose gap is below ``near_tie_below``: signs of noise."""
        if not math.isfinite(self.near_tie_below):
            return ()
        return tuple(
            row
            for row, gap in zip(self.anchors, self.gaps, strict=True)
            if abs(gap) < self.near_tie_below
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScoreRecord:
        """The record that ``to_dict`` wrote: None is NaN again."""
        made: dict[str, Any] = {}
        for f in fields(cls):
            value = values[f.name]
            if f.name in ("reasons", "seconds"):
                value = tuple(value.items())
            elif f.name == "baselines":
                value = None if value is None else Baselines.from_dict(value)
            elif isinstance(value, list):
                value = tuple(float("nan") if v is None else v for v in value)
            elif value is None:
                value = float("nan")
            made[f.name] = value
        return cls(**made)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name; reasons and seconds as mappings, NaN as None."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("reasons", "seconds"):
                value = dict(value)
            elif isinstance(value, Baselines):
                value = value.to_dict()
            out[f.name] = _finite_or_none(value)
        out["near_ties"] = list(self.near_ties)
        return out

    def line(self) -> str:
        """One line for a console: the score with its factor set, or why there is none."""
        name = "VIS" if self.factors == "VIS" else f"VIS[{self.factors}]"
        parts = [
            f"{initial} {value:.3f}" if math.isfinite(value) else f"{initial} -"
            for initial, value in zip(
                "VIS", (self.veracity, self.influence, self.sobriety), strict=True
            )
            if initial in self.factors
        ]
        head = f"{self.cell_id}: {name} "
        if self.status == "ok":
            body = f"= {self.vis:.4f} ({', '.join(parts)}; limited by {self.binding})"
        else:
            why = "; ".join(f"{n}: {r}" for n, r in self.reasons)
            body = f"abstained ({', '.join(parts)}) because {why}"
        width = ""
        if self.width_status != "calibrated":
            width = (
                f" [{self.width_status}: {self.width} numbers, "
                f"{self.nats_per_effective_dimension:.3g} nats per effective dimension, "
                f"{self.samples_per_dimension:.3g} samples per dimension]"
            )
        return f"{head}{body}{width} task {self.task}, {self.scale}"


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite_or_none(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_finite_or_none(v) for v in value]
    return value


def require_comparable(records: Sequence[ScoreRecord]) -> None:
    """Refuse to rank records that are on different scales.

    Raises:
        InterfaceMismatch: factor sets, scales, probes or criteria differ; the message names the
            first difference and the two cells.

    Source: spec/viscore.md sections 2 and 7.
    """
    if not records:
        return
    first = records[0]
    for other in records[1:]:
        for name, words in (
            ("factors", "factor sets"),
            ("scale", "scales"),
            ("probe_digest", "probes"),
            ("criterion_digest", "task criteria"),
        ):
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise InterfaceMismatch(
                    f"{first.cell_id} and {other.cell_id} have different {words} "
                    f"({mine[:60]} and {theirs[:60]}), so their scores cannot be compared; score "
                    "both the same way."
                )


def rank(records: Sequence[ScoreRecord]) -> tuple[ScoreRecord, ...]:
    """Highest score first; abstained records last; ties by cell id.

    Raises:
        InterfaceMismatch: the records are not comparable.
    """
    require_comparable(records)
    return tuple(
        sorted(
            records,
            key=lambda r: (
                not math.isfinite(r.vis),
                -r.vis if math.isfinite(r.vis) else 0.0,
                r.cell_id,
            ),
        )
    )
