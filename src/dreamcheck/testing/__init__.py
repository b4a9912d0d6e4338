"""Conformance suites: run them on your own model, task or data, in pytest or a notebook.

    from dreamcheck.testing import check_world_model

    def test_my_model_is_a_world_model():
        check_world_model(my_model())

Each raises AssertionError with what was expected, what was found and why it matters.
"""

from dreamcheck.discovery.contract import check_method
from dreamcheck.testing.episodes import check_episodes
from dreamcheck.testing.task import check_task
from dreamcheck.testing.world_model import check_world_model

__all__ = ["check_episodes", "check_method", "check_task", "check_world_model"]
