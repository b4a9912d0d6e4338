"""Before an evaluation: how many episodes, streams and runs; which episodes, matched how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.planning.results import Evaluation, same_evaluated
from dreamcheck.stats import needed_units
from dreamcheck.stats.power import (
    mcnemar_needed_pairs,
    mcnemar_power,
    needed_cases,
    pilot_variance,
)


@dataclass(frozen=True)
class PowerReport:
    """What a stated effect needs.

    effect: difference of success rates to show.
    only_a, only_b: discordant rates assumed for one stream.
    power_now: exact McNemar power at the pilot's number of episodes (one stream).
    episodes_one_stream: episodes needed with one planner stream.
    episodes_by_streams: (streams, episodes) from the pilot's variance components; empty when the
        pilot has one stream.
    runs: training runs of each recipe below which no claim about a recipe can be made.
    """

    effect: float
    wanted_power: float
    level: float
    only_a: float
    only_b: float
    num_cases: int
    power_now: float
    episodes_one_stream: int
    episodes_by_streams: tuple[tuple[int, int], ...]
    between_cases: float | None
    within_case: float | None
    runs: int
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> tuple[str, ...]:
        """In sentences."""
        out = [
            f"to show a difference of {self.effect:.0%} with power {self.wanted_power:.0%} at level "
            f"{self.level:g} ({self.source}):",
            f"  {self.episodes_one_stream} episodes with one planner stream "
            f"(exact McNemar; {self.num_cases} give {self.power_now:.1%})",
        ]
        for streams, cases in self.episodes_by_streams:
            out.append(f"  {cases} episodes with {streams} planner stream(s) averaged")
        out.append(
            f"  for a claim about a recipe: at least {self.runs} training runs of each, whatever "
            "the episodes"
        )
        return tuple(out)


def power(
    *,
    effect: float,
    pilot: tuple[Evaluation, Evaluation] | None = None,
    rates: tuple[float, float] | None = None,
    num_cases: int | None = None,
    wanted: float = 0.8,
    level: float = 0.05,
) -> PowerReport:
    """Episodes, streams and runs that a stated effect needs, from a pilot or from assumed rates.

    With a pilot, its share of episodes that flip both ways is kept and the effect added; with
    rates alone the arms are taken as independent, which is the pessimistic reading (S13: 0.64
    against 0.44 at 110 pairs has 0.8148).

    Args:
        effect: difference of success rates, e.g. 0.2; with ``rates`` it must be their difference.
        pilot: two evaluations on the same cases.
        num_cases: episodes to state the power of; the pilot's by default.
    """
    if not 0 < abs(effect) < 1:
        raise UsageError(f"effect = {effect} must be a difference of rates, above 0 and below 1.")
    between = within = None
    by_streams: tuple[tuple[int, int], ...] = ()
    if pilot is not None:
        a, b = pilot
        same_evaluated(a, b)
        _, x = a.planner.table()
        _, y = b.planner.table()
        keep = a.planner.table("trivial")[1][:, 0] == 0
        x, y = x[keep], y[keep]
        # Flips in either direction happen anyway; the effect is added on one side.
        base = float(min((x * (1 - y)).mean(), (y * (1 - x)).mean()))
        only_a, only_b = min(base + abs(effect), 1 - base), base
        num_cases = len(x) if num_cases is None else num_cases
        source = f"from a pilot of {len(x)} episodes and {x.shape[1]} stream(s)"
        if x.shape[1] > 1:
            parts = pilot_variance(x - y)
            between, within = parts.between_cases, parts.within_case
            by_streams = tuple(
                (s, needed_cases(parts, effect=effect, num_streams=s, power=wanted, level=level))
                for s in (1, 3, 5)
            )
    elif rates is not None:
        pa, pb = rates
        if abs(abs(pa - pb) - abs(effect)) > 1e-9:
            raise UsageError(f"rates {pa} and {pb} differ by {abs(pa - pb):g}, not by {effect:g}.")
        only_a, only_b = pa * (1 - pb), pb * (1 - pa)
        num_cases = 50 if num_cases is None else num_cases
        source = f"assuming independent rates {pa:g} and {pb:g}"
    else:
        raise UsageError("power needs a pilot (two evaluations) or two assumed rates.")
    return PowerReport(
        effect=abs(effect),
        wanted_power=wanted,
        level=level,
        only_a=only_a,
        only_b=only_b,
        num_cases=num_cases,
        power_now=mcnemar_power(only_a, only_b, num_pairs=num_cases, level=level),
        episodes_one_stream=mcnemar_needed_pairs(only_a, only_b, power=wanted, level=level),
        episodes_by_streams=by_streams,
        between_cases=between,
        within_case=within,
        runs=needed_units(level=level),
        source=source,
    )


@dataclass(frozen=True, slots=True)
class MatchedPair:
    """A cross-wall and a same-room episode of nearly the same distance."""

    pair_id: int
    cross: int
    same: int
    cross_distance: float
    same_distance: float


@dataclass(frozen=True)
class MatchedDesign:
    """Pairs chosen by distance alone, blind to every outcome (S12).

    availability: (low, high, cross candidates, same-room candidates, pairs) per distance band.
    unmatched: range of cross distances for which no partner lay within the caliper.
    """

    pairs: tuple[MatchedPair, ...]
    caliper: float
    seed: int
    offset: int
    gap_median: float
    gap_max: float
    availability: tuple[tuple[float, float, int, int, int], ...]
    unmatched: tuple[float, float] | None

    def to_list(self) -> dict[str, Any]:
        """The committed list that ``episode_list`` reads (P10)."""
        episodes = []
        for p in self.pairs:
            episodes += [
                {"episode": p.cross, "geometry": "cross", "pair_id": p.pair_id,
                 "sel_dist": p.cross_distance},
                {"episode": p.same, "geometry": "same", "pair_id": p.pair_id,
                 "sel_dist": p.same_distance},
            ]  # fmt: skip
        return {
            "goal_offset": self.offset,
            "seed": self.seed,
            "caliper": self.caliper,
            "n_pairs": len(self.pairs),
            "selection": "one-to-one caliper matching on start-goal distance; blind to outcomes",
            "episodes": episodes,
        }


def matched_pairs(
    episodes: Sequence[int] | np.ndarray,
    starts: np.ndarray,
    goals: np.ndarray,
    *,
    offset: int,
    wall: float = 112.0,
    axis: int = 0,
    caliper: float = 6.0,
    seed: int = 11,
    limit: int = 110,
) -> MatchedDesign:
    """Cross-wall episodes, each with the nearest unused same-room one within the caliper.

    Args:
        episodes: eligible episodes. starts, goals: [E, 2] positions at frame 0 and at the offset.
        wall, axis: the wall's middle and the coordinate across it.
        limit: stop at this many pairs.

    Source: spec/protocol.md S12.
    """
    episodes = np.asarray(episodes)
    starts, goals = np.asarray(starts, float), np.asarray(goals, float)
    distance = np.hypot(*(starts - goals).T)
    cross = (starts[:, axis] < wall) != (goals[:, axis] < wall)
    candidates, partners = np.flatnonzero(cross), np.flatnonzero(~cross)
    order = candidates[np.random.default_rng(seed).permutation(len(candidates))]
    free = np.ones(len(partners), bool)
    pairs: list[MatchedPair] = []
    lost = []
    for c in order:
        if len(pairs) == limit:
            break
        if not free.any():
            lost.append(distance[c])
            continue
        gap = np.where(free, np.abs(distance[partners] - distance[c]), np.inf)
        j = int(gap.argmin())
        if gap[j] > caliper:
            lost.append(distance[c])
            continue
        free[j] = False
        s = partners[j]
        pairs.append(
            MatchedPair(
                len(pairs), int(episodes[c]), int(episodes[s]), float(distance[c]),
                float(distance[s]),
            )
        )  # fmt: skip
    gaps = np.array([abs(p.cross_distance - p.same_distance) for p in pairs])
    used = np.array([p.cross_distance for p in pairs])
    table = []
    for low in np.arange(0.0, max(float(distance.max()), 1.0) + 20, 20):
        inside = (distance >= low) & (distance < low + 20)
        if inside.any():
            table.append(
                (
                    float(low),
                    float(low + 20),
                    int((inside & cross).sum()),
                    int((inside & ~cross).sum()),
                    int(((used >= low) & (used < low + 20)).sum()) if len(used) else 0,
                )
            )
    return MatchedDesign(
        pairs=tuple(pairs),
        caliper=caliper,
        seed=seed,
        offset=offset,
        gap_median=float(np.median(gaps)) if len(gaps) else float("nan"),
        gap_max=float(gaps.max()) if len(gaps) else float("nan"),
        availability=tuple(table),
        unmatched=(float(min(lost)), float(max(lost))) if lost else None,
    )
