"""Recorded windows as inputs: their typed coordinates and the open-loop error on recorded actions.

Coordinates are states at the last observed frame and metadata, binned or categorical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.data.windows import Windows
from dreamcheck.errors import UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.protocol import WorldModel
from dreamcheck.progress import Progress

MAX_CATEGORIES = 12
BOOKKEEPING = ("render_time", "id", "index", "timestamp")
"""Columns that say nothing about what happened (a clock, a row's number, the step in other units).
Slicing by them costs hypotheses; naming one asks for it all the same."""


@dataclass(frozen=True, eq=False)
class Coordinate:
    """One typed column of every window.

    kind: "binned" (numbers, cut at quantiles of the searched half) or "categorical".
    values: [N] numbers or text, at the window's last observed frame.
    """

    name: str
    kind: Literal["binned", "categorical"]
    unit: str
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class WindowRisks:
    """Open-loop errors of N windows. error, frozen: [N], mean L2 over the forecast, latent units."""

    error: np.ndarray
    frozen: np.ndarray
    episodes: np.ndarray
    frames: np.ndarray
    coordinates: tuple[Coordinate, ...]
    horizon: int
    interface: str
    skipped: tuple[str, ...] = ()


def coordinates_of(
    episodes: Episodes,
    where: np.ndarray,
    frames: np.ndarray,
    *,
    columns: Sequence[str] | None = None,
    skipped: list[str] | None = None,
) -> tuple[Coordinate, ...]:
    """State and metadata columns at given frames.

    Whole-number metadata with at most 12 values and all text are categorical; the rest is binned.

    Args:
        where, frames: [N] episode and frame numbers.
        columns: names to use; all usable ones by default.
        skipped: told which columns were left out, and why.

    Raises:
        UsageError: a name that does not exist, or nothing to slice by.
    """
    extra = getattr(episodes, "extra", {}) or {}
    read = getattr(episodes, "extra_of", None)
    known = [c.name for c in episodes.columns] + [n for n in extra]
    for name in columns or ():
        if name not in known:
            raise UsageError(f"there is no column {name!r} to slice by; there are {known}.")
    out: list[Coordinate] = []
    skipped = [] if skipped is None else skipped
    order = np.argsort(where, kind="stable")
    groups = [(int(e), order[where[order] == e]) for e in np.unique(where)]
    if episodes.columns:
        states = np.zeros((len(where), len(episodes.columns)))
        for e, rows in groups:
            states[rows] = np.asarray(episodes.state(e), dtype=np.float64)[frames[rows]]
        for i, c in enumerate(episodes.columns):
            if columns is None or c.name in columns:
                out.append(Coordinate(c.name, "binned", c.unit, states[:, i]))
    for name in extra:
        if read is None or (columns is not None and name not in columns):
            continue
        if columns is None and name in BOOKKEEPING:
            skipped.append(f"{name}: bookkeeping; --column {name} slices by it")
            continue
        parts: list[Any] = [None] * len(where)
        usable = True
        for e, rows in groups:
            values = np.asarray(read(name, e))
            values = values.reshape(len(values), -1) if values.ndim > 1 else values[:, None]
            if values.shape[1] != 1 or values.dtype.kind not in "fiubUSO":
                usable = False
                break
            for row, value in zip(rows.tolist(), values[frames[rows], 0].tolist(), strict=True):
                parts[row] = value
        if not usable:
            if columns is not None:
                raise UsageError(f"column {name!r} has several numbers per frame; it cannot slice.")
            skipped.append(
                f"{name}: not one number or text per frame; as state in a mapping file (--mapping) "
                "each of its numbers slices"
            )
            continue
        column = np.array(parts)
        if column.dtype.kind in "iub" and len(np.unique(column)) <= MAX_CATEGORIES:
            out.append(Coordinate(name, "categorical", "", column.astype(str)))
        elif column.dtype.kind in "fiub":
            out.append(Coordinate(name, "binned", "", column.astype(np.float64)))
        elif len(np.unique(column.astype(str))) <= MAX_CATEGORIES:
            out.append(Coordinate(name, "categorical", "", column.astype(str)))
        elif columns is not None:
            raise UsageError(
                f"column {name!r} has {len(np.unique(column.astype(str)))} different texts; at most "
                f"{MAX_CATEGORIES} make slices."
            )
        else:
            skipped.append(f"{name}: more than {MAX_CATEGORIES} different texts")
    if not out:
        raise UsageError(
            "these data have no column to slice by: no state and no metadata with one value per "
            "frame. Name state columns in a mapping file (--mapping)."
        )
    return tuple(out)


def window_risks(
    model: WorldModel,
    episodes: Episodes,
    *,
    horizon: int = 5,
    history: int | None = None,
    windows: int = 2000,
    columns: Sequence[str] | None = None,
    seed: int = 0,
    tile: int = 64,
    progress: Progress | None = None,
) -> WindowRisks:
    """Open-loop error of recorded windows with their coordinates.

    Args:
        windows: at most, drawn without replacement with ``seed``.
        history: observed frames; as many as the model reads by default.
    """
    from dreamcheck.training.measures import draw_windows, forecast

    history = model.history_max if history is None else history
    skip = model.conventions.frameskip
    lengths = np.asarray(episodes.lengths)
    clean = [
        e for e in range(len(lengths)) if not np.isnan(np.asarray(episodes.actions(e))[:-1]).any()
    ]
    skipped: list[str] = []
    if len(clean) < len(lengths):
        skipped.append(
            f"{len(lengths) - len(clean)} of {len(lengths)} episodes: a NaN action inside; repair "
            "or split them"
        )
    need = (history + horizon - 1) * skip + 1
    short = int((lengths[clean] < need).sum())
    if short:
        skipped.append(
            f"{short} of {len(lengths)} episodes: shorter than a window ({need} frames: {history} "
            f"observed and {horizon} forecast at frameskip {skip})"
        )
    cut = Windows(episodes, num_frames=history + horizon, frameskip=skip, subset=clean)
    index = draw_windows(cut, windows, seed=seed, role="slices")
    done = forecast(Runner(model, tile=tile), cut, index, history=history, progress=progress)
    error = (done.imagined - done.real).norm(dim=2).mean(dim=1).double().numpy()
    frozen = (done.last.unsqueeze(1) - done.real).norm(dim=2).mean(dim=1).double().numpy()
    where, bases = cut.locate(index)
    at = bases + (history - 1) * skip
    return WindowRisks(
        error=error,
        frozen=frozen,
        episodes=where,
        frames=at,
        coordinates=coordinates_of(episodes, where, at, columns=columns, skipped=skipped),
        horizon=horizon,
        interface=f"latent {model.identity} x L2 x mean over {horizon}",
        skipped=tuple(skipped),
    )
