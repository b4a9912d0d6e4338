"""Scaler statistics: fitted on data with the rule a family was trained under, or read from a file."""

from __future__ import annotations

import json
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.errors import UsageError
from dreamcheck.models.importing.facts import ColumnStatistics

MIN_STD = 1e-8
MAX_BYTES = 1 << 20


def fit_column(
    rows: Iterable[np.ndarray], *, column: str, divisor: Literal["n", "n-1"]
) -> ColumnStatistics:
    """Mean and deviation per dimension over all rows without a NaN, in one pass of two sweeps' accuracy.

    Args:
        rows: [L, D] arrays, one per episode.
        divisor: "n" for the population deviation, "n-1" for the sample's.

    Raises:
        UsageError: too few rows without NaN.

    Source: spec/protocol.md section 3.1 (population); spec/viscore.md section 15 (n - 1).
    """
    num = nan_rows = 0
    mean = m2 = np.zeros(0)
    for part in rows:
        part = np.asarray(part, dtype=np.float64)
        good = part[~np.isnan(part).any(axis=1)]
        nan_rows += len(part) - len(good)
        if not len(good):
            continue
        # Chan's update: exact over blocks, so a large file need not fit in memory.
        part_mean = good.mean(axis=0)
        part_m2 = ((good - part_mean) ** 2).sum(axis=0)
        if num == 0:
            num, mean, m2 = len(good), part_mean, part_m2
            continue
        delta = part_mean - mean
        total = num + len(good)
        mean = mean + delta * (len(good) / total)
        m2 = m2 + part_m2 + delta**2 * (num * len(good) / total)
        num = total
    if num < 2:
        raise UsageError(
            f"column {column!r} has {num} row(s) without NaN ({nan_rows} with); statistics need at "
            "least 2."
        )
    std = np.sqrt(m2 / (num if divisor == "n" else num - 1))
    constant = np.flatnonzero(std < MIN_STD)
    # A constant dimension is only centred.
    std = np.where(std < MIN_STD, 1.0, std)
    return ColumnStatistics(
        column=column,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        divisor=divisor,
        rows=num,
        nan_rows=nan_rows,
        constant_dims=tuple(int(i) for i in constant),
    )


def fit_statistics(
    episodes: Episodes, *, divisor: Literal["n", "n-1"]
) -> tuple[ColumnStatistics, ...]:
    """Statistics of the actions and, where the data have one, of the state."""
    numbers = range(len(episodes.lengths))
    out = [fit_column((episodes.actions(e) for e in numbers), column="action", divisor=divisor)]
    if episodes.columns:
        out.append(
            fit_column((episodes.state(e) for e in numbers), column="state", divisor=divisor)
        )
    return tuple(out)


def _load(path: Path) -> Any:
    try:
        if path.suffix == ".npz":
            # A small archive may unpack to any size: sizes are looked at first.
            with zipfile.ZipFile(path) as z:
                if (total := sum(i.file_size for i in z.infolist())) > MAX_BYTES:
                    raise UsageError(
                        f"{path} unpacks to {total} bytes; statistics are a few numbers. Keep "
                        "action_mean and action_std alone."
                    )
            with np.load(path, allow_pickle=False) as arrays:
                return {k: arrays[k].tolist() for k in arrays.files}
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is {path.stat().st_size} bytes long; statistics are not.")
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, KeyError, RecursionError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is no readable statistics file: {error}.") from None


def read_statistics(path: str | Path) -> ColumnStatistics:
    """Action statistics from a JSON, TOML or NPZ file with ``action_mean`` and ``action_std``.

    Optional keys: ``divisor`` ("n" or "n-1"), ``rows``, ``nan_rows``.

    Raises:
        UsageError: missing keys, widths that differ, or a deviation that is not positive.
    """
    path = Path(path)
    raw = _load(path)
    if isinstance(raw, dict) and isinstance(raw.get("action"), dict):
        inner = raw["action"]
        raw = {**raw, "action_mean": inner.get("mean"), "action_std": inner.get("std")}
    if not isinstance(raw, dict) or raw.get("action_mean") is None or raw.get("action_std") is None:
        held = ", ".join(sorted(raw)) if isinstance(raw, dict) else type(raw).__name__
        raise UsageError(
            f"{path} needs action_mean and action_std, one number per raw action dimension; it "
            f"holds {held}."
        )
    try:
        mean = np.asarray(raw["action_mean"], dtype=np.float64).reshape(-1)
        std = np.asarray(raw["action_std"], dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: action_mean and action_std must be numbers ({error}).") from None
    if mean.shape != std.shape or not len(mean) or not np.isfinite([mean, std]).all():
        raise UsageError(
            f"{path}: action_mean has {len(mean)} numbers and action_std {len(std)}; as many "
            "finite ones are needed in both."
        )
    if (std <= 0).any():
        raise UsageError(
            f"{path}: action_std = {std.tolist()} must be positive; for a dimension that never "
            "changes write 1."
        )
    divisor = raw.get("divisor", "n")
    if divisor not in ("n", "n-1"):
        raise UsageError(f'{path}: divisor = {divisor!r} is neither "n" nor "n-1".')
    return ColumnStatistics(
        column="action",
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        divisor=divisor,
        rows=int(raw.get("rows", 0)),
        nan_rows=int(raw.get("nan_rows", 0)),
    )
