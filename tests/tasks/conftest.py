"""Typed TwoRoom inputs for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def random_inputs() -> Callable[..., list[dict[str, Any]]]:
    """n inputs over every coordinate that changes motion or the picture."""

    def make(n: int, *, seed: int = 0) -> list[dict[str, Any]]:
        rng = np.random.default_rng(seed)
        return [
            {
                "start_x": float(rng.uniform(14, 209)),
                "start_y": float(rng.uniform(14, 209)),
                "goal_x": float(rng.uniform(14, 209)),
                "goal_y": float(rng.uniform(14, 209)),
                "door.number": int(rng.integers(1, 4)),
                "door.position": int(rng.integers(224)),
                "door.position.1": int(rng.integers(224)),
                "door.position.2": int(rng.integers(224)),
                "door.size": int(rng.integers(1, 22)),
                "wall.thickness": int(rng.integers(7, 42)),
                "wall.axis": int(rng.integers(2)),
                "agent.speed": float(rng.uniform(1.75, 10.5)),
                "agent.radius": float(rng.uniform(7, 14)),
                "target.radius": float(rng.uniform(7, 14)),
                "rendering.render_target": int(rng.integers(2)),
                **{
                    f"{part}.color": "#" + bytes(rng.integers(0, 256, 3).tolist()).hex()
                    for part in ("agent", "target", "door", "wall", "background")
                },
            }
            for _ in range(n)
        ]

    return make
