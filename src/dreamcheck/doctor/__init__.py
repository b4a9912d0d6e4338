"""Checks that come before any number: one check, one file."""

from dreamcheck.doctor.contract import Case, Check, FaultGenerator, Finding, Measure, Verdict
from dreamcheck.doctor.subject import Subject

__all__ = ["Case", "Check", "FaultGenerator", "Finding", "Measure", "Subject", "Verdict"]
