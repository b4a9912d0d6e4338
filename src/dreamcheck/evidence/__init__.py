"""Evidence: record types, the store, integrity checks, displayed numbers, verification.

The only thing that reports read. Knows nothing of torch.
"""

from dreamcheck.evidence.aggregate import risk_of, tail_mean
from dreamcheck.evidence.artifacts import Artifacts
from dreamcheck.evidence.integrity import Finding, check_all
from dreamcheck.evidence.keys import DEFAULT_RESET, Interface, measurement_key, values_text
from dreamcheck.evidence.library import LibraryTable, library_entry, library_table
from dreamcheck.evidence.numbers import Numbers, Shown, select
from dreamcheck.evidence.page_text import PageProblem
from dreamcheck.evidence.page_text import check as check_page
from dreamcheck.evidence.record import Record
from dreamcheck.evidence.records import (
    Entry,
    Evaluation,
    Failure,
    Library,
    Measurement,
    Neighbourhood,
    SearchTrace,
    Statistic,
    Validation,
    entry_of,
)
from dreamcheck.evidence.statistics import column, statistic
from dreamcheck.evidence.store import Store
from dreamcheck.evidence.verify import Problem, VerifyReport, verify

__all__ = [
    "DEFAULT_RESET",
    "Artifacts",
    "Entry",
    "Evaluation",
    "Failure",
    "Finding",
    "Interface",
    "Library",
    "LibraryTable",
    "Measurement",
    "Neighbourhood",
    "Numbers",
    "PageProblem",
    "Problem",
    "Record",
    "SearchTrace",
    "Shown",
    "Statistic",
    "Store",
    "Validation",
    "VerifyReport",
    "check_all",
    "check_page",
    "column",
    "entry_of",
    "library_entry",
    "library_table",
    "measurement_key",
    "risk_of",
    "select",
    "statistic",
    "tail_mean",
    "values_text",
    "verify",
]
