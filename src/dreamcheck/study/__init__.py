"""Discovery studies: the protocol, and everything that runs it in order."""

from dreamcheck.study.config import StudyConfig, load_study, preset_names, study_from
from dreamcheck.study.persisting import persist
from dreamcheck.study.searching import run_searches
from dreamcheck.study.study import Bench, Study
from dreamcheck.study.validating import validate

__all__ = [
    "Bench",
    "Study",
    "StudyConfig",
    "load_study",
    "persist",
    "preset_names",
    "run_searches",
    "study_from",
    "validate",
]
