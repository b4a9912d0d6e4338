"""Behaviour policies for TwoRoom: goal seeking, exploring, random, resting, and the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from dreamcheck import digest as naming
from dreamcheck.errors import UsageError
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.arguments import policy_of
from dreamcheck.tasks.tworoom.navigation import need_geometry, waypoint
from dreamcheck.tasks.tworoom.parameters import BORDER, FRAME_SIDE, SUCCESS_RADIUS

Observation = Mapping[str, np.ndarray]


def _digest(policy: Any) -> str:
    return naming.digest({"policy": policy.name, "version": policy.version, **asdict(policy)})


@dataclass(frozen=True)
class Zero:
    """Rests."""

    name: ClassVar[str] = "zero"
    version: ClassVar[str] = "1"

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Zeros, float32 [B, 2]."""
        return np.zeros((len(observation["state"]), 2), np.float32)


@dataclass(frozen=True)
class Random:
    """Uniform on the action box, fresh at every step."""

    name: ClassVar[str] = "random"
    version: ClassVar[str] = "1"

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1)."""
        return (2 * rngs.uniform(2) - 1).astype(np.float32)


@dataclass(frozen=True)
class GoalSeeking:
    """Heads for the goal, through a door where one is needed, with Gaussian noise on each action.

    noise: standard deviation of each action component, in units of the action.
    gain: share of full speed at which it heads for its waypoint.

    Reads "state", "goal" and "geometry".
    """

    noise: float = 0.5
    gain: float = 1.0

    name: ClassVar[str] = "goal-seeking"
    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        _checked(self, "noise", self.noise, 0.0, 10.0)
        _checked(self, "gain", self.gain, 0.0, 1.0)

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1]."""
        geometry = need_geometry(observation, self.name)
        agent = np.asarray(observation["state"], np.float64)[:, :2]
        heading = _heading(agent, observation["goal"], geometry)
        # The noise is drawn even when it is off, so that streams advance alike.
        return _bounded(self.gain * heading + self.noise * rngs.normal(2))


@dataclass(frozen=True)
class Oracle:
    """The shortest legal way at full speed: an upper bound that knows positions and walls.

    Tries 29 heights per door and takes the one with the fewest steps; the action is the direction
    divided by its larger component, shortened where the waypoint is nearer than one step.

    Source: spec/protocol.md S14. Reads "state", "goal" and "geometry".
    """

    heights: int = 29

    name: ClassVar[str] = "oracle"
    version: ClassVar[str] = "1"

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1]."""
        geometry = need_geometry(observation, self.name)
        agent = np.asarray(observation["state"], np.float64)[:, :2]
        goal = np.asarray(observation["goal"], np.float64)
        delta = waypoint(agent, goal, geometry, heights=self.heights) - agent
        largest = np.abs(delta).max(axis=1)
        return _bounded(delta / np.maximum(largest, geometry[:, 3])[:, None])


@dataclass
class _Phases:
    """What each row of one batch is doing; [B] and [B, 2]."""

    mode: np.ndarray
    left: np.ndarray
    gain: np.ndarray
    noise: np.ndarray
    point: np.ndarray
    held: np.ndarray


_SEEK, _WANDER, _HOLD, _REST = range(4)


@dataclass(frozen=True, eq=False)
class Exploratory:
    """Training data that cover the arena: phases of seeking, wandering, holding and resting.

    A row goes through phases of shortest to longest steps. In each it heads for its goal, heads for
    a random point of the arena (through doors), repeats one random action, or rests; at its own
    share of full speed (slowest to 1) and with its own noise (0 to noise). A row that has reached
    its goal wanders instead of seeking. What the rows are doing is remembered beside the streams
    they draw from, and a row starts afresh where "step" is 0.

    seek, wander, hold: shares of the phases; what is left of 1 rests.
    noise: largest standard deviation of an action component.

    Reads "state", "goal", "geometry" and, where there is one, "step".
    """

    seek: float = 0.45
    wander: float = 0.30
    hold: float = 0.17
    shortest: int = 5
    longest: int = 25
    slowest: float = 0.3
    noise: float = 0.6

    name: ClassVar[str] = "exploratory"
    version: ClassVar[str] = "1"
    _memory: ClassVar[WeakKeyDictionary[RowStreams, dict[str, _Phases]]] = WeakKeyDictionary()

    def __post_init__(self) -> None:
        for name in ("seek", "wander", "hold", "slowest"):
            _checked(self, name, getattr(self, name), 0.0, 1.0)
        _checked(self, "noise", self.noise, 0.0, 10.0)
        _checked(self, "seek + wander + hold", self.seek + self.wander + self.hold, 0.0, 1.0 + 1e-9)
        if not 1 <= self.shortest <= self.longest:
            raise UsageError(
                f"phases of {self.shortest} to {self.longest} steps: need 1 <= shortest <= longest"
            )

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1]."""
        geometry = need_geometry(observation, self.name)
        agent = np.asarray(observation["state"], np.float64)[:, :2]
        goal = np.asarray(observation["goal"], np.float64)
        # Every row draws at every step, so its numbers do not depend on its batch-mates' phases.
        uniform, normal = rngs.uniform(8), rngs.normal(2)
        phases = self._phases(rngs, len(agent))
        fresh = phases.left <= 0
        if "step" in observation:
            fresh |= np.asarray(observation["step"]) == 0
        self._begin(phases, fresh, uniform, agent, goal, geometry)
        phases.left -= 1
        aim = np.where((phases.mode == _WANDER)[:, None], phases.point, goal)
        heading = phases.gain[:, None] * _heading(agent, aim, geometry)
        steady = np.where((phases.mode == _HOLD)[:, None], phases.held, 0.0)
        travels = (phases.mode == _SEEK) | (phases.mode == _WANDER)
        chosen = np.where(travels[:, None], heading, steady)
        noise = np.where(phases.mode == _REST, 0.0, phases.noise)
        return _bounded(chosen + noise[:, None] * normal)

    def _phases(self, rngs: RowStreams, num_rows: int) -> _Phases:
        kept = self._memory.setdefault(rngs, {})
        if self.digest not in kept:
            zeros, pairs = np.zeros(num_rows), np.zeros((num_rows, 2))
            counts = np.zeros(num_rows, np.int64)
            kept[self.digest] = _Phases(
                counts, counts.copy(), zeros, zeros.copy(), pairs, pairs.copy()
            )
        return kept[self.digest]

    def _begin(
        self,
        phases: _Phases,
        fresh: np.ndarray,
        uniform: np.ndarray,
        agent: np.ndarray,
        goal: np.ndarray,
        geometry: np.ndarray,
    ) -> None:
        """Draw a new phase for the fresh rows."""
        shares = np.cumsum([self.seek, self.wander, self.hold])
        mode = (uniform[:, 0, None] >= shares).sum(axis=1)
        arrived = np.hypot(*(agent - goal).T) < SUCCESS_RADIUS
        mode = np.where((mode == _SEEK) & arrived, _WANDER, mode)
        length = self.shortest + (uniform[:, 1] * (self.longest - self.shortest + 1)).astype(int)
        low = BORDER + geometry[:, 2, None]
        point = low + uniform[:, 4:6] * (FRAME_SIDE - 2 * low)
        for array, value in (
            (phases.mode, mode),
            (phases.left, length),
            (phases.gain, self.slowest + (1 - self.slowest) * uniform[:, 2]),
            (phases.noise, self.noise * uniform[:, 3]),
            (phases.point, point),
            (phases.held, 2 * uniform[:, 6:8] - 1),
        ):
            array[fresh] = value[fresh]


POLICIES: dict[str, type[Zero | Random | GoalSeeking | Oracle | Exploratory]] = {
    p.name: p for p in (Zero, Random, GoalSeeking, Oracle, Exploratory)
}
"""The task's policies by name."""


def make_policy(
    name: str, **parameters: float
) -> Zero | Random | GoalSeeking | Oracle | Exploratory:
    """The policy of that name with the given parameters.

    Raises:
        UsageError: an unknown name or parameter; the message lists the known ones.
    """
    return policy_of(POLICIES, name, parameters, task="TwoRoom")


def _heading(agent: np.ndarray, aim: np.ndarray, geometry: np.ndarray) -> np.ndarray:
    """The action that goes straight for the waypoint at full speed, and lands on it, [B, 2]."""
    delta = waypoint(agent, aim, geometry) - agent
    length = np.hypot(delta[:, 0], delta[:, 1])
    return delta / np.maximum(length, geometry[:, 3])[:, None]


def _bounded(actions: np.ndarray) -> np.ndarray:
    return np.clip(actions, -1, 1).astype(np.float32)


def _checked(policy: Any, name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"{policy.name}: {name} = {value:g} is outside [{low:g}, {high:g}]")
