"""A candidate library as a record and an artifact: ids, typed values, normalised values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.digest import Value, canonical_json, digest
from dreamcheck.errors import EvidenceError, UsageError
from dreamcheck.evidence.artifacts import Artifacts
from dreamcheck.evidence.records import Library

_KINDS: dict[type, str] = {int: "int", float: "float", str: "str"}


@dataclass(frozen=True)
class LibraryTable:
    """The valid tuples of a library: ids [N], values [N][d] with their types, scaled [N, d]."""

    ids: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    scaled: np.ndarray


def library_entry(
    artifacts: Artifacts,
    *,
    spec: str,
    spec_digest: str,
    names: Sequence[str],
    ids: Sequence[str],
    values: Sequence[Sequence[Value]],
    scaled: np.ndarray,
    num_tuples: int,
    removed: Mapping[str, int],
) -> Library:
    """The library's record; its arrays are written as one artifact.

    Args:
        names: coordinates, in order, d of them.
        ids, values, scaled: valid tuples: ids [N], typed values [N][d], normalised [N, d].
        num_tuples: before the validity rules; removed: rule -> tuples it removed.

    Raises:
        UsageError: lengths that disagree, or an id given twice.
    """
    scaled = np.asarray(scaled, dtype=np.float64).reshape(len(ids), len(names))
    if len(values) != len(ids) or any(len(v) != len(names) for v in values):
        raise UsageError(f"library {spec}: values are not {len(ids)} rows of {len(names)}.")
    if len(set(ids)) != len(ids):
        raise UsageError(f"library {spec}: an id appears twice; ids must name one tuple each.")
    arrays = {"ids": np.array(list(ids), dtype=np.str_), "scaled": scaled}
    types = []
    for i in range(len(names)):
        column = [_builtin(row[i]) for row in values]
        kind = _KINDS.get(type(column[0]), "json") if column else "json"
        if any(type(v) is not type(column[0]) for v in column):
            kind = "json"
        types.append(kind)
        arrays[f"value_{i}"] = (
            np.array([canonical_json(v) for v in column], dtype=np.str_)
            if kind == "json"
            else np.array(column)
        )
    return Library.of(
        spec=spec,
        spec_digest=spec_digest,
        names=tuple(names),
        types=tuple(types),
        num_tuples=num_tuples,
        num_valid=len(ids),
        removed=dict(removed),
        ids_digest=digest(list(ids)),
        artifacts={"table": artifacts.put_arrays(arrays)},
    )


def library_table(artifacts: Artifacts, library: Library) -> LibraryTable:
    """The arrays behind a library record.

    Raises:
        EvidenceError: the artifact is missing or altered, or its ids are not the record's.
    """
    import json

    arrays = artifacts.get_arrays(library.artifacts["table"])
    ids = tuple(str(i) for i in arrays["ids"])
    if digest(list(ids)) != library.ids_digest:
        raise EvidenceError(
            f"library {library.spec}: the ids in its artifact are not the record's."
        )
    columns: list[list[Any]] = []
    for i, kind in enumerate(library.types):
        column = arrays[f"value_{i}"].tolist()
        columns.append([json.loads(v) for v in column] if kind == "json" else column)
    return LibraryTable(ids, tuple(zip(*columns, strict=True)), arrays["scaled"])


def _builtin(value: Any) -> Value:
    return value.item() if isinstance(value, np.generic) else value
