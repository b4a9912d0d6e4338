"""Simulators, success criteria, policies and typed inputs. Tasks are made by name on demand."""

from dreamcheck.digest import Value
from dreamcheck.tasks.protocol import ActionBox, CannotBranch, Column, Policy, State, Task
from dreamcheck.tasks.registry import TaskSource, get_task, resolve_task, task_names

__all__ = [
    "ActionBox",
    "CannotBranch",
    "Column",
    "Policy",
    "State",
    "Task",
    "TaskSource",
    "Value",
    "get_task",
    "resolve_task",
    "task_names",
]
