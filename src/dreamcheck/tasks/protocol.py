"""What a simulator must offer: batched, seeded, measured, and branched exactly or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.errors import Abstention
from dreamcheck.streams import RowStreams

State = Any
"""A task's own batched state; only the task looks inside."""


class CannotBranch(Abstention):
    """The simulator cannot be copied or replayed exactly."""


@dataclass(frozen=True, slots=True)
class ActionBox:
    """Bounds of one raw action, in environment units."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def width(self) -> int:
        """Numbers in one raw action."""
        return len(self.low)


@dataclass(frozen=True, slots=True)
class Column:
    """One named number of the task's state vector, with its unit."""

    name: str
    unit: str


@runtime_checkable
class Task(Protocol):
    """A batched simulator. B rows; row i of every result depends on row i only.

    name, version: recorded with every measurement; version changes when results change.
    package_version: of the simulator's package ("dreamcheck 0.1.0", "stable-worldmodel 0.1.1").
    columns: what ``observe(state, ("state",))`` returns, in order, with units.
    sizes: frame sides that ``observe`` can render, in pixels.
    spec_names: input specifications made for this task (names in dreamcheck.discovery.presets).
    """

    name: str
    version: str
    package_version: str
    action_box: ActionBox
    columns: tuple[Column, ...]
    sizes: tuple[int, ...]
    spec_names: tuple[str, ...]

    def reset(self, inputs: Sequence[Mapping[str, Value]] | None, seeds: Sequence[int]) -> State:
        """States for the inputs (coordinate name -> value), one seed per row.

        inputs=None: the default reset, env.reset(seed) without options.

        Raises:
            SpecificationError: an unknown coordinate or a value outside its domain, named.
        """
        ...

    def prefix(self, inputs: Sequence[Mapping[str, Value]] | None, num_rows: int) -> np.ndarray:
        """Raw actions the inputs prescribe before the policy takes over, [B, P, A]; P may be 0."""
        ...

    def rules(self) -> Mapping[str, Any]:
        """Validity rules by name: columns (name -> array [N]) -> bool mask [N]."""
        ...

    def step(self, state: State, actions: np.ndarray) -> State:
        """The next state; the argument is left as it was. actions [B, A], clamped to the box."""
        ...

    def observe(
        self, state: State, keys: Sequence[str], *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """ "pixels" uint8 [B, 3, s, s] (rendered only when asked), "state" [B, len(columns)],
        "goal" [B, G] and whatever else the task names."""
        ...

    def goal_observation(
        self, state: State, *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """The observation at the goal: what a goal-image planner is shown."""
        ...

    def distance(self, state: State) -> np.ndarray:
        """Distance to success in task units, [B]."""
        ...

    def succeeded(self, state: State) -> np.ndarray:
        """The environment's own success test, bool [B]."""
        ...

    def measure(self, before: State, actions: np.ndarray, after: State) -> dict[str, np.ndarray]:
        """Per-step measurements [B]: at least contact, path, progress, discontinuity."""
        ...

    def branch(self, state: State, index: np.ndarray) -> State:
        """Exact copies of the rows in ``index``.

        Raises:
            CannotBranch: the simulator cannot be copied exactly.
        """
        ...


@runtime_checkable
class Restartable(Protocol):
    """A task whose state can be set exactly: sensitivity floors and nearest frames need it."""

    def with_state(self, state: State, values: np.ndarray) -> State:
        """The same episodes with the state columns set to ``values`` [B, len(columns)]."""
        ...


@runtime_checkable
class MakesPolicies(Protocol):
    """A task that makes its own behaviour policies by name; studies need it.

    Two plain attributes are read where a task has them: ``tolerance`` (success tolerance in the
    columns' unit, for the readout check) and ``deterministic`` (nothing is drawn after the reset).
    """

    def make_policy(self, name: str, **parameters: float) -> Policy:
        """The policy of that name."""
        ...


@runtime_checkable
class Backdrop(Protocol):
    """A task that can show its arena without an agent, for maps in reports."""

    def backdrop(self) -> np.ndarray:
        """uint8 [3, s, s]."""
        ...


@runtime_checkable
class Policy(Protocol):
    """A behaviour policy. Its randomness comes from one stream per row."""

    @property
    def name(self) -> str:
        """What records call it."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of everything its behaviour depends on."""
        ...

    def act(self, observation: Mapping[str, np.ndarray], rngs: RowStreams) -> np.ndarray:
        """{"state": [B, S], "goal": [B, G], ...} -> raw actions [B, A] inside the action box."""
        ...
