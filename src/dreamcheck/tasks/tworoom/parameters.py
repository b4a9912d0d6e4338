"""TwoRoom's numbers: fixed constants, variation factors with their domains, and one row per episode.

Source of the values: stable-worldmodel 0.1.1, ``swm/TwoRoom-v1`` (its variation space).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

import numpy as np

FRAME_SIDE = 224
"""Side of the picture and of the arena, px: one pixel is one unit of length."""
BORDER = 14
"""Distance from the picture's edge to the arena, px."""
BORDER_LINE = 4
"""Thickness of the line drawn around the arena, px."""
WALL_CENTRE = 112
"""The wall's middle coordinate, px."""
DOOR_MARGIN = 1.75
"""How far past a door's edge a centre still passes, px; the agent's radius plays no part in it."""
PUSHBACK = 0.5
"""How far before the wall a blocked agent is put, px."""
SUCCESS_RADIUS = 16.0
"""Success is a distance strictly below this, px."""
DOOR_FIT = 1.1
"""A door fits an agent when its half-extent is at least this many radii."""
MAX_DOORS = 3
POSITION_LOW = 14.0
"""Bounds of start and goal coordinates; the border keeps centres within 14 + radius."""
POSITION_HIGH = 209.0

COLOURS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "red": (255, 0, 0),
        "green": (0, 255, 0),
        "blue": (0, 0, 255),
        "yellow": (255, 255, 0),
        "cyan": (0, 255, 255),
        "magenta": (255, 0, 255),
        "orange": (255, 128, 0),
        "purple": (128, 0, 128),
        "brown": (128, 64, 0),
        "black": (0, 0, 0),
        "white": (255, 255, 255),
        "gray": (128, 128, 128),
        "lightgray": (192, 192, 192),
        "darkgray": (64, 64, 64),
    }
)
"""Names of the colour coordinates; any "#rrggbb" is accepted as well."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One variation factor: a declared initial value, and the values it may take.

    kind: "real" (closed interval), "integer" (closed interval) or "colour".
    field: the Layout array it sets, and which entry of it (None: all of the entries).
    """

    name: str
    kind: str
    low: float
    high: float
    initial: float | str
    field: str
    entry: int | None = None

    @property
    def domain(self) -> str:
        """The domain in words, for error messages and listings."""
        if self.kind == "colour":
            return f'a name of {", ".join(COLOURS)} or "#rrggbb"'
        if self.kind == "integer":
            return f"an integer in [{int(self.low)}, {int(self.high)}]"
        return f"a number in [{self.low:g}, {self.high:g}]"


def _colour(name: str, initial: str, field_name: str) -> Factor:
    return Factor(name, "colour", 0, 255, initial, field_name)


FACTORS: Mapping[str, Factor] = MappingProxyType(
    {
        f.name: f
        for f in (
            Factor("door.number", "integer", 1, 3, 1, "door_number"),
            Factor("door.position", "integer", 0, 223, 49, "door_position", 0),
            Factor("door.position.1", "integer", 0, 223, 49, "door_position", 1),
            Factor("door.position.2", "integer", 0, 223, 49, "door_position", 2),
            Factor("door.size", "integer", 1, 21, 14, "door_size"),
            Factor("wall.thickness", "integer", 7, 41, 10, "wall_thickness"),
            Factor("wall.axis", "integer", 0, 1, 1, "wall_axis"),
            Factor("agent.speed", "real", 1.75, 10.5, 5.0, "agent_speed"),
            Factor("agent.radius", "real", 7.0, 14.0, 7.0, "agent_radius"),
            Factor("target.radius", "real", 7.0, 14.0, 7.0, "target_radius"),
            Factor("rendering.render_target", "integer", 0, 1, 0, "render_target"),
            _colour("agent.color", "red", "agent_colour"),
            _colour("target.color", "green", "target_colour"),
            _colour("door.color", "white", "door_colour"),
            _colour("wall.color", "black", "wall_colour"),
            # The original samples a border colour and paints the border in the wall's; so do we.
            _colour("wall.border_color", "black", "border_colour"),
            _colour("background.color", "white", "background_colour"),
        )
    }
)
"""Variation factors by coordinate name."""


def colour_of(text: str) -> tuple[int, int, int]:
    """The RGB triple of a name or "#rrggbb".

    Raises:
        KeyError: neither.
    """
    if text in COLOURS:
        return COLOURS[text]
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
    raise KeyError(text)


_ENTRIES = {"door_position": MAX_DOORS, "door_size": MAX_DOORS}
_REALS = ("agent_speed", "agent_radius", "target_radius")


@dataclass(frozen=True, eq=False)
class Layout:
    """What does not change during an episode, one row per episode (struct of arrays).

    agent_speed, agent_radius, target_radius: float32 [B]; px per step, px, px.
    wall_axis (0 horizontal, 1 vertical), wall_thickness px, door_number, render_target: int64 [B].
    door_position, door_size (half-extents): int64 [B, 3], px; the first door_number of them exist.
    *_colour: uint8 [B, 3].
    picture: int64 [B], rows with one number share every value that the still picture depends on.
    """

    agent_speed: np.ndarray
    agent_radius: np.ndarray
    target_radius: np.ndarray
    wall_axis: np.ndarray
    wall_thickness: np.ndarray
    door_number: np.ndarray
    door_position: np.ndarray
    door_size: np.ndarray
    render_target: np.ndarray
    agent_colour: np.ndarray
    target_colour: np.ndarray
    door_colour: np.ndarray
    wall_colour: np.ndarray
    border_colour: np.ndarray
    background_colour: np.ndarray
    picture: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.agent_speed)

    @classmethod
    def initial(cls, num_rows: int) -> Layout:
        """Every factor at its declared initial value."""
        return cls(**initial_arrays(num_rows), picture=np.zeros(num_rows, np.int64))

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Layout:
        """A layout of the given arrays, with its rows' pictures numbered."""
        stacked = np.concatenate(
            [arrays[name].reshape(len(arrays[name]), -1).astype(np.int64) for name in _PICTURED],
            axis=1,
        )
        if (stacked == stacked[:1]).all():
            picture = np.zeros(len(stacked), np.int64)
        else:
            picture = np.unique(stacked, axis=0, return_inverse=True)[1].reshape(-1)
        return cls(**arrays, picture=picture.astype(np.int64))

    def picture_key(self, row: int) -> bytes:
        """The values that the row's still picture depends on."""
        return b"".join(np.asarray(getattr(self, n)[row], np.int64).tobytes() for n in _PICTURED)

    def take(self, index: np.ndarray) -> Layout:
        """The rows in ``index``."""
        return Layout(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


_PICTURED = (
    "wall_axis",
    "wall_thickness",
    "door_number",
    "door_position",
    "door_size",
    "door_colour",
    "wall_colour",
    "background_colour",
)


def initial_arrays(num_rows: int) -> dict[str, np.ndarray]:
    """Layout arrays at the declared initial values, ready to be written into."""
    arrays: dict[str, np.ndarray] = {}
    for factor in FACTORS.values():
        name = factor.field
        if name in arrays:
            continue
        if factor.kind == "colour":
            row = np.array(colour_of(str(factor.initial)), np.uint8)
        else:
            dtype = np.float32 if name in _REALS else np.int64
            row = np.full(_ENTRIES.get(name, ()), factor.initial, dtype)
        arrays[name] = np.tile(row, (num_rows,) + (1,) * row.ndim).reshape(num_rows, *row.shape)
    return arrays
