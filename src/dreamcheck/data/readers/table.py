"""Episodes over a flat table of frames, read when asked: what every file format here becomes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dreamcheck.data.episodes import LazyExtra
from dreamcheck.data.readers.mapping import ColumnMapping
from dreamcheck.errors import UsageError
from dreamcheck.tasks.protocol import Column

PIXEL_NAMES = ("pixels", "pixel", "observation", "image", "images", "rgb", "frames")
ACTION_NAMES = ("action", "actions")
STATE_NAMES = ("state", "proprio", "observation.state", "observation_state", "pos_agent", "qpos")
EPISODE_NAMES = ("ep_idx", "episode_idx", "episode_index", "episode", "episode_id")
STEP_NAMES = ("step_idx", "frame_index", "step")


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column of a table. shape: of one frame's entry; dtype: NumPy kind letter and size."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Table(Protocol):
    """A file of flat columns over all frames."""

    source: str

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        ...

    def columns(self) -> Mapping[str, ColumnInfo]:
        """Every per-frame column."""
        ...

    def rows(self, column: str, start: int, stop: int) -> np.ndarray:
        """Entries start … stop - 1 of a column."""
        ...

    def take(self, column: str, rows: np.ndarray) -> np.ndarray:
        """Entries at the given row numbers, in the given order; repeats allowed."""
        ...


def pick(
    given: str | None, usual: Sequence[str], columns: Mapping[str, Any], what: str, source: str
) -> str:
    """The column that is meant: the mapped one, else the first usual name that exists.

    Raises:
        UsageError: it does not exist; the columns that do are listed.
    """
    if given is not None:
        if given not in columns:
            raise UsageError(
                f"{source} has no column {given!r} ({what}); it has {', '.join(sorted(columns))}."
            )
        return given
    for name in usual:
        if name in columns:
            return name
    raise UsageError(
        f"{source} has no column for {what} (looked for {', '.join(usual)}); it has "
        f"{', '.join(sorted(columns))}. Name it in a mapping file: --mapping columns.toml with "
        f'{what} = "<column>".'
    )


def decode_image(blob: bytes) -> np.ndarray:
    """One encoded frame (JPEG, PNG) as uint8 [H, W, 3]."""
    from PIL import Image

    with Image.open(io.BytesIO(bytes(blob))) as image:
        return np.asarray(image.convert("RGB"))


def as_frames(values: np.ndarray, layout: str, source: str) -> np.ndarray:
    """Recorded frames as uint8 [N, 3, H, W].

    Raises:
        UsageError: not uint8, or a shape that is no picture.
    """
    if values.dtype == object or values.dtype.kind == "S":
        values = np.stack([decode_image(v) for v in values])
        layout = "hwc"
    if values.dtype != np.uint8:
        raise UsageError(
            f"{source}: pixels are {values.dtype}, not uint8. Store frames as 0 … 255 without "
            "normalising them: the model's conventions say how it scales."
        )
    if values.ndim == 3:
        values, layout = values[..., None], "hwc"
    if values.ndim != 4:
        raise UsageError(
            f"{source}: one frame has shape {values.shape[1:]}; H x W x 3 is expected."
        )
    if layout == "auto":
        last, first = values.shape[3] in (1, 3), values.shape[1] in (1, 3)
        if last == first:
            raise UsageError(
                f"{source}: a frame of shape {values.shape[1:]} can be read both ways or neither; "
                'set pixel_layout = "hwc" or "chw" in the mapping file.'
            )
        layout = "hwc" if last else "chw"
    if layout == "hwc":
        values = values.transpose(0, 3, 1, 2)
    if values.shape[1] == 1:
        values = np.repeat(values, 3, axis=1)
    if values.shape[1] != 3:
        raise UsageError(f"{source}: frames have {values.shape[1]} channels; 1 or 3 are expected.")
    return np.ascontiguousarray(values)


class TableEpisodes:
    """A table cut into episodes; satisfies ``Episodes``.

    ``notes`` says in words what was found and repaired: shifted or invented actions, odd layouts.
    """

    def __init__(
        self,
        table: Table,
        *,
        lengths: np.ndarray,
        offsets: np.ndarray,
        mapping: ColumnMapping | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        mapping = mapping or ColumnMapping()
        self.table = table
        self.source = table.source
        self.mapping = mapping
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._offsets = np.asarray(offsets, dtype=np.int64)
        infos = table.columns()
        if not len(self._lengths) or self._lengths.min() < 1:
            raise UsageError(f"{self.source} has no episodes, or an empty one.")
        total = int((self._offsets + self._lengths).max())
        if self._offsets.min() < 0:
            raise UsageError(f"{self.source}: an episode begins at row {self._offsets.min()}.")
        self._infos = infos
        self._action = pick(mapping.action, ACTION_NAMES, infos, "action", self.source)
        self._pixels: str | None = None
        if mapping.pixels is not None or any(
            n in infos and _is_picture(infos[n]) for n in PIXEL_NAMES
        ):
            usual = [n for n in PIXEL_NAMES if n in infos and _is_picture(infos[n])]
            self._pixels = pick(mapping.pixels, usual, infos, "pixels", self.source)
        else:
            others = [n for n in infos if n.startswith("pixels") and _is_picture(infos[n])]
            if len(others) == 1:
                self._pixels = others[0]
        if mapping.state is not None:
            self._state = tuple(pick(n, (), infos, "state", self.source) for n in mapping.state)
        else:
            self._state = tuple(n for n in STATE_NAMES if n in infos and _is_vector(infos[n]))[:1]
        self.columns = tuple(c for n in self._state for c in self._named(n))
        self._check_rows(total)
        used = {self._action, self._pixels, *self._state, *hidden}
        names = (
            [pick(n, (), infos, "extra", self.source) for n in mapping.extra]
            if mapping.extra is not None
            else [n for n, i in infos.items() if n not in used and not _is_picture(i)]
        )
        self.extra: Mapping[str, np.ndarray] = LazyExtra(self, names)
        self.notes: tuple[str, ...] = ()
        self._shifted = False
        self._inspect_actions()
        if self._pixels is None:
            near = [n for n in PIXEL_NAMES if n in infos and _is_picture(infos[n], np.floating)]
            if near:
                self.notes = (
                    *self.notes,
                    f"column {near[0]!r} has the shape of a picture but holds {infos[near[0]].dtype}: "
                    "it was not read as one. Store frames as uint8, 0 … 255",
                )

    def _check_rows(self, total: int) -> None:
        # Asking for the last row of every used column finds a truncated file now, not in an hour.
        for name in (self._action, *self._state, *([self._pixels] if self._pixels else [])):
            if not len(self.table.rows(name, total - 1, total)):
                raise UsageError(
                    f"{self.source}: the episodes need {total} rows but column {name!r} is shorter. "
                    "The file is truncated, or its lengths belong to another file."
                )

    def _named(self, name: str) -> list[Column]:
        width = int(np.prod(self._infos[name].shape, dtype=np.int64))
        unit = self.mapping.units.get(name, "?")
        given = self.mapping.names.get(name)
        if given is not None and len(given) != width:
            raise UsageError(
                f"{self.source}: column {name!r} has {width} numbers but {len(given)} names "
                f"({', '.join(given)})."
            )
        names = given or ((name,) if width == 1 else tuple(f"{name}[{i}]" for i in range(width)))
        return [Column(n, unit) for n in names]

    def _inspect_actions(self) -> None:
        """Decide, from the first and last row of every episode, how actions were recorded."""
        ends = self._offsets + self._lengths - 1
        first = self._numbers(self._action, self._offsets)
        last = self._numbers(self._action, ends)
        first_nan = np.isnan(first).all(axis=1)
        last_nan = np.isnan(last).all(axis=1)
        n = len(self._lengths)
        notes = []
        if first_nan.all() and not last_nan.any() and (self._lengths > 1).all():
            if self.mapping.first_action_missing == "refuse":
                raise UsageError(
                    f"{self.source}: every episode's first action is NaN and its last is not: "
                    "row t holds the action that led to frame t. The mapping says refuse."
                )
            self._shifted = True
            notes.append(
                f"actions were stored with the frame they led to (all {n} first actions are NaN, no "
                "last one is); they were moved one step back"
            )
        elif not last_nan.all():
            odd = np.flatnonzero(~last_nan)
            if self.mapping.last_action == "refuse":
                raise UsageError(
                    f"{self.source}: the last action of episode {odd[0]} is {last[odd[0]].tolist()}, "
                    "not NaN: no frame follows it. The mapping says refuse."
                )
            notes.append(self._dropped(len(odd), n))
        self.notes = tuple(notes)

    def _dropped(self, odd: int, n: int) -> str:
        text = (
            f"the last action of {odd} of {n} episodes is a number although no frame follows it; "
            "it was dropped"
        )
        step = next((s for s in STEP_NAMES if s in self._infos), None)
        starts = self.table.take(step, self._offsets).reshape(n, -1)[:, 0] if step else None
        if starts is not None and (np.asarray(starts, dtype=np.float64) >= 1).all():
            return (
                f"{text}: {step} begins at 1, so stable-worldmodel 0.1.1 collected these episodes "
                "without their reset frame and put the first action last (its later versions do "
                "not)"
            )
        return f"{text} (LeRobot records it; stable-worldmodel 0.1.1 puts the first action there)"

    @property
    def lengths(self) -> np.ndarray:
        """Frames per episode, int64 [E]."""
        return self._lengths

    @property
    def digest(self) -> str:
        """SHA-256 of the file and of how it is read."""
        from dreamcheck.digest import digest

        return digest([self.table.digest, self.mapping.model_dump(mode="json")])

    @property
    def has_pixels(self) -> bool:
        """Whether there are pictures."""
        return self._pixels is not None

    def _numbers(self, column: str, rows: np.ndarray) -> np.ndarray:
        values = self.table.take(column, rows)
        return _float_rows(values, column, self.source)

    def _episode(self, e: int) -> tuple[int, int]:
        if not 0 <= e < len(self._lengths):
            raise UsageError(f"episode {e} does not exist; there are {len(self._lengths)}.")
        start = int(self._offsets[e])
        return start, start + int(self._lengths[e])

    def extra_of(self, name: str, e: int) -> np.ndarray:
        """One episode's entries of any column, as recorded."""
        start, stop = self._episode(e)
        values = self.table.rows(name, start, stop)
        if values.dtype == object or values.dtype.kind == "S":
            return np.array([v.decode() if isinstance(v, bytes) else str(v) for v in values])
        return values

    def actions(self, e: int) -> np.ndarray:
        """Raw actions [L, A]; the last row is NaN."""
        start, stop = self._episode(e)
        values = _float_rows(self.table.rows(self._action, start, stop), self._action, self.source)
        values = values.copy()
        if self._shifted:
            values[:-1] = values[1:]
        values[-1] = np.nan
        return values

    def state(self, e: int) -> np.ndarray:
        """[L, len(columns)] float64."""
        start, stop = self._episode(e)
        if not self._state:
            return np.zeros((stop - start, 0))
        return np.concatenate(
            [
                _float_rows(self.table.rows(n, start, stop), n, self.source).astype(np.float64)
                for n in self._state
            ],
            axis=1,
        )

    def frames(self, e: int, ts: Sequence[int] | np.ndarray) -> np.ndarray:
        """uint8 [len(ts), 3, H, W]."""
        if self._pixels is None:
            raise UsageError(
                f"{self.source} holds no pictures (columns: {', '.join(sorted(self._infos))}). "
                'Name the column in a mapping file: pixels = "<column>".'
            )
        start, stop = self._episode(e)
        ts = np.asarray(ts, dtype=np.int64)
        if len(ts) and (ts.min() < 0 or ts.max() >= stop - start):
            raise UsageError(
                f"frame {int(ts.max() if ts.max() >= stop - start else ts.min())} of episode {e} "
                f"does not exist; it has {stop - start} frames."
            )
        return as_frames(
            self.table.take(self._pixels, start + ts), self.mapping.pixel_layout, self.source
        )


def _is_picture(info: ColumnInfo, kind: type[np.generic] = np.uint8) -> bool:
    if info.dtype == object or info.dtype.kind == "S":
        return info.dtype.kind == "O" and info.shape == (-1,)
    return np.issubdtype(info.dtype, kind) and len(info.shape) in (2, 3) and min(info.shape) >= 1


def _is_vector(info: ColumnInfo) -> bool:
    return info.dtype.kind in "fiub" and len(info.shape) <= 1


def _float_rows(values: np.ndarray, column: str, source: str) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise UsageError(f"{source}: column {column!r} holds {values.dtype}, not numbers.")
    wide = values.reshape(len(values), -1)
    return wide if wide.dtype.kind == "f" else wide.astype(np.float64)


def cut_by_episode(numbers: np.ndarray, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and offsets out of an episode number per frame.

    Raises:
        UsageError: an episode's frames do not lie together.
    """
    numbers = np.asarray(numbers).reshape(-1)
    if not len(numbers):
        raise UsageError(f"{source} has no rows.")
    starts = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])
    if len(np.unique(numbers[starts])) != len(starts):
        raise UsageError(
            f"{source}: the frames of an episode do not lie together (its number comes back after "
            "another one's). Sort the file by episode and step."
        )
    return np.diff(np.concatenate([starts, [len(numbers)]])), starts
