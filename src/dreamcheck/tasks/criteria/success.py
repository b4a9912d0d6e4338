"""Success rules: which columns, how near, for how long, wrapped and symmetric angles included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text
from dreamcheck.tasks.protocol import Column

RULES = "dreamcheck.tasks.criteria.success_rules"

Columns = Sequence[str] | Sequence[Column]
"""Names of a state's columns, or the columns themselves."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Data):
    """One distance that must be small.

    columns: state columns it measures, on both sides (state and goal).
    metric: "l2" over the columns, or "max".
    tolerance, unit: success strictly below it, or at most it when ``inclusive``.
    period: the columns are angles that repeat after it. A rotation symmetry of order n has
        period 2 pi / n.
    """

    columns: tuple[str, ...] = Field(min_length=1)
    metric: Literal["l2", "max"] = "l2"
    tolerance: float = Field(gt=0)
    unit: str
    inclusive: bool = False
    period: float | None = Field(default=None, gt=0)

    def distance(self, state: np.ndarray, goal: np.ndarray, columns: Columns) -> np.ndarray:
        """[..., S], [..., S] -> [...], in ``unit``."""
        where = _positions(self.columns, columns)
        apart = np.asarray(state, np.float64)[..., where] - np.asarray(goal, np.float64)[..., where]
        if self.period is not None:
            apart = (apart + self.period / 2) % self.period - self.period / 2
        if self.metric == "max":
            return np.abs(apart).max(axis=-1)
        return np.sqrt((apart**2).sum(axis=-1))

    def met(self, distance: np.ndarray) -> np.ndarray:
        """Whether the distance is small enough."""
        return distance <= self.tolerance if self.inclusive else distance < self.tolerance


class SuccessRule(_Data):
    """Every part met, for ``hold_steps`` environment steps in a row, or at the end of the budget.

    hold_steps: 1 is the first hit.
    at_end: only the last step of the budget counts.
    """

    parts: tuple[Part, ...] = Field(min_length=1)
    hold_steps: int = Field(default=1, ge=1)
    at_end: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> SuccessRule:
        if self.at_end and self.hold_steps != 1:
            raise ValueError("at_end looks at the last step only: leave hold_steps out")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of every field."""
        return digest(self.model_dump())

    def satisfied(self, states: np.ndarray, goals: np.ndarray, columns: Columns) -> np.ndarray:
        """Whether every part is met at each state: [..., S] -> bool [...]."""
        out = np.ones(np.broadcast_shapes(states.shape[:-1], goals.shape[:-1]), bool)
        for part in self.parts:
            out &= part.met(part.distance(states, goals, columns))
        return out

    def distance(self, states: np.ndarray, goals: np.ndarray, columns: Columns) -> np.ndarray:
        """Distance of the first part, in its unit: [..., S] -> [...]."""
        return self.parts[0].distance(states, goals, columns)

    def first_success(self, satisfied: np.ndarray) -> np.ndarray:
        """The step at which the rule is fulfilled, int64 [B]; -1 where it never is.

        Args:
            satisfied: bool [B, steps], after each environment step in order, the budget complete;
                rows that stopped earlier are False from there on (``at_end`` needs full rows).

        With hold_steps = k it is the last of the first k consecutive satisfied steps. Steps count
        from 1.
        """
        b, steps = satisfied.shape
        if self.at_end:
            last = satisfied[:, -1] if steps else np.zeros(b, bool)
            return np.where(last, steps, -1)
        run = np.zeros(b, np.int64)
        first = np.full(b, -1, np.int64)
        for t in range(steps):
            run = np.where(satisfied[:, t], run + 1, 0)
            first = np.where((first < 0) & (run >= self.hold_steps), t + 1, first)
        return first


class Arena(_Data):
    """Where starts and goals may lie."""

    columns: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str

    def check(self, values: np.ndarray, columns: Columns, *, what: str) -> None:
        """Refuse a state outside, naming the column.

        Args:
            values: [B, S]. what: "goal" or "start".
        """
        where = _positions(self.columns, columns)
        for i, (name, low, high) in enumerate(zip(self.columns, self.low, self.high, strict=True)):
            column = values[:, where[i]]
            bad = ~((column >= low) & (column <= high))
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise UsageError(
                    f"{what}.{name} = {column[row]:g} {self.unit} (case {row}) is outside the "
                    f"arena [{low:g}, {high:g}]. It cannot be reached: check the units and the "
                    "column order of the recorded state."
                )


class Route(_Data):
    """How routes are checked; "swept_disc" is TwoRoom's."""

    kind: Literal["swept_disc"]


class TaskCriteria(_Data):
    """One task's success rules by name; "native" is the environment's own."""

    task: str
    source: str = ""
    success: dict[str, SuccessRule]
    arena: Arena | None = None
    route: Route | None = None

    def rule(self, name: str) -> SuccessRule:
        """A rule by name.

        Raises:
            UsageError: no such rule.
        """
        if name not in self.success:
            raise UsageError(
                f"success = {name!r} is no rule of task {self.task}; it has "
                f"{', '.join(sorted(self.success))}."
            )
        return self.success[name]


def _positions(wanted: Sequence[str], columns: Columns) -> list[int]:
    names = [c.name if isinstance(c, Column) else c for c in columns]
    missing = [w for w in wanted if w not in names]
    if missing:
        raise UsageError(
            f"success needs the state column(s) {', '.join(missing)}, but the state has "
            f"{', '.join(names) or 'no columns'}. Map the recorded columns to these names."
        )
    return [names.index(w) for w in wanted]


def criteria_names() -> tuple[str, ...]:
    """Tasks with success rules."""
    return preset_names(RULES)


def load_criteria(task: str) -> TaskCriteria:
    """The rules that come with Dreamcheck for a task, or those in a TOML file with [success.native].

    Raises:
        UsageError: none exist, or a field is unknown, missing or out of range.
    """
    text, origin = preset_text(RULES, task, kind="set of success rules")
    return _parse(text, origin)


def read_criteria(path: str | Path) -> TaskCriteria:
    """A user's own rules.

    Raises:
        UsageError: no such file, no TOML, or a field that is unknown, missing or out of range.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise UsageError(f"the success rules {path} cannot be read: {e.strerror}.") from e
    return _parse(text, str(path))


def _parse(text: str, where: str) -> TaskCriteria:
    data = parse_toml(text, origin=where)
    return model_from(TaskCriteria, data, origin=where, whole="success rules")
