"""Published tables recomputed from released data with this project's own functions."""

from dreamcheck.reproduce.acpc import reproduce_acpc
from dreamcheck.reproduce.checks import Check, Report, Tolerance, compare
from dreamcheck.reproduce.tworoom import reproduce_tworoom

__all__ = ["Check", "Report", "Tolerance", "compare", "reproduce_acpc", "reproduce_tworoom"]
