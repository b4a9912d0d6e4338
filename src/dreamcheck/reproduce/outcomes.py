"""Reading released per-episode planning outcomes: one arm, its episodes, and what can be wrong."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class Outcome:
    """One planned episode as released; distances are arena units rounded to two decimals.

    steps: environment steps used. plans: replans. geometry, pair_id: only in matched designs.
    """

    episode: int
    success: bool
    steps: int
    final_dist: float
    start_goal_dist: float
    trivial_start: bool
    plans: int
    geometry: str | None
    pair_id: int | None

    @property
    def farther(self) -> bool:
        """Ended strictly farther from the goal than it began."""
        return self.final_dist > self.start_goal_dist


@dataclass(frozen=True, slots=True)
class Arm:
    """One evaluation arm, episodes in evaluation order."""

    id: str
    file: str
    outcomes: tuple[Outcome, ...]
    guard_status: str
    guard_paired_median: float

    @property
    def successes(self) -> int:
        """Episodes that reached the goal."""
        return sum(o.success for o in self.outcomes)

    @property
    def misses(self) -> list[Outcome]:
        """Episodes that did not, in evaluation order."""
        return [o for o in self.outcomes if not o.success]

    @property
    def episodes(self) -> list[int]:
        """Dataset episode indices in evaluation order."""
        return [o.episode for o in self.outcomes]


def read_json(path: Path) -> Any:
    """The parsed file, or a UsageError that names it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} does not exist: pass the folder that holds the released data"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error


def _field(record: Any, name: str, kinds: tuple[type, ...], where: str) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise UsageError(f"{where} has no field {name!r}")
    value = record[name]
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    if wrong or (isinstance(value, float) and not math.isfinite(value)):
        raise UsageError(f"{where}: {name} = {value!r} is not {kinds[0].__name__}")
    return value


def read_arm(data_dir: Path, file: str, *, arm_id: str) -> Arm:
    """One arm from its file.

    Raises:
        UsageError: the file is missing, not JSON, holds no episode or one without a needed field,
            an episode twice, or a ``trivial_start`` that contradicts the distance.
    """
    raw = read_json(data_dir / file)
    results = _field(raw, "results", (list,), file)
    if not results:
        raise UsageError(f"{file} holds no episodes")
    number = (float, int)
    outcomes = []
    for i, r in enumerate(results):
        where = f"{file} results[{i}]"
        outcomes.append(
            Outcome(
                episode=_field(r, "episode", (int,), where),
                success=_field(r, "success", (bool,), where),
                steps=_field(r, "steps", (int,), where),
                final_dist=float(_field(r, "final_dist", number, where)),
                start_goal_dist=float(_field(r, "start_goal_dist", number, where)),
                trivial_start=_field(r, "trivial_start", (bool,), where),
                plans=_field(r, "plans", (int,), where),
                geometry=_field(r, "geometry", (str,), where) if "geometry" in r else None,
                pair_id=_field(r, "pair_id", (int,), where) if "pair_id" in r else None,
            )
        )
    seen: set[int] = set()
    for o in outcomes:
        if o.episode in seen:
            raise UsageError(f"{file} holds episode {o.episode} twice; pairing needs each once")
        seen.add(o.episode)
    guard = _field(raw, "guard", (dict,), file)
    return Arm(
        id=arm_id,
        file=file,
        outcomes=tuple(outcomes),
        guard_status=_field(guard, "status", (str,), f"{file} guard"),
        guard_paired_median=float(_field(guard, "paired_median", number, f"{file} guard")),
    )


def recorded_digests(data_dir: Path) -> dict[str, tuple[str, str | None]]:
    """File -> (SHA-256 recorded in SHA256SUMS, SHA-256 of the file here, None when missing)."""
    sums = data_dir / "SHA256SUMS"
    if not sums.is_file():
        return {}
    out: dict[str, tuple[str, str | None]] = {}
    for line in sums.read_text("utf-8").splitlines():
        recorded, _, name = line.strip().partition(" ")
        name = name.strip().lstrip("*")
        if not name:
            continue
        path = data_dir / name
        here = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        out[name.removeprefix("./")] = (recorded, here)
    return out
