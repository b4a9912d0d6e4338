"""What an evaluation holds: outcomes per episode and stream, rates with intervals, controls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.planning.admission import Feasibility
from dreamcheck.planning.cases import Selection
from dreamcheck.planning.control import Replan
from dreamcheck.planning.execution import Trajectories
from dreamcheck.planning.guarding import audit_text
from dreamcheck.stats import normal_quantile

FAST_SUCCESS_STEPS = 5
"""Median steps of successes at or under which C14 calls them unusually fast."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case on one planner stream (P16); distances in task units, full precision.

    success: the protocol's rule was fulfilled within the budget. at_end: satisfied at the last
    executed step. trivial: the start already satisfies it. illegal_steps: steps in which the disc
    cut a wall, None where routes are not checked.
    """

    case: str
    episode: int
    start: int
    gap: int | None
    stream: int
    success: bool
    at_end: bool
    steps: int
    start_distance: float
    final_distance: float
    min_distance: float
    trivial: bool
    replans: int
    illegal_steps: int | None = None
    discontinuity: float = 0.0
    geometry: str | None = None
    pair_id: int | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate over cases, streams averaged inside a case.

    low, high: Wilson score interval at the number of cases. With several streams the mean of case
    means varies less than a single outcome, so the interval is conservative.
    """

    value: float
    low: float
    high: float
    num_cases: int
    num_streams: int
    successes: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def rate(case_means: Sequence[float] | np.ndarray, *, streams: int) -> Rate | None:
    """The rate of case means with its Wilson interval; None without cases."""
    values = np.asarray(case_means, np.float64)
    n = len(values)
    if n == 0:
        return None
    p = float(values.mean())
    z = normal_quantile(0.95)
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if p == 0 else max(0.0, centre - half)
    high = 1.0 if p == 1 else min(1.0, centre + half)
    return Rate(p, low, high, n, streams, float(values.sum()))


@dataclass(frozen=True)
class ArmResult:
    """One arm: its outcomes and what follows from them.

    success: over cases that were not already solved: the headline. success_all: with them.
    per_stream: the headline of each stream alone. legal_success: successes whose route cut no
    wall, None where routes are not checked.
    farther: share of misses that ended farther than they began.
    overshoot: mean final distance above the random control's and at least half of the misses
    farther (H2); None without that control. fast_and_far: the wrong-scale signature (C14).
    """

    name: str
    outcomes: tuple[Outcome, ...]
    success: Rate | None
    success_all: Rate
    per_stream: tuple[Rate, ...]
    legal_success: Rate | None
    illegal_episodes: int | None
    num_trivial: int
    mean_final_distance: float
    final_distance_quantiles: tuple[float, float, float, float, float]
    farther: float | None
    median_success_steps: float | None
    overshoot: bool | None
    fast_and_far: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, *, outcomes: bool = True) -> dict[str, Any]:
        """Plain values; ``outcomes=False`` leaves the episodes out."""
        made = asdict(self)
        if not outcomes:
            made.pop("outcomes")
        return made

    def table(self, key: str = "success") -> tuple[list[str], np.ndarray]:
        """Case ids in order, and one outcome field [cases, streams] as float."""
        ids = list(dict.fromkeys(o.case for o in self.outcomes))
        streams = len(self.outcomes) // len(ids)
        values = np.array([float(getattr(o, key)) for o in self.outcomes])
        return ids, values.reshape(len(ids), streams)


def arm_result(
    name: str,
    outcomes: Sequence[Outcome],
    *,
    random_mean_final: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ArmResult:
    """An arm from its outcomes, cases outermost and streams inside."""
    streams = len({o.stream for o in outcomes})
    n = len(outcomes) // streams
    table = np.array([o.success for o in outcomes], float).reshape(n, streams)
    trivial = np.array([o.trivial for o in outcomes]).reshape(n, streams)[:, 0]
    finals = np.array([o.final_distance for o in outcomes])
    misses = [o for o in outcomes if not o.success]
    farther = (
        float(np.mean([o.final_distance > o.start_distance for o in misses])) if misses else None
    )
    won = [o.steps for o in outcomes if o.success and not o.trivial]
    median = float(np.median(won)) if won else None
    legal = illegal = None
    if all(o.illegal_steps is not None for o in outcomes):
        clean = np.array([o.success and o.illegal_steps == 0 for o in outcomes], float)
        legal = rate(clean.reshape(n, streams)[~trivial].mean(axis=1), streams=streams)
        illegal = sum(bool(o.illegal_steps) for o in outcomes)
    mean_final = float(finals.mean())
    everything = rate(table.mean(axis=1), streams=streams)
    assert everything is not None
    overshoot = None
    if random_mean_final is not None:
        overshoot = bool(mean_final > random_mean_final and farther is not None and farther >= 0.5)
    return ArmResult(
        name=name,
        outcomes=tuple(outcomes),
        success=rate(table[~trivial].mean(axis=1), streams=streams),
        success_all=everything,
        per_stream=tuple(
            r for s in range(streams) if (r := rate(table[~trivial, s], streams=1)) is not None
        ),
        legal_success=legal,
        illegal_episodes=illegal,
        num_trivial=int(trivial.sum()),
        mean_final_distance=mean_final,
        final_distance_quantiles=tuple(np.quantile(finals, [0, 0.25, 0.5, 0.75, 1]).tolist()),
        farther=farther,
        median_success_steps=median,
        overshoot=overshoot,
        fast_and_far=bool(
            median is not None
            and farther is not None
            and median <= FAST_SUCCESS_STEPS
            and farther > 0.5
        ),
        settings=dict(settings or {}),
    )


@dataclass(frozen=True)
class Optimism:
    """Optimism over replans: (realised - imagined) of the chosen plan minus a random one's.

    distance: mean in task units with the standard error over cases; None without a readout.
    cost: the same in the objective's unit. reason: why something is None.
    """

    distance: float | None
    distance_se: float | None
    cost: float | None
    num_replans: int
    unit: str
    reason: str = ""


def optimism_of(replans: Sequence[Replan], case: np.ndarray, *, unit: str) -> Optimism:
    """The mean over cases of each case's mean over its replans."""

    def by_case(values: list[tuple[int, float]]) -> np.ndarray:
        rows: dict[int, list[float]] = {}
        for row, value in values:
            rows.setdefault(int(case[row]), []).append(value)
        return np.array([np.mean(v) for v in rows.values()])

    px = by_case([(r.row, r.optimism) for r in replans if r.optimism is not None])
    cost = by_case([(r.row, r.optimism_cost) for r in replans if r.optimism_cost is not None])
    reason = ""
    if not len(px):
        reason = (
            "needs a readout of the task's state and a task that can be branched"
            if replans
            else "no replan was logged"
        )
    return Optimism(
        distance=float(px.mean()) if len(px) else None,
        distance_se=float(px.std(ddof=1) / math.sqrt(len(px))) if len(px) > 1 else None,
        cost=float(cost.mean()) if len(cost) else None,
        num_replans=len(replans),
        unit=unit,
        reason=reason,
    )


@dataclass(frozen=True)
class Realised:
    """The protocol as it came about (P1, P2); the deviations text is made from it.

    iterations, candidates: (least, most) that a replan's solver really asked for, counted while it
        ran; the settings only say what was asked for.
    domain_guard, norm_audit: readings before planning, as in ``Guarded``; None where nobody asked.
    committed_digest, committed: the committed episode list's content, and its episodes in order.
    """

    protocol: Mapping[str, Any]
    protocol_digest: str
    label: str
    model: str
    conventions: str
    objective: str
    solver: str
    solver_settings: Mapping[str, Any]
    driving_digest: str
    success_digest: str
    task: str
    task_version: str
    data_source: str
    data_digest: str
    list_digest: str
    num_cases: int
    num_eligible: int
    num_episodes: int
    moved_starts: int
    span_min: int
    span_mean: float
    span_max: int
    gap_min: int | None
    gap_mean: float | None
    gap_max: int | None
    streams: int
    history: int
    numerics: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    iterations: tuple[int, int] | None = None
    candidates: tuple[int, int] | None = None
    domain_guard: Mapping[str, Any] | None = None
    norm_audit: Mapping[str, Any] | None = None
    committed_digest: str | None = None
    committed: tuple[int, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def deviations(realised: Realised, reference: Mapping[str, Any]) -> tuple[str, ...]:
    """How the realised protocol differs from a reference protocol, one sentence each.

    Made from the record, never from defaults.

    Args:
        reference: ``Protocol.model_dump()`` of the reference, e.g. of the preset "lewm-repo".
    """
    lines = []
    for key, wanted in reference.items():
        if key in ("name", "note", "fresh", "episode_list", "seed"):
            continue
        got = realised.protocol.get(key)
        if got != wanted:
            lines.append(f"{key}: {_text(got)}, reference {_text(wanted)}")
    if realised.num_cases != reference.get("num_eval"):
        lines.append(
            f"episodes evaluated: {realised.num_cases}, reference {reference.get('num_eval')}"
        )
    asked = realised.solver_settings.get("iterations")
    if (
        realised.iterations is not None
        and asked is not None
        and set(realised.iterations) != {asked}
    ):
        low, high = realised.iterations
        counted = str(low) if low == high else f"{low} to {high}"
        lines.append(f"solver iterations: {counted} counted per replan, {asked} asked for")
    if realised.protocol.get("start_rule", "").startswith("sampled") and not realised.moved_starts:
        lines.append("a sampled start was requested and moved no start")
    return (*lines, *realised.notes)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {v}" for k, v in value.items()) + "}"
    return str(value)


@dataclass(frozen=True)
class Evaluation:
    """One checkpoint under one protocol.

    planner: the arm under test. controls: by name. controls_missing: name -> why.
    trajectories, case, stream: arrays for figures; not in ``to_dict``.
    """

    realised: Realised
    feasibility: Feasibility
    planner: ArmResult
    controls: Mapping[str, ArmResult]
    controls_missing: Mapping[str, str]
    optimism: Optimism
    near_tie_replans: int
    out_of_range_share: float
    plan_out_of_range_share: float
    screening: Mapping[str, Any] | None
    unit: str
    stamps: tuple[str, ...] = ()
    selection: Selection | None = field(default=None, repr=False)
    replans: tuple[Replan, ...] = field(default=(), repr=False)
    trajectories: Mapping[str, Trajectories] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Goal rule, offset and budget: stands next to every number (law 8)."""
        return self.realised.label

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every outcome included; trajectories left out."""
        return {
            "realised": self.realised.to_dict(),
            "feasibility": self.feasibility.to_dict(),
            "planner": self.planner.to_dict(),
            "controls": {k: v.to_dict() for k, v in self.controls.items()},
            "controls_missing": dict(self.controls_missing),
            "optimism": asdict(self.optimism),
            "near_tie_replans": self.near_tie_replans,
            "out_of_range_share": self.out_of_range_share,
            "plan_out_of_range_share": self.plan_out_of_range_share,
            "screening": self.screening,
            "unit": self.unit,
            "stamps": list(self.stamps),
            "replans": [
                {**asdict(r), "optimism": r.optimism, "optimism_cost": r.optimism_cost}
                for r in self.replans
            ],
        }

    def lines(self) -> tuple[str, ...]:
        """The result in sentences, for a console."""
        out = [
            f"{self.label}, {self.realised.num_cases} episodes, {self.realised.streams} planner "
            "stream(s) averaged inside each"
        ]
        for arm in (self.planner, *self.controls.values()):
            out.append(
                f"  {arm.name}: {rate_text(arm.success)}"
                + (
                    f"; {rate_text(arm.legal_success)} without illegal routes"
                    if arm.legal_success is not None and arm.illegal_episodes
                    else ""
                )
                + f"; mean final distance {arm.mean_final_distance:.1f} {self.unit}"
            )
        for name, why in self.controls_missing.items():
            out.append(f"  {name}: left out ({why})")
        if self.planner.num_trivial:
            out.append(
                f"  {self.planner.num_trivial} start(s) were already solved and are left out; "
                f"with them {rate_text(self.planner.success_all)}"
            )
        if self.optimism.distance is not None:
            se = "" if self.optimism.distance_se is None else f" ± {self.optimism.distance_se:.1f}"
            out.append(
                f"  optimism of chosen plans: {self.optimism.distance:.1f}{se} "
                f"{self.optimism.unit} per replan"
            )
        if self.planner.overshoot:
            out.append(
                "  overshoot: ends farther away than random actions do, and most misses "
                "ended farther than they began"
            )
        if self.planner.fast_and_far:
            out.append(
                "  wrong-scale signature: successes unusually fast, misses farther than "
                "they began; measure the action scale"
            )
        for flag, why in zip(self.feasibility.flags, self.feasibility.reasons, strict=True):
            out.append(f"  {flag}: {why}")
        out.append(
            f"  domain guard: {audit_text(self.realised.domain_guard)}; normalisation audit: "
            f"{audit_text(self.realised.norm_audit)}"
        )
        return tuple(out)


def rate_text(value: Rate | None) -> str:
    """A rate in words, with its interval and cases."""
    if value is None:
        return "no case left"
    return (
        f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}] "
        f"({value.successes:g}/{value.num_cases})"
    )


def check_committed(evaluation: Evaluation) -> None:
    """Refuse an evaluation whose episodes are not those of its committed list (P10).

    Nothing is asked of one without a committed list.

    Raises:
        UsageError: an episode is missing, was added, or did not start at frame 0.
    """
    committed = evaluation.realised.committed
    if committed is None:
        return
    listed = evaluation.realised.protocol.get("episode_list")
    for arm in (evaluation.planner, *evaluation.controls.values()):
        evaluated = [o for o in arm.outcomes if o.stream == 0]
        absent = Counter(committed) - Counter(o.episode for o in evaluated)
        added = Counter(o.episode for o in evaluated) - Counter(committed)
        moved = [o.case for o in evaluated if o.start != 0]
        if absent or added or moved:
            raise UsageError(
                f"the arm {arm.name} was not run on its committed list {listed}: not evaluated "
                f"{sorted(absent)[:5]}, evaluated but not on it {sorted(added)[:5]}, not from frame "
                f"0 {moved[:5]}. Run the whole list again; a part of it is another design."
            )


def same_evaluated(first: Evaluation, second: Evaluation) -> None:
    """Refuse to analyse two evaluations together unless their episodes, starts and goals agree.

    Asked of every analysis, registered beforehand or not (P9, P10).

    Raises:
        UsageError: other episodes, starts, streams or goals, or not a committed list's own.
    """
    check_committed(first)
    check_committed(second)
    same_cases(first.planner, second.planner)
    if first.realised.list_digest != second.realised.list_digest:
        raise UsageError(
            "the two evaluations share episode numbers but not starts and goals (list "
            f"{first.realised.list_digest[:12]} against {second.realised.list_digest[:12]}): they "
            "were made from other data. Run both on the same episodes."
        )


def same_cases(first: ArmResult, second: ArmResult) -> None:
    """Refuse to pair arms on different cases (P9): ids and start distances must agree.

    Raises:
        UsageError: they differ; the first difference is named.
    """
    ids, other = (
        [(a.case, a.stream) for a in first.outcomes],
        [(b.case, b.stream) for b in second.outcomes],
    )
    if ids != other:
        only = sorted({c for c, _ in ids} ^ {c for c, _ in other})
        raise UsageError(
            f"the arms {first.name} and {second.name} were not run on the same episodes and "
            f"streams (first difference: {only[0] if only else 'the number of streams'}). Pairing "
            "by seed alone is not evidence; run both on one committed list."
        )
    for a, b in zip(first.outcomes, second.outcomes, strict=True):
        if abs(a.start_distance - b.start_distance) > 1e-6:
            raise UsageError(
                f"case {a.case} starts {a.start_distance:.4f} from its goal in {first.name} and "
                f"{b.start_distance:.4f} in {second.name}: these are different starts or goals."
            )
