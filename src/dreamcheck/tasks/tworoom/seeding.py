"""What ``env.reset(seed)`` of the original draws: start and goal positions of a default reset.

The original's variation space is a tree of Gymnasium spaces. Seeding a tree node gives every child,
in order of name, one 31-bit number of the node's own generator. A position is uniform on the start
box in float64, rounded to float32; starts are redrawn while they touch the wall's default stripe.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dreamcheck.errors import SpecificationError
from dreamcheck.tasks.tworoom.parameters import (
    FACTORS,
    POSITION_HIGH,
    POSITION_LOW,
    WALL_CENTRE,
)

# Children in order of name, as Gymnasium sorts them.
_ROOT = ("agent", "background", "door", "rendering", "target", "task", "wall")
_AGENT = ("color", "position", "radius", "speed")
_TARGET = ("color", "position", "radius")
_MOST_TRIES = 1000


def default_positions(seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Start and goal of the default reset of each seed, float32 [B, 2] twice, px.

    Raises:
        SpecificationError: a seed that is not a non-negative integer.
    """
    starts = np.empty((len(seeds), 2), np.float32)
    goals = np.empty((len(seeds), 2), np.float32)
    for i, seed in enumerate(seeds):
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise SpecificationError(
                f"seeds[{i}] = {seed!r} is not a seed: the default reset needs integers of 0 or more"
            )
        children = _child_seeds(int(seed), len(_ROOT))
        agent = _child_seeds(children[_ROOT.index("agent")], len(_AGENT))
        target = _child_seeds(children[_ROOT.index("target")], len(_TARGET))
        starts[i] = _outside_the_wall(np.random.default_rng(agent[_AGENT.index("position")]))
        goals[i] = _draw(np.random.default_rng(target[_TARGET.index("position")]))
    return starts, goals


def _child_seeds(seed: int, count: int) -> list[int]:
    numbers = np.random.default_rng(seed).integers(np.iinfo(np.int32).max, size=count)
    return [int(n) for n in numbers]


def _draw(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(POSITION_LOW, POSITION_HIGH, size=2).astype(np.float32)


def _outside_the_wall(rng: np.random.Generator) -> np.ndarray:
    half = int(float(FACTORS["wall.thickness"].initial)) // 2
    clearance = half + float(FACTORS["agent.radius"].initial)
    for _ in range(_MOST_TRIES):
        position = _draw(rng)
        if abs(float(position[0]) - WALL_CENTRE) > clearance:
            return position
    raise SpecificationError(f"no start outside the wall in {_MOST_TRIES} draws")
