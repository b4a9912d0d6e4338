"""Validity rules: columns of coordinate values in, a mask of admissible tuples out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dreamcheck.discovery.specification import InputSpecification, Rule
from dreamcheck.errors import SpecificationError

Columns = Mapping[str, np.ndarray]
"""Coordinate name -> values [n] of as many tuples."""

RuleFunction = Callable[[Columns], np.ndarray]
"""Columns -> bool mask [n], True where the tuple is admissible."""


def min_distance(
    columns: Columns, *, a: tuple[str, ...], b: tuple[str, ...], minimum: float
) -> np.ndarray:
    """Whether the points ``a`` and ``b`` are at least ``minimum`` apart, bool [n].

    Squared distances are compared, so integer grids are compared exactly.
    """
    squared = sum((columns[p] - columns[q]) ** 2 for p, q in zip(a, b, strict=True))
    return np.asarray(squared >= minimum**2)


def resolve(
    rules: tuple[Rule, ...],
    *,
    specification: InputSpecification,
    task_rules: Mapping[str, RuleFunction] | None,
) -> list[tuple[str, RuleFunction]]:
    """Each rule's label and function, in declared order.

    Raises:
        SpecificationError: a rule that is neither built in nor offered by the task.
    """
    offered = dict(task_rules or {})
    resolved: list[tuple[str, RuleFunction]] = []
    for rule in rules:
        if rule.rule == "min_distance":
            resolved.append((rule.label, _bind(rule)))
        elif rule.rule in offered:
            resolved.append((rule.label, offered[rule.rule]))
        else:
            raise SpecificationError(
                f"specification {specification.name!r} uses the rule {rule.rule!r}, which is not "
                f"built in (min_distance) and not among the task rules given "
                f"({', '.join(sorted(offered)) or 'none'}). Pass task_rules=task.rules() of the "
                f"task {specification.task!r}."
            )
    return resolved


def _bind(rule: Rule) -> RuleFunction:
    minimum = rule.min
    assert minimum is not None

    def check(columns: Columns) -> np.ndarray:
        return min_distance(columns, a=rule.a, b=rule.b, minimum=minimum)

    return check


def checked(mask: np.ndarray, *, label: str, size: int) -> np.ndarray:
    """The mask, if it is one.

    Raises:
        SpecificationError: a rule returned something other than a bool array [n].
    """
    mask = np.asarray(mask)
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise SpecificationError(
            f"rule {label!r} returned {mask.dtype} of shape {mask.shape} for {size} tuples; "
            "a rule returns one bool per tuple."
        )
    return mask
