"""What success means, as data: one TOML file per task, used wherever success is counted."""

from dreamcheck.tasks.criteria.success import (
    Arena,
    Part,
    SuccessRule,
    TaskCriteria,
    criteria_names,
    load_criteria,
    read_criteria,
)

__all__ = [
    "Arena",
    "Part",
    "SuccessRule",
    "TaskCriteria",
    "criteria_names",
    "load_criteria",
    "read_criteria",
]
