"""Typed TwoRoom inputs: coordinate names to start, goal, layout and prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dreamcheck.digest import Value
from dreamcheck.errors import SpecificationError
from dreamcheck.tasks.tworoom.parameters import (
    FACTORS,
    POSITION_HIGH,
    POSITION_LOW,
    Factor,
    Layout,
    colour_of,
    initial_arrays,
)

START: Mapping[str, float] = MappingProxyType({"start_x": 60.0, "start_y": 112.0})
GOAL: Mapping[str, float] = MappingProxyType({"goal_x": 164.0, "goal_y": 112.0})
"""Position coordinates and their declared initial values, px."""

PREFIX_STEPS = 10
"""Environment steps of a prefix: two blocks of five."""

_DIAGONAL = math.sqrt(0.5)
PREFIX_TEMPLATES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "hold": (0.0, 0.0),
        "right": (1.0, 0.0),
        "left": (-1.0, 0.0),
        "up": (0.0, -1.0),
        "down": (0.0, 1.0),
        "up-right": (_DIAGONAL, -_DIAGONAL),
        "up-left": (-_DIAGONAL, -_DIAGONAL),
        "down-right": (_DIAGONAL, _DIAGONAL),
        "down-left": (-_DIAGONAL, _DIAGONAL),
    }
)
"""The action each prefix repeats; y grows downwards, and a diagonal is as fast as a straight one."""


def initial_values() -> dict[str, Value]:
    """Every coordinate but the prefix at the environment's declared initial value."""
    return {**START, **GOAL, **{name: f.initial for name, f in FACTORS.items()}}


def parse(inputs: Sequence[Mapping[str, Value]]) -> tuple[np.ndarray, np.ndarray, Layout]:
    """Start and goal, float32 [B, 2] in px, and the layout of each input.

    Coordinates that an input leaves out take their declared initial values. A start inside the wall
    is accepted, as the original accepts it; validity rules decide.

    Raises:
        SpecificationError: an unknown coordinate or a value outside its domain, named.
    """
    num_rows = len(inputs)
    points = {name: np.full(num_rows, value) for name, value in {**START, **GOAL}.items()}
    arrays = initial_arrays(num_rows)
    for i, row in enumerate(inputs):
        for name, value in row.items():
            if name in points:
                points[name][i] = _number(name, value, POSITION_LOW, POSITION_HIGH)
            elif name in FACTORS:
                _set(arrays, i, FACTORS[name], value)
            elif name == "prefix":
                _template(value)
            else:
                known = ", ".join([*points, "prefix", *FACTORS])
                raise SpecificationError(
                    f"inputs[{i}] has the coordinate {name!r} = {value!r}, which TwoRoom does not "
                    f"know. It knows {known}"
                )
    start = np.stack([points["start_x"], points["start_y"]], axis=1).astype(np.float32)
    goal = np.stack([points["goal_x"], points["goal_y"]], axis=1).astype(np.float32)
    return start, goal, Layout.of(arrays)


def prefix_actions(inputs: Sequence[Mapping[str, Value]] | None, num_rows: int) -> np.ndarray:
    """Raw actions [B, P, 2], float32: P is 10 if the inputs name a prefix, else 0.

    Raises:
        SpecificationError: an unknown template, a wrong number of inputs, or a batch in which only
            some inputs name a prefix.
    """
    if inputs is None:
        return np.zeros((num_rows, 0, 2), np.float32)
    if len(inputs) != num_rows:
        raise SpecificationError(f"{len(inputs)} inputs were given for {num_rows} rows")
    named = ["prefix" in row for row in inputs]
    if not any(named):
        return np.zeros((num_rows, 0, 2), np.float32)
    if not all(named):
        raise SpecificationError(
            f"inputs[{named.index(False)}] has no prefix and inputs[{named.index(True)}] has one: "
            "a batch needs prefixes of one length. Give every input one, for example 'hold'"
        )
    held = np.array([_template(row["prefix"]) for row in inputs], np.float32)
    return np.repeat(held[:, None, :], PREFIX_STEPS, axis=1)


def _template(value: Value) -> tuple[float, float]:
    if not isinstance(value, str) or value not in PREFIX_TEMPLATES:
        raise SpecificationError(f"prefix = {value!r} is not one of {', '.join(PREFIX_TEMPLATES)}")
    return PREFIX_TEMPLATES[value]


def _number(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise SpecificationError(f"{name} = {value!r} must be a number in [{low:g}, {high:g}]")
    if not low <= float(value) <= high:  # also refuses NaN
        raise SpecificationError(f"{name} = {value!r} is outside its domain [{low:g}, {high:g}]")
    return float(value)


def _set(arrays: dict[str, np.ndarray], i: int, factor: Factor, value: Any) -> None:
    out_of_domain = SpecificationError(
        f"{factor.name} = {value!r} is outside its domain: {factor.domain}"
    )
    if factor.kind == "colour":
        if not isinstance(value, str):
            raise out_of_domain
        try:
            arrays[factor.field][i] = colour_of(value)
        except KeyError:
            raise out_of_domain from None
        return
    number = _number(factor.name, value, factor.low, factor.high)
    if factor.kind == "integer" and number != int(number):
        raise out_of_domain
    if factor.entry is None:
        arrays[factor.field][i] = number
    else:
        arrays[factor.field][i, factor.entry] = number
