"""Frames as pictures inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np


def data_uri(frame: np.ndarray) -> str:
    """A PNG of one frame, uint8 [3, H, W], as a data URI."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0))).save(
        out, format="PNG", optimize=True
    )
    return png_uri(out.getvalue())


def png_uri(data: bytes) -> str:
    """The data URI of a PNG's bytes."""
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")
