"""Libraries: every valid tuple of a specification, with stable ids and normalised coordinates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dreamcheck.digest import Value, canonical_json
from dreamcheck.discovery.rules import RuleFunction, checked, resolve
from dreamcheck.discovery.specification import Coordinate, InputSpecification
from dreamcheck.errors import SpecificationError
from dreamcheck.streams import stream

CHUNK = 1 << 20
MAX_TUPLES = 100_000_000
ID_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Input:
    """One admissible tuple of a library, before anything has run it.

    id: stable name, a hash of the specification's identity and the typed values.
    values: one per coordinate, in the order and units of the specification.
    scaled: the normalised representation psi(x); ordered coordinates in [0, 1], labels as
        indicators (see ``Library.psi``).
    """

    id: str
    values: tuple[Value, ...]
    scaled: tuple[float, ...]


class Library:
    """All valid tuples of a specification, in a fixed order.

    Made by ``Library.build``; never changed afterwards. An *index* is a position in this library
    and is meant for arrays; an *id* is what records keep.

    specification: what it was built from.
    num_tuples: tuples before any rule.
    removed: rule label -> tuples it removed, in the order in which the rules ran; a subsample
        counts as a rule.
    digits: level of every coordinate, [N, d] (index into ``coordinates[c].levels``).
    """

    def __init__(
        self,
        specification: InputSpecification,
        *,
        codes: np.ndarray,
        num_tuples: int,
        removed: Mapping[str, int],
    ) -> None:
        self.specification = specification
        self.coordinates: tuple[Coordinate, ...] = specification.coordinates
        self.names = tuple(c.name for c in self.coordinates)
        self.levels = tuple(c.levels for c in self.coordinates)
        self.radices = np.array([len(v) for v in self.levels], dtype=np.int64)
        self.strides = _strides(self.radices)
        self.num_tuples = num_tuples
        self.removed = dict(removed)
        self.codes = codes
        widest = int(self.radices.max())
        dtype = np.uint8 if widest <= 256 else np.uint16 if widest <= 65536 else np.int64
        self.digits = np.empty((len(codes), len(self.radices)), dtype=dtype)
        for c, (stride, radix) in enumerate(zip(self.strides, self.radices, strict=True)):
            self.digits[:, c] = codes // stride % radix
        self.digits.flags.writeable = False
        self._id_prefix = f'["{specification.identity}",['
        self._level_json = [[canonical_json(v) for v in levels] for levels in self.levels]
        self._ids: dict[int, str] = {}
        self._index: dict[str, int] = {}
        self._all_ids = False
        self._shuffled: dict[int, np.ndarray] = {}

    @classmethod
    def build(
        cls,
        specification: InputSpecification,
        *,
        task_rules: Mapping[str, RuleFunction] | None = None,
    ) -> Library:
        """Every tuple that passes every rule.

        Args:
            specification: coordinates and rules.
            task_rules: the task's own rules by name (``task.rules()``).

        Raises:
            SpecificationError: an unknown rule, more than 10^8 tuples, a subsample larger than
                what is left, or no valid tuple; the rule that removed the last ones is named.
        """
        levels = [c.levels for c in specification.coordinates]
        radices = np.array([len(v) for v in levels], dtype=np.int64)
        num_tuples = int(np.prod([float(r) for r in radices]))
        if num_tuples > MAX_TUPLES:
            raise SpecificationError(
                f"specification {specification.name!r} has {num_tuples:.3g} tuples before its "
                f"rules; a library holds at most {MAX_TUPLES:.0e}. Use fewer values per coordinate."
            )
        rules = resolve(specification.rules, specification=specification, task_rules=task_rules)
        strides = _strides(radices)
        arrays = [np.array(v) for v in levels]
        removed = {label: 0 for label, _ in rules}
        kept: list[np.ndarray] = []
        for start in range(0, num_tuples, CHUNK):
            codes = np.arange(start, min(start + CHUNK, num_tuples), dtype=np.int64)
            for label, rule in rules:
                if not len(codes):
                    break
                columns = {
                    c.name: values[codes // stride % len(values)]
                    for c, values, stride in zip(
                        specification.coordinates, arrays, strides, strict=True
                    )
                }
                mask = checked(rule(columns), label=label, size=len(codes))
                removed[label] += int(len(codes) - mask.sum())
                codes = codes[mask]
            kept.append(codes)
        codes = np.concatenate(kept)
        if not len(codes):
            raise SpecificationError(
                f"specification {specification.name!r} has no valid tuple: of {num_tuples} the "
                f"rules removed {_counts(removed)}, the last by {_last(removed, num_tuples)!r}. "
                "Widen the coordinates or relax that rule."
            )
        if specification.subsample is not None:
            size, seed = specification.subsample.size, specification.subsample.seed
            if size > len(codes):
                raise SpecificationError(
                    f"specification {specification.name!r} samples {size} tuples but only "
                    f"{len(codes)} are valid; ask for at most that many."
                )
            chosen = np.sort(np.random.default_rng(seed).permutation(len(codes))[:size])
            removed[f"subsample(seed {seed})"] = int(len(codes) - size)
            codes = codes[chosen]
        if specification.shuffle_seed is not None:
            rng = np.random.default_rng(specification.shuffle_seed)
            codes = codes[rng.permutation(len(codes))]
        return cls(specification, codes=codes, num_tuples=num_tuples, removed=removed)

    def __len__(self) -> int:
        return len(self.codes)

    # Names ---------------------------------------------------------------------------------

    def id(self, index: int) -> str:
        """Stable id of one input: SHA-256 of [identity, values], its first 20 digits."""
        index = int(index)
        found = self._ids.get(index)
        if found is None:
            found = self._hash(self.digits[index].tolist())
            self._ids[index] = found
            self._index[found] = index
        return found

    def ids(self, indices: Iterable[int] | None = None) -> list[str]:
        """Ids of the indices; of the whole library when None."""
        if indices is not None:
            return [self.id(i) for i in indices]
        if not self._all_ids:
            for index, row in enumerate(self.digits.tolist()):
                if index not in self._ids:
                    self._index[self._hash(row)] = index
            self._ids = {index: name for name, index in self._index.items()}
            self._all_ids = True
        return [self._ids[i] for i in range(len(self))]

    def index(self, input_id: str) -> int:
        """Position of an id.

        Raises:
            SpecificationError: no valid input has that id.
        """
        found = self._index.get(input_id)
        if found is None and not self._all_ids:
            self.ids()
            found = self._index.get(input_id)
        if found is None:
            raise SpecificationError(
                f"no input of {self.specification.name!r} has the id {input_id!r}. Ids change with "
                "the specification's name, coordinates and rules; was the record made from "
                "another version?"
            )
        return found

    def indices(self, ids: Iterable[str]) -> np.ndarray:
        """Positions of the ids, int64."""
        return np.array([self.index(i) for i in ids], dtype=np.int64)

    def _hash(self, digits: Sequence[int]) -> str:
        text = ",".join([json[v] for json, v in zip(self._level_json, digits, strict=True)])
        return hashlib.sha256((self._id_prefix + text + "]]").encode()).hexdigest()[:ID_LENGTH]

    # Values --------------------------------------------------------------------------------

    def values(self, index: int) -> dict[str, Value]:
        """Coordinate name -> value of one input, in the specification's order."""
        row = self.digits[int(index)].tolist()
        return {n: levels[v] for n, levels, v in zip(self.names, self.levels, row, strict=True)}

    def input(self, input_id: str) -> Input:
        """The record of one input."""
        index = self.index(input_id)
        return Input(
            id=input_id,
            values=tuple(self.values(index).values()),
            scaled=tuple(self.psi_rows(np.array([index]))[0].tolist()),
        )

    def column(self, name: str) -> np.ndarray:
        """Values of one coordinate over the library, [N]."""
        if name not in self.names:
            self.specification.coordinate(name)
        c = self.names.index(name)
        return np.array(self.levels[c])[self.digits[:, c]]

    def find(self, values: Mapping[str, Value]) -> int:
        """Index of the tuple with these values.

        Raises:
            SpecificationError: a coordinate is missing or unknown, a value is outside its
                domain, or the tuple broke a rule.
        """
        for name in values:
            self.specification.coordinate(name)
        code = 0
        for name, levels, stride in zip(self.names, self.levels, self.strides, strict=True):
            if name not in values:
                raise SpecificationError(f"no value for coordinate {name!r} of {list(self.names)}.")
            value = values[name]
            if value not in levels:
                raise SpecificationError(
                    f"{name} = {value!r} is not admissible; choose one of {list(levels)}."
                )
            code += levels.index(value) * int(stride)
        position = self.positions(np.array([code]))[0]
        if position < 0:
            raise SpecificationError(
                f"{dict(values)} is not in {self.specification.name!r}: one of "
                f"{list(self.removed)} removed it."
            )
        return int(position)

    def positions(self, codes: np.ndarray) -> np.ndarray:
        """Index of each mixed-radix code, -1 where that tuple is not valid."""
        order, ordered = self._sorted_codes
        at = np.minimum(np.searchsorted(ordered, codes), len(ordered) - 1)
        found = ordered[at] == codes
        return np.where(found, at if order is None else order[at], -1)

    @cached_property
    def _sorted_codes(self) -> tuple[np.ndarray | None, np.ndarray]:
        if self.specification.shuffle_seed is None:
            return None, self.codes
        order = np.argsort(self.codes)
        return order, self.codes[order]

    # Representation ------------------------------------------------------------------------

    @cached_property
    def level_psi(self) -> tuple[np.ndarray, ...]:
        """psi of every level, per coordinate: [levels, 1] ordered, [levels, levels] categorical.

        Ordered values are min-max normalised over the values that occur in the valid library; a
        constant coordinate is 0. A label is a row of an identity scaled by 1/sqrt(2), so that
        two different labels are as far apart as the ends of a grid and no label is between
        others: declaring them in another order changes no distance.
        """
        tables = []
        for c, (coordinate, levels) in enumerate(zip(self.coordinates, self.levels, strict=True)):
            if not coordinate.ordered:
                tables.append(np.eye(len(levels)) * np.sqrt(0.5))
                continue
            numbers = np.array(levels, dtype=np.float64)
            present = numbers[np.bincount(self.digits[:, c], minlength=len(levels)) > 0]
            low, high = float(present[0]), float(present[-1])
            scaled = (numbers - low) / (high - low) if high > low else np.zeros(len(levels))
            tables.append(scaled[:, None])
        return tuple(tables)

    @cached_property
    def level_distances(self) -> tuple[np.ndarray, ...]:
        """Squared psi distance between two levels, per coordinate: float64 [levels, levels]."""
        tables = []
        for coordinate, psi in zip(self.coordinates, self.level_psi, strict=True):
            if coordinate.ordered:
                tables.append((psi - psi.T) ** 2)
            else:
                tables.append(1.0 - np.eye(len(psi)))
        return tuple(tables)

    def psi_rows(self, indices: np.ndarray) -> np.ndarray:
        """psi of the inputs, [n, D]; one column per ordered coordinate, one per label."""
        digits = self.digits[indices]
        return np.concatenate([t[digits[:, c]] for c, t in enumerate(self.level_psi)], axis=1)

    @cached_property
    def psi(self) -> np.ndarray:
        """psi of every input, float64 [N, D]."""
        return self.psi_rows(np.arange(len(self)))

    # Orders --------------------------------------------------------------------------------

    def shuffled(self, seed: int) -> np.ndarray:
        """The order in which the random method asks, for one restart seed: a permutation [N].

        Its first entries are the scout that every method of a paired comparison shares.
        """
        found = self._shuffled.get(seed)
        if found is None:
            found = stream(seed, "discovery-scout").permutation(len(self))
            found.flags.writeable = False
            if len(self._shuffled) >= 4:
                self._shuffled.pop(next(iter(self._shuffled)))
            self._shuffled[seed] = found
        return found

    def scout(self, seed: int, size: int) -> list[str]:
        """Ids of the first ``size`` inputs of a restart, common to every method."""
        return self.ids(self.shuffled(seed)[:size].tolist())

    @cached_property
    def nominal(self) -> str | None:
        """Id of the tuple nearest in grid steps to the declared initial values; ties by id.

        Between two grid values a declared value counts its fraction of the step; another label
        is one step away. None when the specification declares no initial values.
        """
        declared = self.specification.nominal
        if not declared:
            return None
        steps = np.zeros(len(self))
        for c, (coordinate, levels) in enumerate(zip(self.coordinates, self.levels, strict=True)):
            if coordinate.name not in declared:
                continue
            value = declared[coordinate.name]
            if coordinate.ordered:
                if isinstance(value, str):
                    raise SpecificationError(
                        f"nominal {coordinate.name} = {value!r} is text, but the coordinate is "
                        f"{coordinate.kind!r}."
                    )
                at = np.interp(float(value), np.array(levels, dtype=float), np.arange(len(levels)))
                per_level = np.abs(np.arange(len(levels)) - at)
            else:
                per_level = np.array([float(v != value) for v in levels])
            steps += per_level[self.digits[:, c]]
        nearest = np.flatnonzero(steps <= steps.min() + 1e-9)
        return min(self.ids(nearest.tolist()))

    # Description ---------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What ``dreamcheck inputs NAME --json`` prints."""
        s = self.specification
        return {
            "name": s.name,
            "task": s.task,
            "title": s.title,
            "source": s.source,
            "identity": s.identity,
            "coordinates": [
                {"name": c.name, "kind": c.kind, "unit": c.unit, "values": list(c.values)}
                for c in s.coordinates
            ],
            "tuples": self.num_tuples,
            "removed": dict(self.removed),
            "valid": len(self),
            "nominal": None if self.nominal is None else self.values(self.index(self.nominal)),
        }


def _strides(radices: np.ndarray) -> np.ndarray:
    """Weight of each digit; the last coordinate runs fastest."""
    return np.append(np.cumprod(radices[:0:-1])[::-1], 1).astype(np.int64)


def _counts(removed: Mapping[str, int]) -> str:
    return ", ".join(f"{n} ({label})" for label, n in removed.items())


def _last(removed: Mapping[str, int], num_tuples: int) -> str:
    """The rule after which nothing was left."""
    left = num_tuples
    for label, count in removed.items():
        left -= count
        if left == 0:
            return label
    raise AssertionError("an empty library was emptied by some rule")
