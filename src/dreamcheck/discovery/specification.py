"""Input specifications: typed coordinates, validity rules and provenance, as data.

An input is a tuple of coordinate values that the environment's ordinary reset or action interface
accepts. A specification says which tuples may be asked; a library lists the valid ones.
Source: spec/discovery.md sections 1 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dreamcheck.digest import Value, digest
from dreamcheck.errors import SpecificationError
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text

PRESET_PACKAGE = "dreamcheck.discovery.presets"


class Coordinate(BaseModel):
    """One typed coordinate of an input.

    kind: "grid" and "integer" are ordered, so neighbouring values are adjacent; "categorical" has
        no order: the order in which its values are declared never changes a result.
    values: admissible values; strictly increasing where the kind is ordered.
    unit: what the numbers mean ("px", "px/step", "seed", ...).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    kind: Literal["grid", "integer", "categorical"]
    values: tuple[Value, ...] = Field(min_length=1)
    unit: str = ""

    @field_validator("values", mode="before")
    @classmethod
    def _no_booleans(cls, values: Any) -> Any:
        for v in values:
            if isinstance(v, bool) or not isinstance(v, (int, float, str)):
                raise ValueError(f"{v!r} is neither a number nor a text label")
        return tuple(values)

    @model_validator(mode="after")
    def _values_fit_the_kind(self) -> Coordinate:
        values = self.values
        if self.kind == "categorical":
            if any(isinstance(v, float) for v in values):
                raise ValueError(
                    f"coordinate {self.name!r} is categorical but has a float value; "
                    "label it with text, or declare kind = 'grid'"
                )
            if len(set(map(repr, values))) != len(values):
                raise ValueError(f"coordinate {self.name!r} repeats a label: {list(values)}")
            return self
        numbers: list[int | float] = []
        for v in values:
            if isinstance(v, str) or not math.isfinite(v):
                raise ValueError(
                    f"coordinate {self.name!r} is {self.kind!r} but has the value {v!r}; "
                    "ordered coordinates take finite numbers"
                )
            if self.kind == "integer" and not isinstance(v, int):
                raise ValueError(f"coordinate {self.name!r} is 'integer' but has the value {v!r}")
            numbers.append(v)
        if any(b <= a for a, b in zip(numbers, numbers[1:], strict=False)):
            raise ValueError(
                f"coordinate {self.name!r} must list its values in strictly increasing order, "
                f"because adjacency follows that order; got {list(values)}"
            )
        return self

    @property
    def ordered(self) -> bool:
        """Whether neighbouring values are adjacent."""
        return self.kind != "categorical"

    @property
    def levels(self) -> tuple[Value, ...]:
        """Values in canonical order: ordered ones as declared, labels sorted.

        A grid that mixes integers and floats is all floats, so that one number has one spelling.
        """
        if self.kind == "categorical":
            return tuple(sorted(self.values, key=lambda v: (isinstance(v, str), v)))
        if any(isinstance(v, float) for v in self.values):
            return tuple(float(v) for v in self.values)
        return self.values


class Rule(BaseModel):
    """One validity rule, as data.

    rule: "min_distance" (built in: Euclidean distance between the coordinates ``a`` and ``b`` is
        at least ``min``) or the name of a rule the task offers.
    name: what reports call it; made from the rule and its arguments when empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str
    name: str = ""
    a: tuple[str, ...] = ()
    b: tuple[str, ...] = ()
    min: float | None = None

    @model_validator(mode="after")
    def _arguments_fit(self) -> Rule:
        if self.rule == "min_distance":
            if not self.a or len(self.a) != len(self.b) or self.min is None or self.min < 0:
                raise ValueError(
                    "min_distance needs 'a' and 'b' with equally many coordinate names and a "
                    f"non-negative 'min'; got a={list(self.a)}, b={list(self.b)}, min={self.min}"
                )
        elif self.a or self.b or self.min is not None:
            raise ValueError(f"rule {self.rule!r} belongs to the task and takes no arguments here")
        return self

    @property
    def label(self) -> str:
        """The name that removal counts carry."""
        if self.name:
            return self.name
        if self.rule == "min_distance":
            return f"min_distance({','.join(self.a)};{','.join(self.b)};{self.min:g})"
        return self.rule


class Subsample(BaseModel):
    """Tuples drawn without replacement from the valid ones, kept in library order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(gt=0)
    seed: int = Field(ge=0)


class ActionTemplates(BaseModel):
    """What the labels of an action-template coordinate mean, and how a scale applies.

    coordinate, scale, seed: names of the template, scale and reset-seed coordinates.
    horizon: macro actions in a full sequence; shorter templates are cycled to it.
    repeat: simulator steps per macro action.
    actions: label -> list of raw actions; scaled, then clipped to [-1, 1].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    coordinate: str
    scale: str
    seed: str
    horizon: int = Field(gt=0)
    repeat: int = Field(gt=0)
    actions: dict[str, tuple[tuple[float, ...], ...]]


class InputSpecification(BaseModel):
    """Everything that defines a library, frozen.

    task: the task it was made for.
    nominal: the environment's declared initial values, by coordinate; edit paths start at the
        library tuple nearest to them.
    source: where the coordinates come from ("the paper", "ours, not the paper's", ...).
    shuffle_seed: the library order is permuted once with this seed after the rules.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    task: str
    title: str
    source: str
    coordinates: tuple[Coordinate, ...] = Field(min_length=1)
    rules: tuple[Rule, ...] = ()
    nominal: dict[str, Value] = Field(default_factory=dict)
    subsample: Subsample | None = None
    shuffle_seed: int | None = Field(default=None, ge=0)
    templates: ActionTemplates | None = None

    @model_validator(mode="after")
    def _names_exist(self) -> InputSpecification:
        names = [c.name for c in self.coordinates]
        if len(set(names)) != len(names):
            raise ValueError(f"coordinate names repeat: {names}")
        for rule in self.rules:
            for name in (*rule.a, *rule.b):
                if name not in names:
                    raise ValueError(f"rule {rule.label!r} names {name!r}, which is no coordinate")
                if self.coordinate(name).kind == "categorical":
                    raise ValueError(f"rule {rule.label!r} measures {name!r}, which is categorical")
        labels = [r.label for r in self.rules]
        if len(set(labels)) != len(labels):
            raise ValueError(f"two rules share a label: {labels}; give each its own 'name'")
        for name in self.nominal:
            if name not in names:
                raise ValueError(f"nominal names {name!r}, which is no coordinate")
        if self.templates is not None:
            t = self.templates
            for name in (t.coordinate, t.scale, t.seed):
                if name not in names:
                    raise ValueError(f"templates name {name!r}, which is no coordinate")
            missing = [v for v in self.coordinate(t.coordinate).values if v not in t.actions]
            if missing:
                raise ValueError(f"templates give no actions for {missing}")
        return self

    def coordinate(self, name: str) -> Coordinate:
        """The coordinate of that name.

        Raises:
            SpecificationError: there is none.
        """
        for c in self.coordinates:
            if c.name == name:
                return c
        raise SpecificationError(
            f"specification {self.name!r} has no coordinate {name!r}; it has "
            f"{[c.name for c in self.coordinates]}."
        )

    @property
    def identity(self) -> str:
        """SHA-256 of what decides which tuples exist; titles and notes are left out.

        Labels are hashed in canonical order, so declaring them in another order changes no id.
        """
        return digest(
            {
                "name": self.name,
                "task": self.task,
                "coordinates": [[c.name, c.kind, list(c.levels), c.unit] for c in self.coordinates],
                "rules": [
                    [r.rule, list(r.a), list(r.b), None if r.min is None else float(r.min)]
                    for r in self.rules
                ],
                "subsample": self.subsample.model_dump() if self.subsample else None,
                "shuffle_seed": self.shuffle_seed,
                "templates": self.templates.model_dump() if self.templates else None,
            }
        )


def specification_names() -> tuple[str, ...]:
    """Names of the specifications that ship, sorted."""
    return preset_names(PRESET_PACKAGE)


def get_specification(name: str) -> InputSpecification:
    """The specification that ships under that name, or the one in a TOML file.

    Args:
        name: a shipped name, or a path that ends in ".toml".

    Raises:
        SpecificationError: no such name (the message lists the known ones) or a bad file.
    """
    text, origin = preset_text(
        PRESET_PACKAGE, name, kind="input specification", error=SpecificationError
    )
    return parse_specification(text, origin=origin)


def parse_specification(text: str, *, origin: str) -> InputSpecification:
    """A specification from TOML text; ``origin`` is the file the message names.

    Raises:
        SpecificationError: not TOML, or a field that is missing, unknown or out of its domain.
    """
    return specification_from(
        parse_toml(text, origin=origin, error=SpecificationError), origin=origin
    )


def specification_from(data: Mapping[str, Any], *, origin: str = "data") -> InputSpecification:
    """A specification from plain data, with errors that name the field.

    Raises:
        SpecificationError: a field is missing, unknown or out of its domain.
    """
    return model_from(
        InputSpecification,
        data,
        origin=origin,
        whole="the specification",
        error=SpecificationError,
    )
