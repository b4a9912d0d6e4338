"""Reports: one self-contained page per study, written from its records alone."""

from dreamcheck.reports.checking import verify_study
from dreamcheck.reports.page import write_report

__all__ = ["verify_study", "write_report"]
