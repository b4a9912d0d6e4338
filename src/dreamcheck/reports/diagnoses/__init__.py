"""Sections of diagnoses: one file per diagnosis, found by the record's name.

A file ``<name>.py`` (hyphens become underscores) holds TITLE, ORDER (0 opens the report) and
``body(reader) -> str``, the section's HTML. Every number in it goes through the reader.
"""

from dreamcheck.reports.diagnoses.reader import DiagnosisReader
from dreamcheck.reports.diagnoses.section import Section, diagnosis_sections

__all__ = ["DiagnosisReader", "Section", "diagnosis_sections"]
