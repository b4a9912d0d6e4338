"""Every error a user can cause, each with the exit code the command line ends with.

An error names the thing, the value, the likely cause and the way out. One base class, few leaves.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns, everywhere."""

    DONE = 0
    INTERNAL = 1
    USAGE = 2
    ABSTAINED = 3
    GUARD_REFUSED = 4
    INTEGRITY = 5
    GATE_REGRESSED = 6
    INCOMPLETE = 7


class DreamcheckError(Exception):
    """Base of everything Dreamcheck raises on purpose."""

    exit_code: ExitCode = ExitCode.INTERNAL


class UsageError(DreamcheckError):
    """A command, file, value or protocol that cannot be used as given."""

    exit_code = ExitCode.USAGE


class CheckpointError(UsageError):
    """A checkpoint that is missing, truncated, unsafe, or of another family or shape."""


class SpecificationError(UsageError):
    """An input specification, coordinate value or library that cannot be searched."""


class Abstention(DreamcheckError):
    """The number cannot be measured here; the message says why and what it would need."""

    exit_code = ExitCode.ABSTAINED


class GuardRefused(DreamcheckError):
    """A guard failed, so no number is given (law 2)."""

    exit_code = ExitCode.GUARD_REFUSED


class ConventionMismatch(GuardRefused):
    """A declared convention disagrees with the measured one (law 1)."""


class InterfaceMismatch(GuardRefused):
    """Risks of different prediction interfaces were about to meet (law 7)."""


class EvidenceError(DreamcheckError):
    """Stored evidence is altered, contradictory or unreadable."""

    exit_code = ExitCode.INTEGRITY


class IncompleteError(DreamcheckError):
    """Work stopped before it was finished; what was measured is kept."""

    exit_code = ExitCode.INCOMPLETE
