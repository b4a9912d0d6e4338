"""Thresholds are data with their source; sets of them have names."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dreamcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit that decides a verdict, and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Thresholds:
    """A named set; what it does not say is taken from ``default``."""

    name: str = "default"

    def get(self, check: str, name: str) -> Threshold:
        """The threshold ``name`` of a check.

        Raises:
            KeyError: the file holds none of that name: a mistake in the check.
        """
        table = _file()
        entry = table.get(self.name, {}).get(check, {}).get(name)
        if entry is None:
            entry = table["default"][check][name]
        return Threshold(name, float(entry["value"]), entry.get("unit", ""), entry["source"])


def load_thresholds(name: str = "default") -> Thresholds:
    """A set by name.

    Raises:
        UsageError: an unknown set, with the known ones.
    """
    if name not in _file():
        raise UsageError(f"no thresholds are called {name!r}; there are {', '.join(_file())}.")
    return Thresholds(name)


@cache
def _file() -> dict[str, Any]:
    text = (resources.files("dreamcheck.doctor") / "thresholds.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
