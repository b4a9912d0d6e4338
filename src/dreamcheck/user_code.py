"""Importing what a user names as ``package.module:factory``, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType

from dreamcheck.digest import digest_file


def import_named(module: str) -> ModuleType:
    """A module the user named, also from the working directory, as ``python -m`` would find it.

    An installed command has its own folder on the path and not the one it is run from. The working
    directory goes last, so nothing in it stands in for an installed package, and only once the user
    has asked for code by name.

    Raises:
        ImportError: as ``importlib.import_module``.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module)


def source_digest(reference: str) -> str | None:
    """SHA-256 of the source file behind "package.module:name"; None where there is no file."""
    module = import_named(reference.partition(":")[0])
    try:
        path = inspect.getsourcefile(module)
    except TypeError:
        return None
    return digest_file(Path(path)) if path and Path(path).is_file() else None
