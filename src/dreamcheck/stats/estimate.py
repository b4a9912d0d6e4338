"""What a statistic returns when one float is not enough, and the two refusals of this room."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dreamcheck.errors import Abstention, UsageError


class StatisticsInputError(UsageError, ValueError):
    """A count, level or sample that no statistic of this room accepts. Also a ``ValueError``."""


class NotTestable(Abstention):
    """Too few independent units for the claim; the message and ``needed`` say how many it takes.

    given: the units that were there, as text or a number.
    needed: the smallest number of units with which the question can be asked.
    """

    def __init__(self, message: str, *, given: object = None, needed: int | None = None) -> None:
        super().__init__(message)
        self.given = given
        self.needed = needed


class Interval(NamedTuple):
    """Two bounds in the units of what they bound; unpacks as ``low, high``."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low

    def holds(self, value: float) -> bool:
        """True when the value lies inside, bounds included."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, or NaN and the reason why there is none (law 9: abstain, never 0 or 1).

    value: the statistic, NaN when undefined.
    num_units: the independent units it was computed from.
    reason: empty when the value is defined.
    """

    value: float
    num_units: int
    reason: str = ""

    @property
    def defined(self) -> bool:
        """True when there is a value."""
        return not self.reason

    def __float__(self) -> float:
        return self.value

    @classmethod
    def undefined(cls, num_units: int, reason: str) -> Estimate:
        """NaN with its reason."""
        return cls(math.nan, num_units, reason)


def checked_sample(values: Iterable[float] | Any, *, name: str, minimum: int = 1) -> np.ndarray:
    """The sample as float64 [n], refused when it is not one-dimensional, too short or not finite.

    A NaN is never dropped: the caller drops it and records how many were dropped.
    """
    array = np.asarray(values if hasattr(values, "__len__") else list(values), dtype=float)
    if array.ndim != 1:
        raise StatisticsInputError(
            f"{name} has shape {array.shape}; a sample is one-dimensional, one value per unit"
        )
    if array.size < minimum:
        raise NotTestable(
            f"{name} holds {array.size} value(s); at least {minimum} are needed",
            given=int(array.size),
            needed=minimum,
        )
    if not np.isfinite(array).all():
        first = int(np.flatnonzero(~np.isfinite(array))[0])
        raise StatisticsInputError(
            f"{name}[{first}] = {array[first]} is not finite. A failed measurement is an outcome of "
            "its own: leave it out, record how many were left out, and call again"
        )
    return array


def checked_level(value: float, *, name: str = "confidence") -> float:
    """A probability strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise StatisticsInputError(f"{name} = {value!r} must lie strictly between 0 and 1")
    return float(value)


def checked_alternative(value: str) -> str:
    """One of "two-sided", "greater", "less"."""
    if value not in ("two-sided", "greater", "less"):
        raise StatisticsInputError(
            f"alternative = {value!r} is not one of 'two-sided', 'greater', 'less'"
        )
    return value


def checked_count(value: int, *, name: str, low: int = 0, high: int | None = None) -> int:
    """An integer between low and high, both included."""
    if isinstance(value, (bool, np.bool_)) or int(value) != value:
        raise StatisticsInputError(f"{name} = {value!r} must be an integer count")
    if value < low or (high is not None and value > high):
        span = f"at least {low}" if high is None else f"between {low} and {high}"
        raise StatisticsInputError(f"{name} = {value} must be {span}")
    return int(value)
