"""Which column of a data file is what: defaults that fit common files, and a TOML file for the rest."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dreamcheck.errors import UsageError


class ColumnMapping(BaseModel):
    """Names of the columns that matter.

    pixels, action: one column each; None finds the usual names.
    state: columns laid side by side into the state vector; None takes the first usual one.
    episode: an episode number per frame, for files without lengths.
    lengths, offsets: per-episode tables.
    extra: further columns to offer as metadata; None offers every numeric or text one.
    units, names: per state column, its unit and the names of its numbers.
    pixel_layout: "hwc", "chw", or "auto" from the shape.
    last_action: what an episode's last action is when it is a number: "drop" makes it NaN and says
        so, "refuse" stops.
    first_action_missing: "shift" moves actions one step back when the first one is NaN.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pixels: str | None = None
    action: str | None = None
    state: tuple[str, ...] | None = None
    episode: str | None = None
    lengths: str | None = None
    offsets: str | None = None
    extra: tuple[str, ...] | None = None
    units: Mapping[str, str] = Field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    pixel_layout: Literal["auto", "hwc", "chw"] = "auto"
    last_action: Literal["drop", "refuse"] = "drop"
    first_action_missing: Literal["shift", "refuse"] = "shift"


EXAMPLE = """\
# columns.toml: which column of the file is what
pixels = "camera/front"
action = "actions"
state = ["agent_pos", "agent_vel"]
[units]
agent_pos = "px"
[names]
agent_pos = ["x", "y"]
"""


def read_mapping(path: str | Path) -> ColumnMapping:
    """A mapping from a TOML file.

    Raises:
        UsageError: unreadable, or a field that does not exist (named).
    """
    path = Path(path)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return ColumnMapping.model_validate(raw)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no valid TOML: {error}. An example:\n{EXAMPLE}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise UsageError(
            f"{path}: {place}: {first['msg']} (got {first.get('input')!r}). Fields are "
            f"{', '.join(ColumnMapping.model_fields)}. An example:\n{EXAMPLE}"
        ) from None
