"""What success means for the score: tolerance, metric, graded and nuisance coordinates, horizons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text

CRITERIA = "dreamcheck.tasks.criteria"


class Criterion(BaseModel):
    """A task as the score sees it.

    task: the task's name, written to every record.
    tolerance, unit: the simulator's success tolerance and its unit.
    metric: "l2", or "max" over the graded coordinates.
    graded: state columns that the success test measures, in order.
    nuisance: state columns whose displacement should be small in the pairs kept (may be empty).
    horizon: diagnostic horizon H in action blocks; goal offset / frameskip.
    curve: h_max, length of the open-loop error curve in blocks; at least the horizon.
    frameskip: environment steps in one block.
    probe_targets: columns that the physical-state probe predicts (default: the graded ones).
    angles: those of probe_targets that are angles in radians and become cosine and sine.
    source: where the numbers come from.
    aliases: other names under which data sets record a column; tried in order when the column
        itself is absent. "state[0]" also finds state_0, state.0 and state/0.

    Source: spec/viscore.md section 9.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    tolerance: float = Field(gt=0)
    unit: str
    metric: str = "l2"
    graded: tuple[str, ...] = Field(min_length=1)
    nuisance: tuple[str, ...] = ()
    horizon: int = Field(default=5, gt=0)
    curve: int = Field(default=15, gt=0)
    frameskip: int = Field(default=5, gt=0)
    probe_targets: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    source: str = ""
    aliases: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Criterion:
        if self.metric not in ("l2", "max"):
            raise ValueError(f"metric = {self.metric!r} is not one of l2, max.")
        if self.horizon > self.curve:
            # The reference clamps silently and reads the last step of the curve instead.
            raise ValueError(
                f"horizon = {self.horizon} blocks is beyond curve = {self.curve}: the error at "
                "the horizon would not be measured. Lower the horizon or lengthen the curve."
            )
        stray = set(self.angles) - set(self.targets)
        if stray:
            raise ValueError(f"angles names {sorted(stray)}, which probe_targets does not hold.")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """Columns that the physical-state probe predicts."""
        return self.probe_targets or self.graded

    @property
    def columns(self) -> tuple[str, ...]:
        """Every state column the criterion needs, once each."""
        return tuple(dict.fromkeys((*self.graded, *self.nuisance, *self.targets)))

    def replace(self, **changes: object) -> Criterion:
        """A copy with fields changed, validated again."""
        return _checked({**self.model_dump(), **changes}, self.task)

    def distance(self, displacement: np.ndarray) -> np.ndarray:
        """Physical distance of graded displacements [N, G], in ``unit``; [N]."""
        if self.metric == "max":
            return np.abs(displacement).max(axis=1)
        return np.sqrt((displacement**2).sum(axis=1))

    @property
    def digest(self) -> str:
        """SHA-256 of what decides a number (the source text does not)."""
        return digest(self.model_dump(exclude={"source", "aliases"}))


def load_criterion(path: str | Path) -> Criterion:
    """A user's own criterion from a TOML file whose keys are the fields of ``Criterion``.

    Raises:
        UsageError: no such file, no TOML, an unknown or missing key, a value out of range.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the task criterion {path} cannot be read: {e.strerror}.") from e
    return _parse(text, str(path))


def _parse(text: str, where: str) -> Criterion:
    return _checked(parse_toml(text, origin=f"the task criterion {where}"), where)


def _checked(values: Mapping[str, object], where: str) -> Criterion:
    origin = f"the task criterion {where}"
    return model_from(Criterion, values, origin=origin, whole="criterion")


def criterion_names() -> tuple[str, ...]:
    """Names of the criteria that come with Dreamcheck."""
    return preset_names(CRITERIA)


def criterion(name: str) -> Criterion:
    """One of the criteria that come with Dreamcheck, by name, or one from a TOML file.

    Raises:
        UsageError: the name is unknown; the message lists the known ones.
    """
    text, origin = preset_text(CRITERIA, name, kind="task criterion")
    return _parse(text, origin)


_PART = re.compile(r"^(?P<name>.+)\[(?P<index>\d+)\]$")


def _spellings(name: str) -> tuple[str, ...]:
    """The name itself, and how readers spell the parts of a wide column."""
    part = _PART.match(name)
    if part is None:
        return (name,)
    return (name, *(f"{part['name']}{mark}{part['index']}" for mark in "_./"))


def find_columns(
    names: Sequence[str], wanted: Sequence[str], aliases: Mapping[str, Sequence[str]]
) -> tuple[list[int], list[str]]:
    """Positions of the wanted columns among the names, aliases tried in order; and those absent."""
    found, missing = [], []
    for w in wanted:
        candidates = [s for n in (w, *aliases.get(w, ())) for s in _spellings(n)]
        hit = next((c for c in candidates if c in names), None)
        if hit is None:
            missing.append(w)
        else:
            found.append(list(names).index(hit))
    return found, missing


def pick(
    names: Sequence[str], wanted: Sequence[str], *, criterion: Criterion, what: str
) -> list[int]:
    """Positions of the wanted columns among the names, aliases tried in order.

    Raises:
        UsageError: a wanted column is absent; the message lists what there is.
    """
    found, missing = find_columns(names, wanted, criterion.aliases)
    if missing:
        raise UsageError(
            f"the probe has no {what} column {', '.join(repr(m) for m in missing)}; it has "
            f"{', '.join(names) or 'no state columns at all'}. Name the columns your data use in "
            "the task criterion (a TOML file, with aliases if you like), or record them."
        )
    return found
