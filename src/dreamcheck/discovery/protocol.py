"""Search protocols as TOML: methods, budgets, restarts, thresholds and the ledger of seeds.

A search protocol is how a library is searched and how searches are compared. It names no model: a
study's protocol (``study.config``) does, and may take its searches from one of these.
Source: spec/discovery.md sections 3, 5 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dreamcheck.discovery.methods import method_named
from dreamcheck.discovery.parameters import SearchParameters, parameters_from
from dreamcheck.errors import UsageError
from dreamcheck.evidence.protocol import check_disjoint
from dreamcheck.presets import model_from, parse_toml, preset_names, preset_text

PACKAGE = "dreamcheck.discovery.protocols"
DEFAULT = "default"
PARTITIONS = ("search", "validation", "neighbourhood")
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def whole_numbers(given: Any) -> tuple[int, ...]:
    """Whole numbers from a list, or from text of ranges: "0-3, 8" is 0, 1, 2, 3, 8.

    Raises:
        ValueError: something else, a range that runs backwards, or a number given twice.
    """
    if isinstance(given, str):
        numbers: list[int] = []
        for part in given.split(","):
            match = _RANGE.fullmatch(part)
            if match is None:
                raise ValueError(f"{part.strip()!r} is no number and no range like 0-7")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"the range {part.strip()!r} runs backwards")
            numbers += range(first, last + 1)
    elif isinstance(given, (list, tuple)) and all(type(n) is int and n >= 0 for n in given):
        numbers = list(given)
    else:
        raise ValueError(f"{given!r} is neither a list of whole numbers nor a range like '0-7'")
    seen: set[int] = set()
    for n in numbers:
        if n in seen:
            raise ValueError(f"{n} is given twice")
        seen.add(n)
    return tuple(numbers)


Numbers = Annotated[tuple[int, ...], BeforeValidator(whole_numbers)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ledger(_Part):
    """Seeds by what they are for.

    restart: one search per seed and method; they order the scout and break ties, and say nothing
        about the environment.
    search, validation, neighbourhood: environment seeds, pairwise disjoint (law 3).
    """

    restart: Numbers = Field(min_length=1)
    search: Numbers = ()
    validation: Numbers = ()
    neighbourhood: Numbers = ()

    @model_validator(mode="after")
    def _disjoint(self) -> Ledger:
        try:
            check_disjoint(self.environment)
        except UsageError as e:
            raise ValueError(str(e)) from e
        return self

    @property
    def environment(self) -> dict[str, tuple[int, ...]]:
        """The partitions of environment seeds that are declared."""
        return {name: seeds for name in PARTITIONS if (seeds := getattr(self, name))}


class Exceptional(_Part):
    """Restarts whose parameters differ: fields that replace those of the others."""

    restart: Numbers = Field(min_length=1)
    parameters: dict[str, Any]


class SearchProtocol(_Part):
    """How a library is searched, and how searches of it are compared.

    specification: the library's; None for any.
    methods: run from every restart seed; primary: the one whose advantage is tested.
    budgets: distinct inputs per run, increasing.
    parameters: {"preset": a named column, single fields}, the same for every method.
    thresholds: integers over 100; none: the scores at which the table's own top 5, 2 and 1 % begin.
    averaged: thresholds of the threshold-averaged hit rate; none: those of the top 1 to 16 %.
    top_percents: q of the reference top sets.
    activity: the rule by which task activity enters the scores ("pusht", "dino-pusht"); None where
        the score is the risk. A stored table's scores hold it already; a study applies it.
    scale, unit: stored scores times ``scale`` are in ``unit``.
    exceptions: restarts with other parameters.
    """

    name: str = Field(min_length=1)
    title: str
    source: str
    specification: str | None = None
    methods: tuple[str, ...] = Field(min_length=1)
    primary: str
    budgets: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1)
    parameters: dict[str, Any] = Field(default_factory=dict)
    thresholds: Numbers = ()
    averaged: Numbers = ()
    top_percents: tuple[Annotated[int, Field(ge=1, le=100)], ...] = Field((5,), min_length=1)
    activity: Literal["pusht", "dino-pusht"] | None = None
    scale: float = Field(1.0, gt=0)
    unit: str = ""
    seeds: Ledger
    exceptions: tuple[Exceptional, ...] = ()

    @model_validator(mode="after")
    def _methods_exist(self) -> SearchProtocol:
        for name in self.methods:
            try:
                method_named(name)
            except UsageError as e:
                raise ValueError(str(e)) from e
        if len(set(self.methods)) != len(self.methods):
            raise ValueError(f"methods repeat: {', '.join(self.methods)}")
        if self.primary not in self.methods:
            raise ValueError(
                f"primary = {self.primary!r} is not among the methods {', '.join(self.methods)}"
            )
        return self

    @model_validator(mode="after")
    def _numbers_fit(self) -> SearchProtocol:
        if list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets = {list(self.budgets)} must be strictly increasing")
        exceptional: set[int] = set()
        for e in self.exceptions:
            for seed in e.restart:
                if seed not in self.seeds.restart:
                    raise ValueError(f"exceptions name restart {seed}, which is no restart seed")
                if seed in exceptional:
                    raise ValueError(f"restart {seed} is in two exceptions")
                exceptional.add(seed)
        try:
            self.exceptional_parameters  # noqa: B018
        except (UsageError, TypeError) as e:
            raise ValueError(str(e)) from e
        return self

    @property
    def search_parameters(self) -> SearchParameters:
        """The column of every restart that is no exception."""
        return parameters_from(self.parameters, origin=f"{self.name}: parameters")

    @property
    def exceptional_parameters(self) -> dict[int, SearchParameters]:
        """Restart seed -> its parameters, for the exceptions."""
        base = self.search_parameters
        return {
            seed: parameters_from(e.parameters, origin=f"{self.name}: exceptions", base=base)
            for e in self.exceptions
            for seed in e.restart
        }


def protocol_names() -> tuple[str, ...]:
    """Names of the search protocols that ship, sorted."""
    return preset_names(PACKAGE)


def protocol_text(name: str) -> str:
    """A shipped protocol, or a file's, as the TOML it is.

    Raises:
        UsageError: no such name or file.
    """
    return preset_text(PACKAGE, name, kind="search protocol")[0]


def get_protocol(name: str) -> SearchProtocol:
    """The search protocol that ships under a name, or the one in a TOML file.

    Raises:
        UsageError: no such name or file, or a field that is missing, unknown or out of its domain.
    """
    text, origin = preset_text(PACKAGE, name, kind="search protocol")
    return protocol_from(parse_toml(text, origin=origin), origin=origin)


def protocol_from(data: Mapping[str, Any], *, origin: str = "data") -> SearchProtocol:
    """A search protocol from plain data, with errors that name the field."""
    return model_from(SearchProtocol, data, origin=origin, whole="the protocol")
