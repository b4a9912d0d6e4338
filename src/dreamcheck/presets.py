"""Presets that ship as TOML files of a package, and models read from them."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dreamcheck.errors import UsageError

T = TypeVar("T", bound=BaseModel)


def preset_names(package: str) -> tuple[str, ...]:
    """Names of the TOML files of a package, sorted, without their ending."""
    folder = resources.files(package)
    return tuple(
        sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))
    )


def preset_text(
    package: str, name: str, *, kind: str, error: type[UsageError] = UsageError
) -> tuple[str, str]:
    """Text and origin of the preset that ships under a name, or of a file of the user's.

    Args:
        name: a shipped name, or a path that ends in ".toml".
        kind: what a message calls it, e.g. "input specification".

    Raises:
        error: no such name (the message lists the known ones) or no such file.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise error(f"{kind} file {name!r} does not exist.")
        try:
            return path.read_text(encoding="utf-8"), name
        except OSError as e:
            raise error(f"{kind} file {name!r} cannot be read: {e.strerror}.") from e
    known = preset_names(package)
    if name not in known:
        raise error(
            f"no {kind} is called {name!r}. Known: {', '.join(known)}. A file of your own is given "
            "by its path, ending in .toml."
        )
    file = f"{name}.toml"
    return (resources.files(package) / file).read_text(encoding="utf-8"), file


def parse_toml(text: str, *, origin: str, error: type[UsageError] = UsageError) -> dict[str, Any]:
    """Plain data from TOML text; ``origin`` is the file the message names."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise error(f"{origin} is not valid TOML: {e}.") from e


def model_from(
    model: type[T],
    data: Mapping[str, Any],
    *,
    origin: str,
    whole: str,
    error: type[UsageError] = UsageError,
) -> T:
    """A frozen model from plain data, with an error that names the first wrong field.

    Args:
        whole: what the message names when the fault lies in no single field.

    Raises:
        error: a field is missing, unknown or out of its domain.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as e:
        # A misspelt field is also a missing one: the misspelling is what helps.
        faults = e.errors()
        first = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
        where = ".".join(str(p) for p in first["loc"]) or whole
        said = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            known = _siblings(model, first["loc"])
            said = f"there is no such field; known: {', '.join(known)}"
            close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
            said += f". Did you mean {close[0]!r}?" if close else "."
        elif first["loc"] and isinstance(first["input"], str | int | float):
            said += f" (got {first['input']!r})."
        else:
            said += "."
        raise error(f"{origin}: {where}: {said}") from e


def _siblings(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Fields beside the last name of ``path``, following it through nested models."""
    for name in path[:-1]:
        if name not in model.model_fields:
            continue  # a position in a list, or a key
        inner = model.model_fields[name].annotation
        for part in (inner, *getattr(inner, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                model = part
    return list(model.model_fields)
