"""What recorded data hold, at a glance: lengths, missing numbers by place, ranges, a contact sheet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.data.episodes import Episodes
from dreamcheck.digest import plain, sha256_bytes
from dreamcheck.errors import UsageError
from dreamcheck.streams import stream


@dataclass(frozen=True, slots=True)
class NumberRange:
    """One dimension over all rows without NaN. std: divisor n. rows: how many went in."""

    name: str
    unit: str
    minimum: float
    maximum: float
    mean: float
    std: float
    rows: int
    nan_rows: int

    @property
    def constant(self) -> bool:
        """Whether it never changes."""
        return self.rows > 0 and self.minimum == self.maximum


@dataclass(frozen=True, slots=True)
class MissingActions:
    """Action rows with a NaN, by place in the episode: only ``at_end`` is expected."""

    at_start: int
    at_end: int
    elsewhere: int
    first_elsewhere: tuple[int, int] | None = None

    @property
    def clean(self) -> bool:
        """Whether only last rows are missing."""
        return self.at_start == 0 and self.elsewhere == 0


@dataclass(frozen=True)
class DataSummary:
    """Everything ``dreamcheck data PATH`` shows.

    lengths: frames per episode, [E]. frame_shape: (3, H, W), or None without pictures.
    contact_sheet: PNG bytes, rows are episodes and columns are times; None without pictures.
    """

    source: str
    lengths: np.ndarray
    actions: tuple[NumberRange, ...]
    state: tuple[NumberRange, ...]
    missing: MissingActions
    frame_shape: tuple[int, ...] | None
    extra: tuple[str, ...]
    notes: tuple[str, ...]
    contact_sheet: bytes | None
    contact_episodes: tuple[int, ...]

    @property
    def num_frames(self) -> int:
        """Frames in all."""
        return int(self.lengths.sum())

    def num_windows(self, *, num_frames: int, frameskip: int) -> int:
        """Clips of that many model frames the episodes hold."""
        return int(np.maximum(self.lengths - (num_frames - 1) * frameskip, 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the picture by its digest."""
        lengths = self.lengths
        return {
            "source": self.source,
            "episodes": len(lengths),
            "frames": self.num_frames,
            "lengths": {
                "min": int(lengths.min()),
                "median": float(np.median(lengths)),
                "max": int(lengths.max()),
            },
            "action": [_range(r) for r in self.actions],
            "state": [_range(r) for r in self.state],
            "nan_action_rows": {
                "start": self.missing.at_start,
                "end": self.missing.at_end,
                "elsewhere": self.missing.elsewhere,
            },
            "frame_shape": None if self.frame_shape is None else list(self.frame_shape),
            "extra": list(self.extra),
            "notes": list(self.notes),
            "contact_sheet": None
            if self.contact_sheet is None
            else sha256_bytes(self.contact_sheet),
        }

    def lines(self) -> list[str]:
        """Plain text for a console."""
        n = self.lengths
        out = [
            f"{self.source}: {len(n)} episodes, {self.num_frames:,} frames, lengths {n.min()} to "
            f"{n.max()} (median {np.median(n):g})",
            "  frames: " + ("none" if self.frame_shape is None else f"{self.frame_shape} uint8"),
            f"  actions with NaN: {self.missing.at_start} at the start, {self.missing.at_end} at the "
            f"end, {self.missing.elsewhere} elsewhere",
        ]
        if self.missing.first_elsewhere is not None:
            e, t = self.missing.first_elsewhere
            out.append(f"    first one inside: episode {e}, step {t}")
        for title, ranges in (("action", self.actions), ("state", self.state)):
            for r in ranges:
                unit = "" if r.unit in ("", "?") else f" {r.unit}"
                flat = "  never changes" if r.constant else ""
                missing = f", {r.nan_rows} NaN" if r.nan_rows and title == "state" else ""
                out.append(
                    f"  {title} {r.name}: {r.minimum:.4g} to {r.maximum:.4g}{unit}, mean "
                    f"{r.mean:.4g}, std {r.std:.4g}{missing}{flat}"
                )
        if not self.state:
            out.append("  state: none (probes and state targets will be skipped)")
        if self.extra:
            out.append(f"  further columns: {', '.join(self.extra)}")
        return out + [f"  note: {text}" for text in self.notes]


def _range(r: NumberRange) -> dict[str, Any]:
    return {
        "name": r.name,
        "unit": r.unit,
        "min": plain(r.minimum),
        "max": plain(r.maximum),
        "mean": plain(r.mean),
        "std": plain(r.std),
        "rows": r.rows,
        "nan_rows": r.nan_rows,
    }


class _Ranges:
    """Running range and moments of the columns of [L, D] blocks, NaN row by row left out."""

    def __init__(self) -> None:
        self.rows = self.nan_rows = 0
        self.low = self.high = self.mean = self.m2 = np.zeros(0)

    def add(self, block: np.ndarray) -> None:
        block = np.asarray(block, dtype=np.float64)
        good = block[~np.isnan(block).any(axis=1)]
        self.nan_rows += len(block) - len(good)
        if not len(good):
            return
        mean = good.mean(axis=0)
        m2 = ((good - mean) ** 2).sum(axis=0)
        low, high = good.min(axis=0), good.max(axis=0)
        if self.rows == 0:
            self.low, self.high, self.mean, self.m2 = low, high, mean, m2
        else:
            total = self.rows + len(good)
            delta = mean - self.mean
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
            self.mean = self.mean + delta * (len(good) / total)
            self.m2 = self.m2 + m2 + delta**2 * (self.rows * len(good) / total)
        self.rows += len(good)

    def of(self, i: int, name: str, unit: str) -> NumberRange:
        if self.rows == 0:
            nan = float("nan")
            return NumberRange(name, unit, nan, nan, nan, nan, 0, self.nan_rows)
        return NumberRange(
            name=name,
            unit=unit,
            minimum=float(self.low[i]),
            maximum=float(self.high[i]),
            mean=float(self.mean[i]),
            std=float(np.sqrt(self.m2[i] / self.rows)),
            rows=self.rows,
            nan_rows=self.nan_rows,
        )


def has_pixels(episodes: Episodes) -> bool:
    """Whether frames can be asked for; found by asking for one where the reader does not say."""
    known = getattr(episodes, "has_pixels", None)
    if isinstance(known, bool):
        return known
    try:
        episodes.frames(0, [0])
    except UsageError:
        return False
    return True


def contact_sheet(
    episodes: Episodes, *, chosen: Sequence[int], per_episode: int = 6, side: int = 96
) -> bytes:
    """A PNG of frames: one row per chosen episode, evenly spaced times from first to last frame."""
    from PIL import Image

    gap = 2
    width = per_episode * (side + gap) - gap
    height = len(chosen) * (side + gap) - gap
    sheet = Image.new("RGB", (width, height), (255, 255, 255))
    for row, e in enumerate(chosen):
        length = int(episodes.lengths[e])
        ts = np.unique(np.linspace(0, length - 1, per_episode).round().astype(int))
        for column, frame in enumerate(episodes.frames(int(e), ts)):
            image = Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0)))
            sheet.paste(image.resize((side, side)), (column * (side + gap), row * (side + gap)))
    out = io.BytesIO()
    sheet.save(out, format="PNG")
    return out.getvalue()


def summarise(
    episodes: Episodes, *, sheet_episodes: int = 4, per_episode: int = 6, seed: int = 0
) -> DataSummary:
    """Read every action and state once, and a few frames.

    Args:
        sheet_episodes: rows of the contact sheet, drawn without replacement; 0 for none.
        seed: of that draw.

    Source: spec/protocol.md C4 (missing numbers by place).
    """
    lengths = np.asarray(episodes.lengths, dtype=np.int64)
    if not len(lengths):
        raise UsageError("there are no episodes to summarise.")
    actions, states = _Ranges(), _Ranges()
    start = end = elsewhere = 0
    first: tuple[int, int] | None = None
    for e in range(len(lengths)):
        rows = np.asarray(episodes.actions(e), dtype=np.float64)
        actions.add(rows)
        holes = np.flatnonzero(np.isnan(rows).any(axis=1))
        inside = holes[(holes > 0) & (holes < len(rows) - 1)]
        # An episode of one frame has only its end.
        end += int((holes == len(rows) - 1).sum())
        start += int(((holes == 0) & (len(rows) > 1)).sum())
        elsewhere += len(inside)
        if first is None and len(inside):
            first = (e, int(inside[0]))
        if episodes.columns:
            states.add(episodes.state(e))
    dim = int(np.asarray(episodes.actions(0)).shape[1])
    pictures = has_pixels(episodes)
    shape = tuple(int(n) for n in episodes.frames(0, [0]).shape[1:]) if pictures else None
    sheet: bytes | None = None
    chosen: tuple[int, ...] = ()
    if pictures and sheet_episodes > 0:
        draw = stream(seed, "contact sheet", len(lengths)).permutation(len(lengths))
        chosen = tuple(sorted(int(e) for e in draw[:sheet_episodes]))
        sheet = contact_sheet(episodes, chosen=chosen, per_episode=per_episode)
    return DataSummary(
        source=str(getattr(episodes, "source", type(episodes).__name__)),
        lengths=lengths,
        actions=tuple(actions.of(i, str(i), "") for i in range(dim)),
        state=tuple(states.of(i, c.name, c.unit) for i, c in enumerate(episodes.columns)),
        missing=MissingActions(start, end, elsewhere, first),
        frame_shape=shape,
        extra=tuple(getattr(episodes, "extra", ()) or ()),
        notes=tuple(getattr(episodes, "notes", ())),
        contact_sheet=sheet,
        contact_episodes=chosen,
    )
