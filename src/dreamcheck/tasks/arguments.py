"""What callers hand to a task, checked in one place and with one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from dreamcheck.errors import UsageError

P = TypeVar("P")


def checked_actions(actions: np.ndarray, *, rows: int, width: int) -> np.ndarray:
    """One raw action per episode, float32 [rows, width].

    Raises:
        UsageError: another shape, or a NaN, with its place.
    """
    actions = np.asarray(actions, np.float32)
    if actions.shape != (rows, width):
        raise UsageError(
            f"actions have shape {actions.shape}; {rows} episodes need ({rows}, {width}). "
            "Blocks of actions are stepped one environment step at a time"
        )
    if np.isnan(actions).any():
        row, column = np.argwhere(np.isnan(actions))[0]
        raise UsageError(
            f"actions[{row}, {column}] is NaN. The last action of a recorded episode is NaN by "
            "convention and cannot be stepped; otherwise the planner or model produced it"
        )
    return actions


def policy_of(
    policies: Mapping[str, type[P]], name: str, parameters: Mapping[str, Any], *, task: str
) -> P:
    """The policy of that name with the given parameters.

    Args:
        policies: a task's dataclasses by name.
        task: what the task is called in messages.

    Raises:
        UsageError: an unknown name or parameter; the message lists the known ones.
    """
    if name not in policies:
        raise UsageError(f"{task} has no policy {name!r}; it has {', '.join(policies)}.")
    known = [f.name for f in fields(policies[name])]  # type: ignore[arg-type]
    for parameter in parameters:
        if parameter not in known:
            raise UsageError(
                f"policy {name!r} has no parameter {parameter!r}; it has "
                f"{', '.join(known) or 'none'}."
            )
    return policies[name](**parameters)
