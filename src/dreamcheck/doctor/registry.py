"""Checks and their fault generators, found by file name; there is no list to keep."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dreamcheck.doctor import checks, faults
from dreamcheck.doctor.contract import Check, FaultGenerator
from dreamcheck.errors import UsageError

GROUPS = ("model", "data", "environment", "protocol", "results")
"""Order in which groups are examined and shown."""


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check, by group and name."""
    found: list[Check] = [
        importlib.import_module(f"{checks.__name__}.{m.name}").CHECK
        for m in pkgutil.iter_modules(checks.__path__)
        if not m.name.startswith("_")
    ]
    return tuple(sorted(found, key=lambda c: (GROUPS.index(c.group), c.name)))


@cache
def all_generators() -> dict[str, FaultGenerator]:
    """Fault generators by check."""
    return {
        m.name: importlib.import_module(f"{faults.__name__}.{m.name}").GENERATOR
        for m in pkgutil.iter_modules(faults.__path__)
        if not m.name.startswith("_")
    }


def chosen_checks(*, only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> tuple[Check, ...]:
    """Checks left after ``only`` and ``skip``.

    Raises:
        UsageError: a name that no check has, with the names there are.
    """
    names = {c.name for c in all_checks()}
    unknown = [n for n in (*only, *skip) if n not in names]
    if unknown:
        raise UsageError(
            f"no check is called {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(sorted(names))}."
        )
    return tuple(c for c in all_checks() if (not only or c.name in only) and c.name not in skip)
