"""Tasks by name: the built-in one, installed ones, and any factory the user names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Task
from dreamcheck.user_code import import_named, source_digest

ENTRY_POINTS = "dreamcheck.tasks"
"""Entry-point group in which other packages offer tasks."""

BUILT_IN = {
    "tworoom": "dreamcheck.tasks.tworoom:TwoRoom",
    "pusht": "dreamcheck.tasks.pusht:PushT",
}
"""Tasks that come with Dreamcheck: name -> "module:factory"."""

_MEMBERS = [
    "name",
    "version",
    "package_version",
    "action_box",
    "columns",
    "sizes",
    "spec_names",
    "reset",
    "prefix",
    "rules",
    "step",
    "observe",
    "goal_observation",
    "distance",
    "succeeded",
    "measure",
    "branch",
]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Where a task came from, as records keep it.

    reference: "package.module:factory". source_digest: SHA-256 of the module's source file, None
    for built-in tasks, which their package version names.
    """

    reference: str
    source_digest: str | None


def task_names() -> tuple[str, ...]:
    """Names that get_task knows, built-in and installed, in order of name."""
    return tuple(sorted({*BUILT_IN, *(e.name for e in _entry_points())}))


def get_task(name: str) -> Task:
    """The task of a name, or of "package.module:factory", an explicit import by the user.

    Raises:
        UsageError: an unknown name, a module or factory that cannot be imported or called, or an
            object that is not a task.
    """
    return resolve_task(name)[0]


def resolve_task(name: str) -> tuple[Task, TaskSource]:
    """The task and where it came from.

    Raises:
        UsageError: as get_task.
    """
    if name in BUILT_IN:
        return _made(BUILT_IN[name], _imported(BUILT_IN[name])), TaskSource(BUILT_IN[name], None)
    if ":" in name:
        factory = _imported(name)
        return _made(name, factory), TaskSource(name, source_digest(name))
    offered = {e.name: e for e in _entry_points()}
    if name in offered:
        reference = offered[name].value
        return _made(reference, _imported(reference)), TaskSource(
            reference, source_digest(reference)
        )
    raise UsageError(
        f"no task is called {name!r}. Known tasks: {', '.join(task_names())}. A task of your own is "
        "named 'package.module:factory'"
    )


def _entry_points() -> metadata.EntryPoints:
    return metadata.entry_points(group=ENTRY_POINTS)


def _imported(reference: str) -> Callable[[], Any]:
    module_name, _, attribute = reference.partition(":")
    try:
        found: Any = import_named(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"the task {reference!r} cannot be imported: {error}. It must be 'package.module:factory' "
            "with the module on the Python path"
        ) from error
    if not callable(found):
        raise UsageError(
            f"the task {reference!r} is a {type(found).__name__}, not a factory: name a class or a "
            "function that returns a task and needs no arguments"
        )
    return found


def _made(reference: str, factory: Callable[[], Any]) -> Task:
    try:
        task = factory()
    except TypeError as error:
        raise UsageError(f"the task factory {reference!r} cannot be called: {error}") from error
    missing = [member for member in _MEMBERS if not hasattr(task, member)]
    if missing:
        raise UsageError(
            f"{reference!r} made a {type(task).__name__}, which is not a task: it has no "
            f"{', '.join(missing)}. See dreamcheck.tasks.protocol"
        )
    return task
