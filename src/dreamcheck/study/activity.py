"""Task activity: is a hard input hard because something happens, or because nothing does?

An input below a floor loses score. LeWM PushT's floors come from the default reset on the same
seeds; DINO-WM's are fixed.
Source: spec/discovery.md section 2 (task activity).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from dreamcheck.errors import GuardRefused

PENALTY = 20.0
"""lambda_act: what one unit of violation costs."""

INACTIVE = 2.0
"""What an input that is not task-active costs under fixed floors."""


class ActivityRule(Protocol):
    """What turns an input's mean activity into a loss of score; 0 is task-active."""

    @property
    def told(self) -> str:
        """How a score says that the rule had part in it."""
        ...

    def penalty(self, activity: Mapping[str, float]) -> float:
        """What the activity costs."""
        ...


@dataclass(frozen=True, slots=True)
class ActivityFloors:
    """Least mean progress ratio, contacts and block path that count as doing the task."""

    progress: float
    contact: float
    path: float

    @classmethod
    def of_reset(cls, activity: Mapping[str, float], *, seeds: tuple[int, ...]) -> ActivityFloors:
        """Floors from the default reset's mean activity on the evaluation seeds.

        Raises:
            GuardRefused: the default reset never touches or never moves the block.
        """
        progress, contact, path = (activity[n] for n in ("progress", "contact", "path"))
        if contact <= 0 or path <= 0:
            raise GuardRefused(
                f"no activity floor: on the seeds {list(seeds)} the default reset has "
                f"{contact:g} contacts and moves the block {path:g} px under this policy, so the "
                "floors would be 0 and every input would pass. Use a policy that reaches the "
                "block (weak), a longer forecast or other search seeds, or set activity = 'none'"
            )
        return cls(max(-1.0, progress - 0.15), 0.5 * contact, 0.5 * path)

    def violations(self, activity: Mapping[str, float]) -> dict[str, float]:
        """v_prog, v_con and v_path, each 0 or more."""
        return {
            "progress": max(0.0, self.progress - activity["progress"])
            / max(0.1, abs(self.progress)),
            "contact": max(0.0, self.contact - activity["contact"]) / max(1.0, self.contact),
            "path": max(0.0, self.path - activity["path"]) / max(1.0, self.path),
        }

    @property
    def told(self) -> str:
        """How a score says that the rule had part in it."""
        return f"minus {PENALTY:g} x activity violation"

    def penalty(self, activity: Mapping[str, float]) -> float:
        """lambda_act times the summed violation; 0 for a task-active input."""
        return PENALTY * sum(self.violations(activity).values())

    def to_dict(self) -> dict[str, float]:
        """Plain numbers."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FixedFloors:
    """DINO-WM PushT: mean contact steps, block path in px and progress ratio, each at least."""

    contact: float = 1.0
    path: float = 10.0
    progress: float = -1.0

    @property
    def told(self) -> str:
        """How a score says that the rule had part in it."""
        return f"minus {INACTIVE:g} where not task-active"

    def penalty(self, activity: Mapping[str, float]) -> float:
        """2 for an input below any floor, 0 for a task-active one."""
        active = all(activity[name] >= floor for name, floor in asdict(self).items())
        return 0.0 if active else INACTIVE
