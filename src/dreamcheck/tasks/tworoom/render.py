"""TwoRoom's picture, drawn in batches and equal to the original's at 224 px.

A frame is a still picture (background, door, wall, border, and the target when it is drawn) with
the agent blended on top: a Gaussian dot ``a`` of its radius, scaled to a peak of 1, in
``still * (1 - a) + colour * a``, float32, truncated to uint8. Where ``a <= 2^-25`` the float32
``1 - a`` is 1 and the truncation restores the still picture, so the agent changes nothing further
than ``radius * sqrt(50 ln 2)`` (5.89 radii) from its centre. Only that patch is computed, and
smaller frames are made from it without a 224 px frame.

A smaller frame is the mean of the 224 px frame over k x k squares, rounded half to even.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np

from dreamcheck.errors import UsageError
from dreamcheck.tasks.tworoom.parameters import (
    BORDER,
    BORDER_LINE,
    FRAME_SIDE,
    MAX_DOORS,
    WALL_CENTRE,
    Layout,
)

SIZES = tuple(FRAME_SIDE // k for k in (1, 2, 4, 7, 8))
"""Frame sides offered to models, px; any divisor of 224 can be drawn."""

_PATCH_VALUES = 1 << 15
"""Values of one working buffer: fits a core's cache, and torch does not split it among threads."""
_KEPT_PICTURES = 128


def area_average(frames: np.ndarray, size: int) -> np.ndarray:
    """Frames [..., 224, 224] uint8 as [..., size, size]: block means, rounded half to even.

    Raises:
        UsageError: a size that does not divide 224.
    """
    return _block_means(frames, _factor(size))


def _block_means(values: np.ndarray, k: int) -> np.ndarray:
    """uint8 [..., h, w] as [..., h / k, w / k]."""
    if k == 1:
        return values.copy()
    # Sums of at most 224 x 224 bytes; 16 bits hold those of blocks up to 16 x 16.
    dtype: Any = np.uint16 if k <= 16 else np.uint32
    rows = values.reshape(*values.shape[:-2], values.shape[-2] // k, k, values.shape[-1])
    sums: np.ndarray = rows[..., 0, :].astype(dtype)
    for i in range(1, k):
        np.add(sums, rows[..., i, :], out=sums)
    cells = sums.reshape(*sums.shape[:-1], sums.shape[-1] // k, k)
    total = cells[..., 0].copy()
    for i in range(1, k):
        np.add(total, cells[..., i], out=total)
    return _rounded_mean(total, k * k)


def _rounded_mean(sums: np.ndarray, count: int) -> np.ndarray:
    """sums / count rounded half to even, in integers: a float division can miss a tie."""
    if count & (count - 1) == 0:
        shift = count.bit_length() - 1
        # Adding half less one, and the quotient's last bit, carries exactly where rounding is up.
        return ((sums + ((sums >> shift) & 1) + (count // 2 - 1)) >> shift).astype(np.uint8)
    below, rest = np.divmod(sums.astype(np.int64), count)
    up = (2 * rest > count) | ((2 * rest == count) & (below % 2 == 1))
    return (below + up).astype(np.uint8)


def _factor(size: int) -> int:
    if size <= 0 or FRAME_SIDE % size:
        raise UsageError(
            f"image_size = {size} does not divide {FRAME_SIDE}: TwoRoom draws {FRAME_SIDE} px frames "
            f"and averages whole squares. Use one of {', '.join(map(str, SIZES))}"
        )
    return FRAME_SIDE // size


def still_picture(layout: Layout, row: int) -> np.ndarray:
    """Background, door, wall and border of one layout row, uint8 [3, 224, 224]."""
    pixel = np.arange(FRAME_SIDE)
    half = int(layout.wall_thickness[row]) // 2
    stripe = np.abs(pixel - WALL_CENTRE) <= half
    opening = np.zeros(FRAME_SIDE, bool)
    for i in range(min(int(layout.door_number[row]), MAX_DOORS)):
        opening |= np.abs(pixel - layout.door_position[row, i]) <= layout.door_size[row, i]
    # Vertical wall: the stripe runs over columns and the opening over rows.
    across, along = stripe[None, :], opening[:, None]
    if int(layout.wall_axis[row]) != 1:
        across, along = stripe[:, None], opening[None, :]
    line = np.zeros(FRAME_SIDE, bool)
    line[BORDER - BORDER_LINE : BORDER] = True
    line[FRAME_SIDE - BORDER : FRAME_SIDE - BORDER + BORDER_LINE] = True
    door = across & along
    wall = (across & ~along) | line[None, :] | line[:, None]
    picture = np.empty((3, FRAME_SIDE, FRAME_SIDE), np.uint8)
    for channel in range(3):
        picture[channel] = layout.background_colour[row, channel]
        picture[channel][door] = layout.door_colour[row, channel]
        picture[channel][wall] = layout.wall_colour[row, channel]
    return picture


class Renderer:
    """Draws frames; keeps the still pictures of the layouts it has met."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[bytes, int], np.ndarray] = OrderedDict()

    def frames(
        self, agent: np.ndarray, target: np.ndarray, layout: Layout, *, size: int = FRAME_SIDE
    ) -> np.ndarray:
        """Frames of every row.

        Args:
            agent, target: float32 [B, 2], px.
            layout: B rows.
            size: side of a frame, a divisor of 224.

        Returns:
            uint8 [B, 3, size, size].
        """
        k = _factor(size)
        out = np.empty((len(agent), 3, size, size), np.uint8)
        seen = layout.render_target.astype(bool)
        for rows in _same_picture(layout, np.flatnonzero(~seen)):
            full = self._still(layout, int(rows[0]), FRAME_SIDE)
            out[rows] = self._still(layout, int(rows[0]), size)
            for part in _parts(layout.agent_radius, rows, k):
                _draw(out, full, part, agent, layout.agent_radius, layout.agent_colour, k)
        for row in np.flatnonzero(seen):
            # A drawn target is part of the still picture, but of this row's alone.
            one = np.array([row])
            full = self._still(layout, int(row), FRAME_SIDE)[None].copy()
            base = full[0].copy()
            at = np.zeros(1, np.int64)
            _draw(
                full, base, at, target[one], layout.target_radius[one], layout.target_colour[one], 1
            )
            out[one] = area_average(full, size)
            shifted = out[row : row + 1]
            _draw(
                shifted,
                full[0],
                at,
                agent[one],
                layout.agent_radius[one],
                layout.agent_colour[one],
                k,
            )
        return out

    def _still(self, layout: Layout, row: int, size: int) -> np.ndarray:
        key = (layout.picture_key(row), size)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if size == FRAME_SIDE:
            picture = still_picture(layout, row)
        else:
            picture = area_average(self._still(layout, row, FRAME_SIDE), size)
        self._kept[key] = picture
        if len(self._kept) > _KEPT_PICTURES:
            self._kept.popitem(last=False)
        return picture


def _same_picture(layout: Layout, rows: np.ndarray) -> list[np.ndarray]:
    """Rows grouped by still picture."""
    if not len(rows):
        return []
    numbers = layout.picture[rows]
    if (numbers == numbers[0]).all():
        return [rows]
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return np.split(rows[order], cuts)


def _parts(radius: np.ndarray, rows: np.ndarray, k: int) -> list[np.ndarray]:
    """Rows in runs of one patch side whose patches fit the working buffer together."""
    sides = _patch_side(radius[rows], k)
    parts: list[np.ndarray] = []
    for side in np.unique(sides):
        of_side = rows[sides == side]
        step = max(1, _PATCH_VALUES // int(side) ** 2)
        parts += [of_side[i : i + step] for i in range(0, len(of_side), step)]
    return parts


def _reach(radius: np.ndarray) -> np.ndarray:
    """How far from its centre a dot can change the picture, float64 [B], px.

    The half pixel allows for a centre between pixels, where scaling the peak to 1 lifts the tail.
    """
    return np.sqrt(50 * math.log(2) * radius.astype(np.float64) ** 2 + 0.5) + 0.01


def _patch_side(radius: np.ndarray, k: int) -> np.ndarray:
    """Side of a patch of whole k x k squares that holds the reach of a dot anywhere, px, [B]."""
    pixels = (2 * _reach(radius)).astype(np.int64) + 1
    return np.minimum(-(-(pixels + k - 1) // k) * k, FRAME_SIDE)


def _draw(
    out: np.ndarray,
    still: np.ndarray,
    rows: np.ndarray,
    centre: np.ndarray,
    radius: np.ndarray,
    colour: np.ndarray,
    k: int,
) -> None:
    """Blend dots over one still picture [3, 224, 224] and write their patches into out[rows].

    out: uint8 [B, 3, 224 / k, 224 / k]; patches are averaged over k x k squares.
    """
    side = int(_patch_side(radius[rows], k).max())
    cells = side // k
    centres = centre[rows].astype(np.float32)
    first = np.ceil(centres - _reach(radius[rows])[:, None]).astype(np.int64)
    corners = np.clip(first // k * k, 0, FRAME_SIDE - side)
    dot = _dots(centres, radius[rows], corners, side)
    rest = np.float32(1) - dot
    colours = colour[rows].astype(np.float32)
    blended = np.empty_like(dot)
    drawn: dict[bytes, np.ndarray] = {}
    for channel in range(3):
        # Channels alike in still picture and colour (two of three for red on white) are drawn once.
        likeness = still[channel].tobytes() + colours[:, channel].tobytes()
        if likeness not in drawn:
            for j, (x, y) in enumerate(corners):
                blended[j] = still[channel, y : y + side, x : x + side]
            blended *= rest
            if colours[:, channel].any():
                blended += dot * colours[:, channel, None, None]
            drawn[likeness] = _block_means(blended.astype(np.uint8), k)
        small = drawn[likeness]
        for j, (x, y) in enumerate(corners // k):
            out[rows[j], channel, y : y + cells, x : x + cells] = small[j]


def _dots(centres: np.ndarray, radius: np.ndarray, corner: np.ndarray, side: int) -> np.ndarray:
    """Gaussian dots on their patches, peak 1, float32 [n, side, side]."""
    import torch  # here, so that listing inputs and checking rules need not wait for it

    pixel = np.arange(side)
    dx = (corner[:, 0, None] + pixel).astype(np.float32) - centres[:, 0, None]
    dy = (corner[:, 1, None] + pixel).astype(np.float32) - centres[:, 1, None]
    squared = (dx * dx)[:, None, :] + (dy * dy)[:, :, None]
    spread = np.maximum(radius.astype(np.float64), 1e-6)
    squared /= -(2.0 * spread * spread).astype(np.float32)[:, None, None]
    # NumPy's float32 exponential differs from torch's in the last bit for two values in five.
    dot = torch.from_numpy(squared).exp_().numpy()
    dot /= dot.max(axis=(1, 2), keepdims=True)
    return dot
