"""The PushT task: a state is a seed and the actions since, so that every branch is exact."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.errors import SpecificationError, UsageError
from dreamcheck.tasks.arguments import checked_actions
from dreamcheck.tasks.protocol import ActionBox, Column, Policy
from dreamcheck.tasks.pusht import policies
from dreamcheck.tasks.pusht.simulator import FRAME_SIDE, Origin, Reading, environment_class
from dreamcheck.tasks.pusht.workers import Here, Workers, default_workers

POSITION_TOLERANCE = 20.0
"""Success: agent and block together within this distance of the goal, arena px."""
ANGLE_TOLERANCE = np.pi / 9
"""Success: block angle within this of the goal's, radians (20 degrees)."""
MAX_LIVE = 4096
"""Simulators kept alive; older ones are rebuilt by replay if they are ever stepped again."""

DOMAINS: Mapping[str, tuple[float, float]] = {
    "agent_x": (50.0, 450.0),
    "agent_y": (50.0, 450.0),
    "block_x": (100.0, 400.0),
    "block_y": (100.0, 400.0),
    "goal_x": (50.0, 450.0),
    "goal_y": (50.0, 450.0),
}
"""Coordinates of an input and the values that the environment's own reset accepts, arena px."""

_COLUMNS = (
    Column("agent_x", "px"),
    Column("agent_y", "px"),
    Column("block_x", "px"),
    Column("block_y", "px"),
    Column("block_sin", "1"),
    Column("block_cos", "1"),
)

_RAW_COLUMNS = (
    *_COLUMNS[:4],
    Column("block_angle", "rad"),
    Column("agent_vx", "px/s"),
    Column("agent_vy", "px/s"),
)


@dataclass(frozen=True, eq=False)
class PushTState:
    """One row per episode: where it started, what was done since, and where it is now.

    origins: [B]. actions: float32 [B, t, 2] since the reset. values, goal: float64 [B, 7], agent
    xy, block xy, block angle, agent velocity; arena px, radians. contacts: int64 [B] of the last
    step. first_distance: float64 [B], block to goal at the reset, px. tokens: int64 [B], the live
    simulators that stand exactly here, if they still do.
    """

    origins: tuple[Origin, ...]
    actions: np.ndarray
    values: np.ndarray
    goal: np.ndarray
    contacts: np.ndarray
    first_distance: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.origins)


class PushT:
    """stable-worldmodel's ``swm/PushT-v1`` as a batched task.

    Stepping an older state, or one row twice, replays its actions from the seed: difference 0.
    Inputs fix agent, block and goal position; block angle and the rest of the goal stay the
    seed's. The green T in every picture is decoration, not the goal.

    Args:
        workers: processes to step in; 0 steps in this one. Default: DREAMCHECK_WORKERS or cores.
    """

    name = "pusht"
    action_box = ActionBox(low=(-1.0, -1.0), high=(1.0, 1.0))
    columns: tuple[Column, ...] = _COLUMNS
    raw_columns: tuple[Column, ...] = _RAW_COLUMNS  # of the observation "raw"
    sizes: tuple[int, ...] = (224, 112, 56)
    spec_names: tuple[str, ...] = (
        "pusht-576",
        "pusht-3510",
        "pusht-12016",
        "pusht-combinatorial",
        "pusht-dense-start",
        "pusht-dino-512",
        "pusht-dino-384",
    )
    tolerance = POSITION_TOLERANCE
    arm = 60.0  # half of the T's bar, px: one unit for block sine and cosine
    deterministic = True
    observation_keys = ("pixels", "state", "proprio", "raw", "goal", "geometry", "step")

    def __init__(self, *, workers: int | None = None) -> None:
        environment_class()  # refuses at once where the extra is missing
        count = default_workers() if workers is None else workers
        self._pool: Here | Workers = Workers(count) if count > 1 else Here()
        self._numbers = itertools.count()
        self._tokens = itertools.count()
        self._live: OrderedDict[int, int] = OrderedDict()  # token -> simulator number

    @property
    def package_version(self) -> str:
        """The simulator's package and its physics engine."""
        engine = metadata.version("pymunk")
        return f"stable-worldmodel {metadata.version('stable-worldmodel')}, pymunk {engine}"

    @property
    def version(self) -> str:
        """Our adapter's version and the detected appearance."""
        return f"1, appearance {self.appearance}"

    @cached_property
    def appearance(self) -> str:
        """Digest of a fixed picture: what the environment looks like, whatever its version says."""
        poses = np.array([[256.0, 400.0, 400.0, 100.0, 0.0], [100.0, 100.0, 256.0, 256.0, 1.0]])
        return hashlib.sha256(self._draw(poses, FRAME_SIDE).tobytes()).hexdigest()[:12]

    def reset(
        self, inputs: Sequence[Mapping[str, Value]] | None, seeds: Sequence[int]
    ) -> PushTState:
        """States for the inputs, one seed per row; None is the default reset.

        Raises:
            SpecificationError: an unknown coordinate, a value outside its domain, or not one seed
                per input.
        """
        if inputs is not None and len(inputs) != len(seeds):
            raise SpecificationError(
                f"{len(inputs)} inputs came with {len(seeds)} seeds: give one seed per input"
            )
        origins = tuple(
            Origin(int(s)) if inputs is None else _origin(i, inputs[i], int(s))
            for i, s in enumerate(seeds)
        )
        none = np.zeros((0, 2), np.float32)
        numbers = [next(self._numbers) for _ in origins]
        readings = self._pool.build([(n, o, none) for n, o in zip(numbers, origins, strict=True)])
        values, goal = _stack(readings, "values"), _stack(readings, "goal")
        return PushTState(
            origins=origins,
            actions=np.zeros((len(origins), 0, 2), np.float32),
            values=values,
            goal=goal,
            contacts=np.zeros(len(origins), np.int64),
            first_distance=_block_distance(values, goal),
            tokens=self._register(numbers),
        )

    def prefix(self, inputs: Sequence[Mapping[str, Value]] | None, num_rows: int) -> np.ndarray:
        """PushT inputs prescribe no actions: [B, 0, 2]."""
        return np.zeros((num_rows, 0, 2), np.float32)

    def rules(self) -> Mapping[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]]:
        """The libraries' distance rules are plain data in their presets; the task adds none."""
        return {}

    def step(self, state: PushTState, actions: np.ndarray) -> PushTState:
        """The next state. actions [B, 2], clamped to [-1, 1]; the argument is left as it was.

        Raises:
            UsageError: actions of another shape, or NaN.
            SimulatorDied: a worker process ended twice on the same rows.
        """
        actions = np.clip(checked_actions(actions, rows=len(state), width=2), -1, 1)
        numbers: list[int | None] = []
        for token in state.tokens.tolist():
            # Taken out: a simulator stands in one place only, so the second of two equal tokens
            # is rebuilt by replay.
            numbers.append(self._live.pop(token, None))
        ready = [i for i, n in enumerate(numbers) if n is not None]
        readings: list[Reading | None] = [None] * len(state)
        stepped = self._pool.step([(int(numbers[i] or 0), actions[i]) for i in ready])
        for i, reading in zip(ready, stepped, strict=True):
            readings[i] = reading
        grown = np.concatenate([state.actions, actions[:, None]], axis=1)
        lost = [i for i, r in enumerate(readings) if r is None]
        for i in lost:
            numbers[i] = next(self._numbers)
        rebuilt = self._pool.build(
            [(int(numbers[i] or 0), state.origins[i], grown[i]) for i in lost]
        )
        for i, reading in zip(lost, rebuilt, strict=True):
            readings[i] = reading
        done = [r for r in readings if r is not None]
        return replace(
            state,
            actions=grown,
            values=_stack(done, "values"),
            contacts=np.array([r.contacts for r in done], np.int64).reshape(len(state)),
            tokens=self._register([int(n or 0) for n in numbers]),
        )

    def observe(
        self, state: PushTState, keys: Sequence[str], *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """What the keys name, one row per episode.

        pixels: uint8 [B, 3, s, s]; 224 is the environment's own picture, 112 and 56 its block
        means. state: float32 [B, 6], the columns. raw: float64 [B, 7], the environment's own state.
        proprio: float32 [B, 4], agent position and velocity. goal: float32 [B, 6] in the columns'
        order. geometry: [B, 0], nothing varies. step: int64 [B].

        Raises:
            UsageError: an unknown key or size.
        """
        return {key: self._observed(state, key, image_size) for key in keys}

    def goal_observation(
        self, state: PushTState, *, image_size: int | None = None
    ) -> dict[str, np.ndarray]:
        """The observation with agent and block at the goal."""
        size = FRAME_SIDE if image_size is None else image_size
        return {"pixels": self._draw(state.goal[:, :5], size), "state": in_columns(state.goal)}

    def distance(self, state: PushTState) -> np.ndarray:
        """Joint distance of agent and block to their goals, arena px, [B]."""
        return np.linalg.norm(state.goal[:, :4] - state.values[:, :4], axis=1)

    def succeeded(self, state: PushTState) -> np.ndarray:
        """The environment's own test: joint distance < 20 px and block angle < 20 degrees.

        Kept as it is, flaw included: goal angles are drawn from two turns each way, and beyond one
        turn's difference the original's wrapped angle is negative, which it takes for aligned.
        """
        return (self.distance(state) < POSITION_TOLERANCE) & self._aligned(state)

    def succeeded_without_agent(self, state: PushTState) -> np.ndarray:
        """The test on the block alone, its angle wrapped; the two differ by tens of points."""
        turn = state.goal[:, 4] - state.values[:, 4]
        near = np.abs((turn + np.pi) % (2 * np.pi) - np.pi) < ANGLE_TOLERANCE
        return (_block_distance(state.values, state.goal) < POSITION_TOLERANCE) & near

    def measure(
        self, before: PushTState, actions: np.ndarray, after: PushTState
    ) -> dict[str, np.ndarray]:
        """Per step [B]: contact (points), path (block px), progress (share of the first distance).

        progress sums to 1 - final / initial block-goal distance. discontinuity is 1 where contact
        begins or ends. agent_block is the distance after the step, px.
        """
        moved = np.linalg.norm(after.values[:, 2:4] - before.values[:, 2:4], axis=1)
        gained = _block_distance(before.values, before.goal) - _block_distance(
            after.values, after.goal
        )
        return {
            "contact": after.contacts.astype(np.float64),
            "path": moved,
            "progress": gained / np.maximum(before.first_distance, 1e-9),
            "discontinuity": ((before.contacts > 0) != (after.contacts > 0)).astype(np.float64),
            "agent_block": np.linalg.norm(after.values[:, :2] - after.values[:, 2:4], axis=1),
            "block_success": self.succeeded_without_agent(after).astype(np.float64),
        }

    def branch(self, state: PushTState, index: np.ndarray) -> PushTState:
        """The rows in ``index``: seed and actions are copied, simulators replay when stepped."""
        index = np.asarray(index)
        return PushTState(
            origins=tuple(state.origins[int(i)] for i in index),
            actions=state.actions[index],
            values=state.values[index],
            goal=state.goal[index],
            contacts=state.contacts[index],
            first_distance=state.first_distance[index],
            tokens=state.tokens[index],
        )

    def make_policy(self, name: str, **parameters: float) -> Policy:
        """weak, random or zero."""
        return policies.make_policy(name, **parameters)

    def backdrop(self) -> np.ndarray:
        """The arena with agent and block out of sight, uint8 [3, 224, 224]."""
        return self._draw(np.array([[-900.0, -900.0, -900.0, -900.0, 0.0]]), FRAME_SIDE)[0]

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def _aligned(self, state: PushTState) -> np.ndarray:
        turn = np.abs(state.goal[:, 4] - state.values[:, 4])
        return np.minimum(turn, 2 * np.pi - turn) < ANGLE_TOLERANCE

    def _observed(self, state: PushTState, key: str, image_size: int | None) -> np.ndarray:
        if key == "pixels":
            size = FRAME_SIDE if image_size is None else image_size
            return self._draw(state.values[:, :5], size)
        if key == "state":
            return in_columns(state.values)
        if key == "raw":
            return state.values.copy()
        if key == "proprio":
            return state.values[:, [0, 1, 5, 6]].astype(np.float32)
        if key == "goal":
            return in_columns(state.goal)
        if key == "geometry":
            return np.zeros((len(state), 0), np.float32)
        if key == "step":
            return np.full(len(state), state.actions.shape[1], np.int64)
        raise UsageError(
            f"PushT has no observation {key!r}; it has {', '.join(self.observation_keys)}"
        )

    def _draw(self, poses: np.ndarray, size: int) -> np.ndarray:
        if size not in self.sizes:
            raise UsageError(
                f"image_size = {size} px: PushT draws {', '.join(map(str, self.sizes))}"
            )
        frames = folded(self._pool.draw(poses), FRAME_SIDE // size)
        return np.ascontiguousarray(frames.transpose(0, 3, 1, 2))

    def _register(self, numbers: Sequence[int]) -> np.ndarray:
        tokens = [next(self._tokens) for _ in numbers]
        self._live.update(zip(tokens, numbers, strict=True))
        dropped = []
        while len(self._live) > MAX_LIVE:
            dropped.append(self._live.popitem(last=False)[1])
        if dropped:
            self._pool.drop(dropped)
        return np.array(tokens, np.int64)


def folded(frames: np.ndarray, fold: int) -> np.ndarray:
    """Means of ``fold`` x ``fold`` blocks, half to even: uint8 [N, s, s, 3] to [N, s / fold, ...].

    Sums are whole numbers, so the means are those of ``frames.mean`` at a fifth of its time.
    """
    if fold == 1:
        return frames
    n, side = len(frames), frames.shape[1] // fold
    rows = frames.reshape(n, side, fold, -1)
    total = rows[:, :, 0].astype(np.uint16)
    for k in range(1, fold):
        total += rows[:, :, k]
    blocks = total.reshape(n, side, side, fold, 3)
    total = blocks[:, :, :, 0].copy()
    for k in range(1, fold):
        total += blocks[:, :, :, k]
    return np.round(total / np.float32(fold * fold)).astype(np.uint8)


def in_columns(values: np.ndarray) -> np.ndarray:
    """The environment's seven numbers as the task's columns, float32 [B, 6]."""
    turned = np.stack([np.sin(values[:, 4]), np.cos(values[:, 4])], axis=1)
    return np.concatenate([values[:, :4], turned], axis=1).astype(np.float32)


def _block_distance(values: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values[:, 2:4] - goal[:, 2:4], axis=1)


def _stack(readings: Sequence[Reading], name: str) -> np.ndarray:
    return np.stack([getattr(r, name) for r in readings]) if readings else np.zeros((0, 7))


def _origin(i: int, row: Mapping[str, Value], seed: int) -> Origin:
    for name, value in row.items():
        if name not in DOMAINS:
            raise SpecificationError(
                f"inputs[{i}] has the coordinate {name!r} = {value!r}, which PushT does not know. "
                f"It knows {', '.join(DOMAINS)}"
            )
        low, high = DOMAINS[name]
        if isinstance(value, str | bool) or not low <= float(value) <= high:
            raise SpecificationError(
                f"{name} = {value!r} is outside its domain [{low:g}, {high:g}]"
            )

    def point(what: str) -> tuple[float, float] | None:
        names = (f"{what}_x", f"{what}_y")
        given = [n for n in names if n in row]
        if len(given) == 1:
            raise SpecificationError(f"inputs[{i}] gives {given[0]} alone; give both of {names}")
        return (float(row[names[0]]), float(row[names[1]])) if given else None

    return Origin(seed, point("agent"), point("block"), point("goal"))
