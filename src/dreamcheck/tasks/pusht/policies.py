"""PushT behaviour policies: the weak policy (random near the block), uniform, and none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from dreamcheck.digest import digest
from dreamcheck.errors import UsageError
from dreamcheck.streams import RowStreams
from dreamcheck.tasks.arguments import policy_of

Observation = Mapping[str, np.ndarray]
ACTION_SCALE = 100.0
"""Arena px that one unit of action asks for."""


def _digest(policy: Any) -> str:
    parameters = {f.name: getattr(policy, f.name) for f in fields(policy)}
    return digest(
        {"task": "pusht", "policy": policy.name, "version": policy.version, "with": parameters}
    )


@dataclass(frozen=True)
class Zero:
    """The agent is asked to stay where it is; 0 is "no move" because actions are relative."""

    name: ClassVar[str] = "zero"
    version: ClassVar[str] = "1"

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2]."""
        return np.zeros((len(observation["state"]), 2), np.float32)


@dataclass(frozen=True)
class Random:
    """Uniform over the action box."""

    name: ClassVar[str] = "random"
    version: ClassVar[str] = "1"

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1]."""
        return (2 * rngs.uniform(2) - 1).astype(np.float32)


@dataclass(frozen=True)
class Weak:
    """A uniform action whose end point is pulled into a square around the block.

    The rule of stable-worldmodel's ``WeakPolicy``; not an expert. Its randomness comes from one
    stream per row instead of one generator for all.

    reach: half the side of the square, arena px.
    """

    reach: float = 100.0

    name: ClassVar[str] = "weak"
    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.reach > 0:
            raise UsageError(f"weak: reach = {self.reach:g} px must be above 0")

    @property
    def digest(self) -> str:
        """SHA-256 of name, version and parameters."""
        return _digest(self)

    def act(self, observation: Observation, rngs: RowStreams) -> np.ndarray:
        """Actions, float32 [B, 2] in [-1, 1]."""
        state = np.asarray(observation["state"], np.float64)
        agent, block = state[:, :2], state[:, 2:4]
        aim = agent + ACTION_SCALE * (2 * rngs.uniform(2) - 1)
        aim = np.clip(aim, block - self.reach, block + self.reach)
        return np.clip((aim - agent) / ACTION_SCALE, -1, 1).astype(np.float32)


POLICIES: dict[str, type[Zero | Random | Weak]] = {p.name: p for p in (Zero, Random, Weak)}
"""The task's policies by name."""


def make_policy(name: str, **parameters: float) -> Zero | Random | Weak:
    """The policy of that name with the given parameters.

    Raises:
        UsageError: an unknown name or parameter; the message lists the known ones.
    """
    return policy_of(POLICIES, name, parameters, task="PushT")
