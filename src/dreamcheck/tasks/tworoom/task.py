"""The TwoRoom task: thousands of episodes stepped at once, frames drawn only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dreamcheck import __version__
from dreamcheck.digest import Value
from dreamcheck.errors import SpecificationError, UsageError
from dreamcheck.tasks.arguments import checked_actions
from dreamcheck.tasks.protocol import ActionBox, Column, Policy
from dreamcheck.tasks.tworoom import inputs as typed
from dreamcheck.tasks.tworoom import physics, policies, render, validity
from dreamcheck.tasks.tworoom.parameters import FRAME_SIDE, SUCCESS_RADIUS, Layout
from dreamcheck.tasks.tworoom.seeding import default_positions

_ROUNDING = 1e-4
"""Displacement that float32 positions cannot resolve, px (one unit in the last place is 1.5e-5)."""


@dataclass(frozen=True, eq=False)
class TwoRoomState:
    """One row per episode.

    agent, target: float32 [B, 2], px. elapsed: int64 [B], steps since the reset.
    """

    agent: np.ndarray
    target: np.ndarray
    elapsed: np.ndarray
    layout: Layout
    walls: physics.Walls

    def __len__(self) -> int:
        return len(self.agent)


class TwoRoom:
    """stable-worldmodel's ``swm/TwoRoom-v1`` as a batched simulator.

    Deterministic: a seed only chooses the start and goal of a default reset. Speed 5 px per step
    unless varied; success when the distance to the target is strictly below 16 px.
    """

    name = "tworoom"
    version = "1"
    package_version = f"dreamcheck {__version__}"
    action_box = ActionBox(low=(-1.0, -1.0), high=(1.0, 1.0))
    columns = (Column("agent_x", "px"), Column("agent_y", "px"))
    sizes = render.SIZES
    spec_names = ("start-goal-prefix", "variations")
    tolerance = SUCCESS_RADIUS
    deterministic = True
    observation_keys = ("pixels", "state", "proprio", "goal", "geometry", "step")

    def __init__(self) -> None:
        self._renderer = render.Renderer()

    def reset(
        self, inputs: Sequence[Mapping[str, Value]] | None, seeds: Sequence[int]
    ) -> TwoRoomState:
        """States for the inputs, one seed per row; seeds matter only for the default reset.

        inputs=None draws the start and goal that the original's ``env.reset(seed)`` draws, bit for
        bit. Otherwise coordinates left out take the environment's declared initial values.

        Raises:
            SpecificationError: an unknown coordinate, a value outside its domain, or not one seed
                per input.
        """
        if inputs is None:
            agent, target = default_positions(seeds)
            layout = Layout.initial(len(agent))
        else:
            if len(inputs) != len(seeds):
                raise SpecificationError(
                    f"{len(inputs)} inputs came with {len(seeds)} seeds: give one seed per input"
                )
            agent, target, layout = typed.parse(inputs)
        return TwoRoomState(
            agent, target, np.zeros(len(agent), np.int64), layout, physics.walls_of(layout)
        )

    def prefix(self, inputs: Sequence[Mapping[str, Value]] | None, num_rows: int) -> np.ndarray:
        """The prescribed first actions, float32 [B, P, 2]: P is 10 where inputs name a prefix."""
        return typed.prefix_actions(inputs, num_rows)

    def rules(self) -> Mapping[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]]:
        """Validity rules by name; see :mod:`dreamcheck.tasks.tworoom.validity`."""
        return validity.RULES

    def step(self, state: TwoRoomState, actions: np.ndarray) -> TwoRoomState:
        """The next state. actions [B, 2], clamped to [-1, 1]; the argument is left as it was.

        Raises:
            UsageError: actions of another shape, or NaN.
        """
        actions = checked_actions(actions, rows=len(state), width=2)
        agent = physics.advance(state.agent, actions, state.walls)
        return replace(state, agent=agent, elapsed=state.elapsed + 1)

    def observe(
        self, state: TwoRoomState, keys: Sequence[str], *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """What the keys name, one row per episode.

        pixels: uint8 [B, 3, s, s]; s is image_size, 224 unless given.
        state, proprio: float32 [B, 2], the agent, px. goal: float32 [B, 2], the target, px.
        geometry: float32 [B, 11], in the order of navigation.GEOMETRY. step: int64 [B].

        Raises:
            UsageError: an unknown key, or a size that does not divide 224.
        """
        return {key: self._observed(state, key, image_size) for key in keys}

    def goal_observation(
        self, state: TwoRoomState, *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """The observation with the agent standing on the target."""
        return self.observe(
            self.with_state(state, state.target),
            ("pixels", "state", "proprio", "goal"),
            image_size=image_size,
        )

    def distance(self, state: TwoRoomState) -> np.ndarray:
        """Distance from agent to target, float32 [B], px."""
        return physics.distance(state.agent, state.target)

    def succeeded(self, state: TwoRoomState) -> np.ndarray:
        """Whether the distance is strictly below 16 px, bool [B]."""
        return self.distance(state) < np.float32(SUCCESS_RADIUS)

    def measure(
        self, before: TwoRoomState, actions: np.ndarray, after: TwoRoomState
    ) -> dict[str, np.ndarray]:
        """Measurements of one step, [B].

        contact: bool, the agent is not where the action alone would have put it (border, wall or
            door edge). path: px moved. progress: decrease of the distance to the target, px.
        discontinuity: px moved beyond ``speed * |action|``, 0 below 1e-4 px. It is above 0 only
            where the environment itself moves the agent: sideways out of a doorway, back by up to
            half a pixel at the wall, or from a start outside the border's or wall's bounds.
        """
        actions = checked_actions(actions, rows=len(before), width=2)
        speed = before.walls.speed
        contact = (physics.command(before.agent, actions, speed) != after.agent).any(axis=1)
        moved = after.agent.astype(np.float64) - before.agent.astype(np.float64)
        path = np.hypot(moved[:, 0], moved[:, 1])
        bounded = np.clip(actions.astype(np.float64), -1, 1)
        own = speed.astype(np.float64) * np.hypot(bounded[:, 0], bounded[:, 1])
        excess = np.where(path - own > _ROUNDING, path - own, 0.0)
        return {
            "contact": contact,
            "path": path,
            "progress": _separation(before) - _separation(after),
            "discontinuity": np.where(contact, excess, 0.0),
        }

    def branch(self, state: TwoRoomState, index: np.ndarray) -> TwoRoomState:
        """Exact copies of the rows in ``index``; the simulator holds no state of its own."""
        index = np.asarray(index)
        layout = state.layout.take(index)
        return TwoRoomState(
            state.agent[index].copy(),
            state.target[index].copy(),
            state.elapsed[index].copy(),
            layout,
            physics.walls_of(layout),
        )

    def with_state(self, state: TwoRoomState, agent: np.ndarray) -> TwoRoomState:
        """The same episodes with the agent placed at ``agent`` [B, 2] px.

        Raises:
            UsageError: a position of another shape or off the picture.
        """
        return replace(state, agent=_placed("agent", agent, len(state)))

    def with_goal(self, state: TwoRoomState, goal: np.ndarray) -> TwoRoomState:
        """The same episodes with the target placed at ``goal`` [B, 2] px.

        Raises:
            UsageError: a position of another shape or off the picture.
        """
        return replace(state, target=_placed("goal", goal, len(state)))

    def make_policy(self, name: str, **parameters: float) -> Policy:
        """A behaviour policy by name: zero, random, goal-seeking, oracle or exploratory."""
        return policies.make_policy(name, **parameters)

    def backdrop(self) -> np.ndarray:
        """The arena with its default walls and no agent, uint8 [3, 224, 224]."""
        return render.still_picture(Layout.initial(1), 0)

    def _observed(self, state: TwoRoomState, key: str, image_size: int | None) -> np.ndarray:
        if key == "pixels":
            size = FRAME_SIDE if image_size is None else image_size
            return self._renderer.frames(state.agent, state.target, state.layout, size=size)
        if key in ("state", "proprio"):
            return state.agent.copy()
        if key == "goal":
            return state.target.copy()
        if key == "step":
            return state.elapsed.copy()
        if key == "geometry":
            return geometry_of(state.layout)
        raise UsageError(
            f"TwoRoom has no observation {key!r}; it has {', '.join(self.observation_keys)}"
        )


def geometry_of(layout: Layout) -> np.ndarray:
    """Walls and doors as numbers, float32 [B, 11], in the order of navigation.GEOMETRY."""
    parts = (
        layout.wall_axis,
        layout.wall_thickness,
        layout.agent_radius,
        layout.agent_speed,
        layout.door_number,
    )
    stacked = np.stack([np.asarray(p, np.float32) for p in parts], axis=1)
    return np.concatenate(
        [stacked, layout.door_position.astype(np.float32), layout.door_size.astype(np.float32)],
        axis=1,
    )


def _separation(state: TwoRoomState) -> np.ndarray:
    delta = state.agent.astype(np.float64) - state.target.astype(np.float64)
    return np.hypot(delta[:, 0], delta[:, 1])


def _placed(name: str, points: np.ndarray, num_rows: int) -> np.ndarray:
    placed = np.array(points, np.float32)
    if placed.shape != (num_rows, 2):
        raise UsageError(
            f"{name} has shape {placed.shape}; {num_rows} episodes need ({num_rows}, 2)"
        )
    inside = (placed >= 0) & (placed <= FRAME_SIDE - 1)
    if not inside.all():
        row, column = np.argwhere(~inside)[0]
        raise UsageError(
            f"{name}[{row}, {column}] = {placed[row, column]:g} px is off the picture "
            f"[0, {FRAME_SIDE - 1}]: positions are pixels, not normalised numbers"
        )
    return placed
