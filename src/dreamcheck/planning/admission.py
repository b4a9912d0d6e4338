"""Can the protocol be followed on these data? Asked before a model is loaded (P7, P8)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.planning.cases import Selection, eligible, select, spans
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.recorded import Recorded
from dreamcheck.tasks.criteria import SuccessRule, TaskCriteria

SELECTION_SHIFT = 0.2
"""Difference of solved shares, eligible against all, above which the selection is flagged."""


@dataclass(frozen=True)
class Feasibility:
    """What the data allow under a protocol.

    num_eligible, total_legal_starts, span_*: as in the selection.
    solved_share, eligible_solved_share: episodes that the data policy solved; None without flags.
    solved_eligible, timeout_share: their number among the eligible; eligible ones not solved.
    final_distance_solved, final_distance_timeout: mean distance to the recorded target at the
        last frame, by outcome; None without targets.
    distance_*: of the selected starts to their goals, in unit. trivial: already solved starts.
    covers_goal: horizon x block reaches the offset. budget_covers_plan: budget >= horizon x block.
    flags: "degenerate", "selection-shifted", "horizon-short", "budget-short", "few-episodes".
    """

    protocol: str
    label: str
    num_episodes: int
    num_eligible: int
    total_legal_starts: int
    span_min: int
    span_mean: float
    span_max: int
    solved_share: float | None = None
    eligible_solved_share: float | None = None
    solved_eligible: int | None = None
    timeout_share: float | None = None
    final_distance_solved: float | None = None
    final_distance_timeout: float | None = None
    distance_min: float | None = None
    distance_median: float | None = None
    distance_max: float | None = None
    unit: str = ""
    trivial: int | None = None
    num_cases: int | None = None
    covers_goal: bool | None = None
    budget_covers_plan: bool = True
    flags: tuple[str, ...] = ()
    reasons: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """The audit for a console."""
        out = [
            f"{self.protocol}: {self.label}",
            f"  {self.num_eligible} of {self.num_episodes} episodes are eligible, with "
            f"{self.total_legal_starts} legal starts",
        ]
        if self.num_cases is not None and self.distance_median is not None:
            out.append(
                f"  {self.num_cases} chosen, {self.trivial} already solved; start to goal "
                f"{self.distance_min:.1f} / {self.distance_median:.1f} / {self.distance_max:.1f} "
                f"{self.unit} (least, median, most)"
            )
        if self.solved_share is not None:
            out.append(
                f"  the data policy solved {self.solved_share:.1%} of all and "
                f"{self.eligible_solved_share:.1%} of the eligible episodes"
            )
        for flag, why in zip(self.flags, self.reasons, strict=True):
            out.append(f"  {flag}: {why}")
        return tuple(out)


def feasibility(
    protocol: Protocol,
    lengths: np.ndarray,
    *,
    terminated: np.ndarray | None = None,
    final_distance: np.ndarray | None = None,
    history: int = 1,
) -> Feasibility:
    """The audit from lengths and flags alone.

    Args:
        lengths: frames per episode [E]. terminated: bool [E], the flag at the last frame.
        final_distance: [E], distance to the recorded target at the last frame.

    Raises:
        UsageError: no episodes, no eligible one, or a filter without flags.
    """
    lengths = np.asarray(lengths, np.int64)
    if len(lengths) == 0:
        raise UsageError("the data hold no episodes: there is nothing to start from.")
    usable = eligible(protocol, lengths, terminated=terminated, history=history)
    if len(usable) == 0:
        raise UsageError(
            f"no episode is eligible under {protocol.label}: the longest of {len(lengths)} has "
            f"{int(lengths.max())} frames. Lower the offset or use other data."
        )
    room = spans(protocol, lengths, history=history)[usable]
    flags, reasons = [], []
    sampled = protocol.start_rule in ("sampled", "sampled_legacy", "sampled_rows", "fresh_policy")
    if sampled and int(room.max()) == 0:
        flags.append("degenerate")
        reasons.append(
            "a sampled start was requested, but every eligible episode has one legal start: "
            "sampling has no effect"
        )
    values: dict[str, Any] = {}
    if terminated is not None:
        share, within = float(np.mean(terminated)), float(np.mean(terminated[usable]))
        values |= {
            "solved_share": share,
            "eligible_solved_share": within,
            "solved_eligible": int(np.sum(terminated[usable])),
            "timeout_share": 1 - within,
        }
        if abs(share - within) > SELECTION_SHIFT:
            flags.append("selection-shifted")
            reasons.append(
                f"the data policy solved {within:.1%} of the eligible episodes but {share:.1%} of "
                "all: the eligible ones are another population"
            )
        if final_distance is not None:
            early = np.asarray(terminated, bool) & (lengths < lengths.max())
            values["final_distance_solved"] = _mean(final_distance[early])
            values["final_distance_timeout"] = _mean(final_distance[lengths == lengths.max()])
    reach = protocol.horizon * protocol.block
    covers = None if protocol.offset is None else reach >= protocol.offset
    if covers is False:
        flags.append("horizon-short")
        reasons.append(
            f"one plan reaches {reach} steps, the goal is {protocol.offset} steps away: the first "
            "plans cannot see it"
        )
    if protocol.budget_steps < reach:
        flags.append("budget-short")
        reasons.append(f"the budget of {protocol.budget_steps} steps ends inside the first plan")
    if len(usable) < protocol.num_eval and protocol.episode_list is None:
        flags.append("few-episodes")
        reasons.append(f"{protocol.num_eval} episodes were asked for, {len(usable)} are eligible")
    return Feasibility(
        protocol=protocol.name,
        label=protocol.label,
        num_episodes=len(lengths),
        num_eligible=len(usable),
        total_legal_starts=int((room + 1).sum()),
        span_min=int(room.min()),
        span_mean=float(room.mean()),
        span_max=int(room.max()),
        covers_goal=covers,
        budget_covers_plan=protocol.budget_steps >= reach,
        flags=tuple(flags),
        reasons=tuple(reasons),
        **values,
    )


def audit(
    protocol: Protocol, data: Recorded, criteria: TaskCriteria, *, history: int = 1
) -> tuple[Feasibility, Selection]:
    """The audit of recorded or fresh episodes, and the cases it allows.

    Raises:
        UsageError: as ``feasibility`` and ``select``; a goal outside the arena.
    """
    terminated = data.terminated()
    if protocol.episode_filter != "none":
        data.need_terminated(protocol.episode_filter)
    rule = rule_of(protocol, criteria)
    finals = None
    if terminated is not None and data.has_target():
        last = np.stack([data.state(e)[-1] for e in range(len(data.lengths))])
        goals = np.stack([data.target(e, int(n) - 1) for e, n in enumerate(data.lengths)])
        finals = rule.distance(last, goals, data.columns)
    report = feasibility(
        protocol, data.lengths, terminated=terminated, final_distance=finals, history=history
    )
    selection = select(protocol, data, history=history)
    starts = np.array([c.start_state for c in selection.cases])
    goals = np.array([c.goal_state for c in selection.cases])
    if criteria.arena is not None:
        criteria.arena.check(goals, data.columns, what="goal")
    distances = rule.distance(starts, goals, data.columns)
    return (
        Feasibility(
            **{
                **report.to_dict(),
                "distance_min": float(distances.min()),
                "distance_median": float(np.median(distances)),
                "distance_max": float(distances.max()),
                "unit": rule.parts[0].unit,
                "trivial": int(rule.satisfied(starts, goals, data.columns).sum()),
                "num_cases": len(selection.cases),
            }
        ),
        selection,
    )


def rule_of(protocol: Protocol, criteria: TaskCriteria) -> SuccessRule:
    """The protocol's success rule, with its radius where the protocol overrides it."""
    rule = criteria.rule(protocol.success)
    if protocol.success_radius is None:
        return rule
    first = rule.parts[0].model_copy(update={"tolerance": protocol.success_radius})
    return rule.model_copy(update={"parts": (first, *rule.parts[1:])})


def _mean(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None
