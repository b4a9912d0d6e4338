"""Which episodes are evaluated: starts, goals, and the draws that chose them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.planning.protocol import Protocol
from dreamcheck.planning.recorded import Recorded
from dreamcheck.streams import stream


@dataclass(frozen=True, slots=True)
class Case:
    """One start and goal.

    id: "episode:start", the identity of its random streams; a case drawn twice gets "#2".
    gap: frames from start to goal, None for a recorded target.
    start_state, goal_state: in the task's columns. geometry, pair_id: where a list carries them.
    """

    id: str
    episode: int
    start: int
    gap: int | None
    start_state: tuple[float, ...]
    goal_state: tuple[float, ...]
    geometry: str | None = None
    pair_id: int | None = None


@dataclass(frozen=True)
class Selection:
    """The cases of one protocol and how they came about.

    num_eligible: episodes that the goal rule, context and filter allow.
    span_min, span_mean, span_max: legal starts per eligible episode, minus one.
    moved_starts: cases whose start is not frame 0.
    committed, committed_digest: episodes of the committed list as written, and the digest of its
        whole content; None without one.
    """

    cases: tuple[Case, ...]
    num_eligible: int
    num_episodes: int
    span_min: int
    span_mean: float
    span_max: int
    moved_starts: int
    list_digest: str
    committed: tuple[int, ...] | None = None
    committed_digest: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record, cases included."""
        return asdict(self)


def first_start(protocol: Protocol, *, history: int) -> int:
    """The earliest frame a case may start at: ``history`` context needs recorded frames before."""
    return (history - 1) * protocol.block if protocol.context_init == "history" else 0


def spans(protocol: Protocol, lengths: np.ndarray, *, history: int = 1) -> np.ndarray:
    """Last legal start minus first, per episode; negative where there is none. int64 [E].

    Source: spec/protocol.md sections 2.2 and 2.3.
    """
    lengths = np.asarray(lengths, np.int64)
    low = first_start(protocol, history=history)
    if protocol.goal_rule == "fixed_offset":
        assert protocol.offset is not None
        return lengths - 1 - protocol.offset - low
    if protocol.goal_rule == "max_offset":
        return lengths - 2 - low
    return lengths - 1 - low


def eligible(
    protocol: Protocol,
    lengths: np.ndarray,
    *,
    terminated: np.ndarray | None = None,
    history: int = 1,
) -> np.ndarray:
    """Episodes that the goal rule, the context and the filter allow, ascending, int64."""
    keep = spans(protocol, lengths, history=history) >= 0
    if protocol.episode_filter != "none":
        if terminated is None:
            raise UsageError(
                f"episode_filter = {protocol.episode_filter!r} needs the `terminated` flag."
            )
        keep &= terminated if protocol.episode_filter == "policy_solved" else ~terminated
    return np.flatnonzero(keep)


def seeded_draw(candidates: np.ndarray, num_eval: int, *, seed: int) -> np.ndarray:
    """Episodes in the order drawn, without replacement (P9)."""
    rng = np.random.default_rng(seed)
    return rng.choice(candidates, min(num_eval, len(candidates)), replace=False)


def select(protocol: Protocol, data: Recorded, *, history: int = 1) -> Selection:
    """The protocol's cases.

    Args:
        history: latents the model reads, for ``context_init = "history"``.

    Raises:
        UsageError: no eligible episode, a list of another offset, an unknown episode, data without
            the flag, target or state that the protocol reads.
    """
    flags = (
        data.need_terminated(protocol.episode_filter) if protocol.episode_filter != "none" else None
    )
    usable = eligible(protocol, data.lengths, terminated=flags, history=history)
    room = spans(protocol, data.lengths, history=history)
    listed: dict[str, Any] | None = None
    if protocol.episode_list is not None:
        listed = read_list(protocol.episode_list)
        drawn, marks = _committed(protocol, data, usable, listed)
        picks = [(e, 0) for e in drawn]
    else:
        if len(usable) == 0:
            raise UsageError(_nothing_eligible(protocol, data, history))
        marks = [{}] * 0
        picks = _draw(protocol, usable, room, history)
    cases = []
    seen: dict[str, int] = {}
    for i, (e, s) in enumerate(picks):
        goal, gap = _goal(protocol, data, e, s)
        name = f"{e}:{s}"
        seen[name] = seen.get(name, 0) + 1
        mark: Mapping[str, Any] = marks[i] if marks else {}
        cases.append(
            Case(
                id=name if seen[name] == 1 else f"{name}#{seen[name]}",
                episode=e,
                start=s,
                gap=gap,
                start_state=tuple(data.state(e)[s].tolist()),
                goal_state=tuple(goal.tolist()),
                geometry=mark.get("geometry"),
                pair_id=mark.get("pair_id"),
            )
        )
    allowed = room[usable]
    return Selection(
        cases=tuple(cases),
        num_eligible=len(usable),
        num_episodes=len(data.lengths),
        span_min=int(allowed.min()),
        span_mean=float(allowed.mean()),
        span_max=int(allowed.max()),
        moved_starts=sum(s > 0 for _, s in picks),
        list_digest=digest([[c.id, c.start_state, c.goal_state] for c in cases]),
        committed=None if listed is None else tuple(x["episode"] for x in listed["episodes"]),
        committed_digest=None if listed is None else digest(listed),
    )


def _draw(
    protocol: Protocol, usable: np.ndarray, room: np.ndarray, history: int
) -> list[tuple[int, int]]:
    low = first_start(protocol, history=history)
    if protocol.start_rule == "sampled_rows":
        return _draw_rows(protocol, usable, room, low)
    shared = np.random.default_rng(protocol.seed)
    drawn = shared.choice(usable, min(protocol.num_eval, len(usable)), replace=False)
    picks = []
    for e in drawn.tolist():
        if protocol.start_rule == "frame0":
            picks.append((e, low))
            continue
        rng = (
            shared if protocol.rng_mode == "shared" else stream(protocol.seed, "planning-start", e)
        )
        span = int(room[e])
        if protocol.start_rule == "sampled_legacy":
            # Never the last legal start, and frame 0 where there is no span: kept as released.
            offset = int(rng.integers(0, span)) if span > 0 else 0
        else:
            offset = int(rng.integers(0, span + 1))
        picks.append((e, low + offset))
    return picks


def _draw_rows(
    protocol: Protocol, usable: np.ndarray, room: np.ndarray, low: int
) -> list[tuple[int, int]]:
    """Rows of all episodes, drawn without replacement and sorted (the reference script)."""
    counts = room[usable] + 1
    ends = np.cumsum(counts)
    total = int(ends[-1])
    population = total - 1 if protocol.rows_population == "all_but_last" else total
    if population < 1:
        raise UsageError("start_rule = 'sampled_rows' has no row to draw from.")
    rng = np.random.default_rng(protocol.seed)
    rows = np.sort(rng.choice(population, min(protocol.num_eval, population), replace=False))
    slots = np.searchsorted(ends, rows, side="right")
    starts = rows - (ends[slots] - counts[slots]) + low
    return [(int(usable[i]), int(s)) for i, s in zip(slots, starts, strict=True)]


def _goal(protocol: Protocol, data: Recorded, e: int, s: int) -> tuple[np.ndarray, int | None]:
    if protocol.goal_rule == "recorded_target":
        return data.target(e, s), None
    assert protocol.offset is not None
    states = data.state(e)
    left = len(states) - 1 - s
    if protocol.goal_rule == "fixed_offset":
        gap = protocol.offset
    elif protocol.max_offset_variant == "clip":
        gap = min(protocol.offset, left)
    else:
        rng = stream(protocol.seed, "planning-gap", f"{e}:{s}")
        gap = int(rng.integers(1, min(protocol.offset, left) + 1))
    return states[s + gap], gap


def _committed(
    protocol: Protocol, data: Recorded, usable: np.ndarray, listed: Mapping[str, Any]
) -> tuple[list[int], list[dict[str, Any]]]:
    if listed.get("goal_offset", listed.get("offset")) != protocol.offset:
        raise UsageError(
            f"episode_list {protocol.episode_list} was made for offset "
            f"{listed.get('goal_offset', listed.get('offset'))}, the protocol's offset is "
            f"{protocol.offset}: its episodes were chosen for other goals."
        )
    entries = listed["episodes"]
    allowed = set(usable.tolist())
    for entry in entries:
        if entry["episode"] not in allowed:
            raise UsageError(
                f"episode_list {protocol.episode_list}: episode {entry['episode']} is not "
                f"eligible in these data ({len(data.lengths)} episodes); it is another data set."
            )
    return [int(x["episode"]) for x in entries], entries


def read_list(path: str | Path) -> dict[str, Any]:
    """A committed list (P10).

    Raises:
        UsageError: unreadable, no JSON, or no episodes.
    """
    try:
        listed = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"episode_list {path} cannot be read: {e.strerror}.") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"episode_list {path} is not JSON: {e}.") from e
    if not isinstance(listed, dict) or not listed.get("episodes"):
        raise UsageError(
            f"episode_list {path} holds no episodes: it needs {{'goal_offset': ..., 'episodes': "
            "[{'episode': ...}, ...]} with at least one entry."
        )
    for entry in listed["episodes"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("episode"), int):
            raise UsageError(f"episode_list {path}: entry {entry!r} has no integer `episode`.")
    return listed


def _nothing_eligible(protocol: Protocol, data: Recorded, history: int) -> str:
    longest = int(data.lengths.max())
    low = first_start(protocol, history=history)
    return (
        f"no episode is eligible: {protocol.label} with episode_filter = "
        f"{protocol.episode_filter!r} needs {low + (protocol.offset or 0) + 1} frames, the longest "
        f"of {len(data.lengths)} episodes has {longest}. Lower the offset or use other data."
    )
