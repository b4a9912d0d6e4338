"""Canonical JSON and SHA-256: one way to name content, used by every room."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Value = int | float | str
"""One typed value of an input, as specifications, simulators and records hold it."""


def plain(value: Any) -> Any:
    """The value as JSON-ready builtins: NumPy scalars and arrays, tuples, mappings, paths refused.

    Non-finite floats become the strings "nan", "inf", "-inf", so that canonical JSON stays valid
    JSON and two NaNs have one spelling.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.bool_):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return "nan"
        if math.isinf(number):
            return "inf" if number > 0 else "-inf"
        # -0.0 and 0.0 are one value: they compare equal and must have one name.
        return 0.0 if number == 0.0 else number
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="python"))
    raise TypeError(f"{type(value).__name__} has no canonical JSON form: {value!r}")


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, shortest float repr, ASCII."""
    return json.dumps(
        plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def sha256_bytes(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return sha256_bytes(canonical_json(value).encode("ascii"))


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over named arrays: name, dtype, shape and bytes, in order of name.

    Byte order is fixed to little-endian, so the digest is the same on every machine.
    """
    h = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        h.update(canonical_json([name, array.dtype.str.lstrip("<>|="), list(array.shape)]).encode())
        h.update(array.tobytes())
    return h.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces."""
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            h.update(piece)
    return h.hexdigest()
