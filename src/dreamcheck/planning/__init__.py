"""Is the number real, and where did it go? Planning evaluation and attribution.

Light to import: the names below are loaded when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "CEM": "solvers",
    "ICEM": "solvers",
    "MPPI": "solvers",
    "PredictiveSampling": "solvers",
    "Gradient": "solvers",
    "make_solver": "solvers",
    "GoalLatent": "objectives",
    "DecodedState": "objectives",
    "TemporalDistance": "objectives",
    "RewardValue": "objectives",
    "Weighted": "objectives",
    "Objective": "objectives",
    "Protocol": "protocol",
    "load_protocol": "protocol",
    "read_protocol": "protocol",
    "preset_names": "protocol",
    "feasibility": "admission",
    "Feasibility": "admission",
    "prepare": "evaluate",
    "plan": "evaluate",
    "Evaluation": "results",
    "deviations": "results",
    "evaluation_from": "reading",
    "read_evaluation": "reading",
    "compare": "paired",
    "compare_recipes": "paired",
    "plan_perturbed": "perturbed",
    "power": "design",
    "matched_pairs": "design",
    "register": "registration",
    "check_registration": "registration",
    "explain": "attribution",
    "explain_menu": "menu",
    "Explanation": "attribution",
    "explanation_figure": "figures",
    "dissociation": "two_horizons",
    "dissociation_figure": "figures",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"dreamcheck.planning.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'dreamcheck.planning' has no attribute {name!r}")
