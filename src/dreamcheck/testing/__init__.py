"""Conformance suites: run them on your own model, task or data, in pytest or a notebook.

    from dreamcheck.testing import check_world_model

    def test_my_model_is_a_world_model():
        check_world_model(my_model())

Each raises AssertionError with what was expected, what was found and why it matters. A search
method's promises can be run one by one:

    @pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda c: c.__name__)
    def test_my_method(check):
        check(lambda library, *, seed, budget: MyMethod(library, seed=seed, budget=budget))
"""

from dreamcheck.discovery.contract import CHECKS as METHOD_CHECKS
from dreamcheck.discovery.contract import check_method
from dreamcheck.testing.episodes import check_episodes
from dreamcheck.testing.task import check_task
from dreamcheck.testing.world_model import check_world_model

__all__ = ["METHOD_CHECKS", "check_episodes", "check_method", "check_task", "check_world_model"]
