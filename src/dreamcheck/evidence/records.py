"""The record types of a study: what each must hold, and what it is called.

Every type is frozen and has kind, key, payload and digest; ``record()`` seals it for the store
and ``entry_of(record)`` reads it back. Kinds without a type here ("protocol", "guard",
"finding", "note", or any later one) are sealed with ``Record.make`` and need no migration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dreamcheck.digest import Value, digest, plain
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence.keys import DEFAULT_RESET, Interface, measurement_key
from dreamcheck.evidence.record import Record

Loss = float | None
"""A loss, or None where the measurement failed."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Part):
    """A measurement that gave no loss: an outcome of its own, neither a risk nor a gap."""

    kind: Literal["crash", "nan", "timeout"]
    reason: str


class Statistic(_Part):
    """How per-seed losses become one risk."""

    name: Literal["mean", "max", "cvar"] = "mean"
    alpha: float | None = None
    estimator: Literal["fractional", "ceil"] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.name == "cvar") != (self.alpha is not None and self.estimator is not None):
            raise ValueError("cvar, and only cvar, takes alpha and estimator")
        return self

    @property
    def tail(self) -> float | None:
        """Tail share of a cvar; None for any other statistic, which the decision rule averages."""
        return self.alpha if self.name == "cvar" else None


class Entry(_Part):
    """Base of the typed records.

    artifacts: name -> reference ("<sha256>.<extension>") of large arrays and frames.
    details: whatever else belongs to the record.
    stamps: failed guards and mixed numerics under which it was made (laws 2 and 5).
    """

    kind: ClassVar[str]
    artifacts: dict[str, str] = {}
    details: dict[str, Any] = {}
    stamps: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _builtins(cls, data: Any) -> Any:
        # NumPy numbers and arrays become builtins once, here; pydantic then checks types.
        if not isinstance(data, Mapping):
            return data
        return {k: plain(v) if not isinstance(v, BaseModel) else v for k, v in data.items()}

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """The entry from its fields.

        Raises:
            UsageError: a missing, unknown or ill-typed field, named.
        """
        try:
            return cls(**fields)
        except ValidationError as e:
            raise UsageError(f"{cls.kind} record: {_first_error(e)}") from e

    @property
    def key(self) -> str:
        """Unique name inside the kind."""
        return digest([getattr(self, name) for name in self._named_by])

    _named_by: ClassVar[tuple[str, ...]] = ()

    @property
    def payload(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return plain(self.model_dump(mode="python"))

    @property
    def digest(self) -> str:
        """The record's digest."""
        return self.record().digest

    def record(self, *, meta: Mapping[str, Any] | None = None) -> Record:
        """The entry sealed for the store; ``meta`` is kept beside it and never digested."""
        # Construction has made every value a builtin and -0.0 a 0.0.
        return Record.of_builtins(self.kind, self.key, self.model_dump(mode="python"), meta)

    def cites(self) -> tuple[tuple[str, str], ...]:
        """(kind, key) of the records this one rests on; they must be in the store before it."""
        return ()


class Library(Entry):
    """All valid tuples of an input specification. Build it with ``library_entry``.

    removed: validity rule -> number of tuples it removed.
    types: of each coordinate: "int", "float", "str", or "json" where they are mixed.
    artifacts["table"]: npz of ids [N], one column per coordinate [N], scaled [N, d].
    """

    kind: ClassVar[str] = "library"
    spec: str
    spec_digest: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    num_tuples: int
    num_valid: int
    removed: dict[str, int] = {}
    ids_digest: str

    @property
    def key(self) -> str:
        """The specification's digest."""
        return self.spec_digest


class Measurement(Entry):
    """One input on one environment seed under one interface: a loss, or a named failure.

    Make it with ``Measurement.measured`` so that its key is the law's.

    interface: digest of the Interface, which is committed first.
    input, values: the input's id and typed values; "default-reset" and None for the control.
    seed, partition: environment seed and the declared partition it is drawn from (law 3).
    loss, step_losses: by the interface's discrepancy; per forecast step, in the same unit.
    frozen_loss, frozen_step_losses: of the forecast "nothing changes".
    floor: what the environment's own sensitivity explains; floor_reason says why it is None.
    discontinuity: the environment's own jumps along the rollout, in task units.
    activity: contacts, path, progress, ... of the true rollout.
    support: nearest-neighbour percentiles against the training data: "state", "latent", ...
    readout_error: of the probe against the true state on this rollout.
    margins: decisions that hung on a small difference, name -> margin (law 5).
    """

    kind: ClassVar[str] = "measurement"
    name_: str = Field(default="", exclude=True)
    interface: str
    input: str
    values: dict[str, Value] | None
    seed: int
    partition: str
    loss: Loss = None
    step_losses: tuple[float, ...] = ()
    frozen_loss: Loss = None
    frozen_step_losses: tuple[float, ...] = ()
    floor: float | None = None
    floor_reason: str | None = None
    discontinuity: float | None = None
    activity: dict[str, float] = {}
    support: dict[str, float] = {}
    readout_error: float | None = None
    margins: dict[str, float] = {}
    failure: Failure | None = None

    @model_validator(mode="after")
    def _loss_or_failure(self) -> Self:
        if (self.loss is None) == (self.failure is None):
            raise ValueError("exactly one of loss and failure must be given")
        if self.loss is not None and not (math.isfinite(self.loss) and self.loss >= 0):
            raise ValueError(
                f"loss = {self.loss} is not a finite number >= 0; "
                "record a NaN as failure={'kind': 'nan', 'reason': ...}"
            )
        return self

    @classmethod
    def measured(
        cls, interface: Interface, *, values: Mapping[str, Value] | None, seed: int, **fields: Any
    ) -> Measurement:
        """The measurement with its key; ``fields`` are the remaining ones of the class."""
        key = measurement_key(interface, values, seed)
        return cls.of(name_=key, interface=interface.digest, values=values, seed=seed, **fields)

    @property
    def key(self) -> str:
        """The measurement key of law 4."""
        if not self.name_:
            raise UsageError("this measurement has no key: build it with Measurement.measured().")
        return self.name_

    def cites(self) -> tuple[tuple[str, str], ...]:
        """Its interface."""
        return (("interface", self.interface),)


class Evaluation(Entry):
    """One input's risk over the search seeds, and the score the search saw.

    losses[i] and measurements[i] (a measurement key) belong to seeds[i]; a failed one is None.
    risk: ``statistic`` of the losses; None when one failed. score = risk - activity_weight x
    activity_violation. frozen_risk, floor_risk: the same statistic of the frozen-world losses
    and of the floors. stratum: "in", "edge" or "out" of the training distribution (law 12).
    """

    kind: ClassVar[str] = "evaluation"
    _named_by: ClassVar[tuple[str, ...]] = (
        "interface", "spec", "input", "partition", "seeds", "statistic",
        "activity_weight", "activity_rule",
    )  # fmt: skip
    input: str
    spec: str
    interface: str
    partition: str = "search"
    seeds: tuple[int, ...]
    losses: tuple[Loss, ...]
    measurements: tuple[str, ...]
    statistic: Statistic = Statistic()
    risk: float | None
    frozen_risk: float | None = None
    floor_risk: float | None = None
    activity: dict[str, float] = {}
    activity_rule: str | None = None
    activity_weight: float = 0.0
    activity_violation: float = 0.0
    score: float | None
    stratum: Literal["in", "edge", "out"] | None = None
    failure: str | None = None

    @model_validator(mode="after")
    def _rows(self) -> Self:
        _same_length(self.seeds, losses=self.losses, measurements=self.measurements)
        failed = None in self.losses
        if failed != (self.risk is None) or failed != (self.failure is not None):
            raise ValueError("a risk is None, with the failure named, exactly when a loss is None")
        if (self.score is None) != (self.risk is None):
            raise ValueError("score and risk are None together")
        return self

    @property
    def task_active(self) -> bool:
        """Whether it paid nothing for a lack of activity; a failed measurement is not active."""
        return self.score is not None and self.score == self.risk

    def cites(self) -> tuple[tuple[str, str], ...]:
        """The measurements it aggregates."""
        return tuple(("measurement", key) for key in self.measurements)


class SearchTrace(Entry):
    """One restart of one method.

    queries: every distinct input in order, the scout first. acquisition[i] and outcomes[i]
    belong to queries[i]: None for a scout's acquisition, and for the outcome of a query that
    failed (``failures``: id -> reason). top: the shortlist, best first. exhausted: the library
    ended before the budget did.
    """

    kind: ClassVar[str] = "trace"
    _named_by: ClassVar[tuple[str, ...]] = (
        "method", "params", "spec", "interface", "restart_seed", "budget", "algorithm_version",
        "scored_by",
    )  # fmt: skip
    method: str
    params: dict[str, Any] = {}
    spec: str
    interface: str
    restart_seed: int
    budget: int
    scout: tuple[str, ...]
    queries: tuple[str, ...]
    acquisition: tuple[float | None, ...]
    outcomes: tuple[float | None, ...]
    failures: dict[str, str] = {}
    top: tuple[str, ...]
    exhausted: bool = False
    algorithm_version: str
    scored_by: str = ""

    @model_validator(mode="after")
    def _rows(self) -> Self:
        _same_length(self.queries, acquisition=self.acquisition, outcomes=self.outcomes)
        return self


class Validation(Entry):
    """One selected input on seeds that the search never saw.

    group: "shortlist", "random-shortlist", "reference" (the random inputs a finding is measured
    against) or "default-reset". control: id of the control on the same seeds.
    verdict and its numbers are filled when the whole group is known, else None; a later verdict
    is a "finding" record. Losses that are None (failed) are reported, never filled.
    """

    kind: ClassVar[str] = "validation"
    _named_by: ClassVar[tuple[str, ...]] = (
        "interface", "spec", "input", "group", "partition", "seeds", "statistic",
    )  # fmt: skip
    input: str
    spec: str
    interface: str
    group: Literal["shortlist", "random-shortlist", "reference", "default-reset"]
    partition: str = "validation"
    seeds: tuple[int, ...]
    losses: tuple[Loss, ...]
    measurements: tuple[str, ...]
    statistic: Statistic = Statistic()
    risk: float | None
    frozen_risk: float | None = None
    floor_risk: float | None = None
    search_score: float | None = None
    control: str | None = DEFAULT_RESET
    verdict: Literal["confirmed", "refuted", "inconclusive"] | None = None
    verdict_numbers: dict[str, float] = {}
    stratum: Literal["in", "edge", "out"] | None = None

    @model_validator(mode="after")
    def _held_out(self) -> Self:
        if self.partition == "search":
            raise ValueError("search seeds cannot validate (law 3)")
        _same_length(self.seeds, losses=self.losses, measurements=self.measurements)
        return self

    def cites(self) -> tuple[tuple[str, str], ...]:
        """The measurements it aggregates."""
        return tuple(("measurement", key) for key in self.measurements)


class Neighbourhood(Entry):
    """The inputs one valid edit away from an anchor, measured on fresh seeds.

    ids: the anchor's radius-``radius`` ball, the anchor included, duplicates removed.
    losses[i][j], measurements[i][j]: input ids[i] on seeds[j].
    matched: what control anchors were matched on, name -> value.
    """

    kind: ClassVar[str] = "neighbourhood"
    _named_by: ClassVar[tuple[str, ...]] = (
        "interface", "spec", "anchor", "group", "radius", "partition", "seeds", "statistic",
    )  # fmt: skip
    anchor: str
    spec: str
    interface: str
    group: Literal["top", "mid", "random"]
    radius: int = 1
    partition: str = "neighbourhood"
    ids: tuple[str, ...]
    seeds: tuple[int, ...]
    losses: tuple[tuple[Loss, ...], ...]
    measurements: tuple[tuple[str, ...], ...]
    statistic: Statistic = Statistic()
    risks: tuple[float | None, ...]
    mean_risk: float | None
    matched: dict[str, float] = {}

    @model_validator(mode="after")
    def _held_out(self) -> Self:
        if self.partition == "search":
            raise ValueError("search seeds cannot measure persistence (law 3)")
        _same_length(self.ids, losses=self.losses, measurements=self.measurements, risks=self.risks)
        for row, keys in zip(self.losses, self.measurements, strict=True):
            _same_length(self.seeds, losses=row, measurements=keys)
        return self

    def cites(self) -> tuple[tuple[str, str], ...]:
        """The measurements of every input of the ball."""
        return tuple(("measurement", key) for row in self.measurements for key in row)


TYPES: dict[str, type[Entry]] = {
    t.kind: t for t in (Library, Measurement, Evaluation, SearchTrace, Validation, Neighbourhood)
}


def entry_of(record: Record) -> Any:
    """The typed entry (or Interface) that a stored record holds.

    Raises:
        EvidenceError: a payload that does not fit its type, the field named.
        UsageError: a kind without a type; read ``record.payload`` instead.
    """
    if record.kind == "interface":
        return Interface.from_payload(record.payload)
    if record.kind not in TYPES:
        raise UsageError(f"kind {record.kind!r} has no type; read record.payload.")
    fields = dict(record.payload)
    if record.kind == "measurement":
        fields["name_"] = record.key
    try:
        return TYPES[record.kind](**fields)
    except ValidationError as e:
        raise EvidenceError(f"{record.kind} {record.key}: {_first_error(e)}") from e


def _same_length(rows: tuple[Any, ...], **others: tuple[Any, ...]) -> None:
    for name, other in others.items():
        if len(other) != len(rows):
            raise ValueError(f"{name} has {len(other)} entries for {len(rows)} rows")


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(p) for p in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    value = "" if isinstance(first["input"], Mapping) else f" (got {first['input']!r:.80})"
    return f"{place + ': ' if place else ''}{first['msg']}{value}{more}"
