"""One flipped episode as three aligned strips: imagined, executed, executed with one part swapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamcheck.planning.cases import Case


@dataclass(frozen=True)
class Film:
    """One flipped episode, for the figure: positions at every block, px.

    executed, swapped: [steps + 1, 2] of the protocol's arm and of the arm with one part swapped.
    imagined: per replan, (step, positions [T, 2]): the grid places whose latents are nearest to
    the imagined ones, a proxy.
    *_cost: squared latent distance to the goal at each step (from the atlas) or each block.
    """

    case: Case
    swap: str
    executed: np.ndarray
    swapped: np.ndarray
    imagined: tuple[tuple[int, np.ndarray], ...]
    executed_cost: np.ndarray
    swapped_cost: np.ndarray
    imagined_cost: tuple[tuple[int, np.ndarray], ...]
    success_radius: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, paths and costs included."""
        return {
            "case": self.case.id,
            "swap": self.swap,
            "start": list(self.case.start_state),
            "goal": list(self.case.goal_state),
            "start_distance": float(np.hypot(*(self.executed[0] - self._goal))),
            "end_executed": float(np.hypot(*(self.executed[-1] - self._goal))),
            "end_swapped": float(np.hypot(*(self.swapped[-1] - self._goal))),
            "executed": self.executed.tolist(),
            "swapped": self.swapped.tolist(),
            "imagined": [[s, p.tolist()] for s, p in self.imagined],
            "executed_cost": self.executed_cost.tolist(),
            "swapped_cost": self.swapped_cost.tolist(),
            "imagined_cost": [[s, c.tolist()] for s, c in self.imagined_cost],
            "success_radius": self.success_radius,
        }

    def steps(self, block: int, *, count: int = 6) -> list[int]:
        """The environment steps whose frames are shown: replans and block ends, evenly spread."""
        last = max(len(self.executed), len(self.swapped)) - 1
        spread = np.linspace(0, last, min(count, last // block + 1))
        return sorted({int(t) // block * block for t in spread.round().astype(int).tolist()})

    def places(self, steps: Sequence[int], block: int) -> dict[str, list[np.ndarray | None]]:
        """Agent positions of the three strips at the given steps; None after an end.

        Imagined places are those of the last plan made before a step.
        """

        def at(path: np.ndarray) -> list[np.ndarray | None]:
            return [path[t] if t < len(path) else None for t in steps]

        imagined: list[np.ndarray | None] = []
        for t in steps:
            begun = [(s, places) for s, places in self.imagined if s < t]
            if t == 0:
                imagined.append(self.executed[0])
            elif not begun:
                imagined.append(None)
            else:
                s, places = begun[-1]
                ahead = (t - s) // block - 1
                imagined.append(places[ahead] if 0 <= ahead < len(places) else None)
        return {"imagined": imagined, "executed": at(self.executed), "swapped": at(self.swapped)}

    @property
    def _goal(self) -> np.ndarray:
        return np.asarray(self.case.goal_state[:2])
