"""SciPy's L-BFGS-B with the loop around it kept short.

``scipy.optimize.minimize`` spends as long around each evaluation of a small likelihood as the
likelihood itself takes. Its compiled step is driven here directly where SciPy is the series this
was written against and one trial gives ``minimize``'s bits; anywhere else ``minimize`` is called.
The results are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy
from scipy.optimize import minimize

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Point [d] -> value and gradient [d]."""

SERIES = "1.17."
MEMORY = 10
MAX_LINE_SEARCH = 20
PROJECTED_GRADIENT = 1e-5
RELATIVE_REDUCTION = 2.2204460492503131e-09 / np.finfo(float).eps
MAX_ITERATIONS = 15000
"""The defaults of ``minimize(method="L-BFGS-B")``."""


def minimise(
    objective: Objective, start: np.ndarray, *, low: float, high: float
) -> tuple[np.ndarray, float]:
    """Minimum of the objective with every coordinate in [low, high]: point [d] and value."""
    if _direct_is_faithful():
        return _direct(objective, start, low=low, high=high)
    return _public(objective, start, low=low, high=high)


def _public(
    objective: Objective, start: np.ndarray, *, low: float, high: float
) -> tuple[np.ndarray, float]:
    found = minimize(
        objective, start, method="L-BFGS-B", jac=True, bounds=[(low, high)] * len(start)
    )
    return found.x, float(found.fun)


def _direct(
    objective: Objective, start: np.ndarray, *, low: float, high: float
) -> tuple[np.ndarray, float]:
    from scipy.optimize import _lbfgsb

    step: Any = _lbfgsb.setulb
    n, m = len(start), MEMORY
    lows, highs = np.full(n, low), np.full(n, high)
    kinds = np.full(n, 2, dtype=np.int32)  # both bounds present
    x = np.clip(start, low, high).astype(np.float64)
    value: Any = np.array(0.0)
    gradient = np.zeros(n)
    work = np.zeros(2 * m * n + 5 * n + 11 * m * m + 8 * m)
    integers = np.zeros(3 * n, dtype=np.int32)
    task, line_task = np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int32)
    logicals, saved = np.zeros(4, dtype=np.int32), np.zeros(44, dtype=np.int32)
    doubles = np.zeros(29)
    iterations = 0
    while True:
        step(
            m,
            x,
            lows,
            highs,
            kinds,
            value,
            gradient,
            RELATIVE_REDUCTION,
            PROJECTED_GRADIENT,
            work,
            integers,
            task,
            logicals,
            saved,
            doubles,
            MAX_LINE_SEARCH,
            line_task,
        )
        if task[0] == 3:  # asks for the value and gradient at x
            value, gradient = objective(x.copy())
        elif task[0] == 1:  # an iteration ended
            iterations += 1
            if iterations >= MAX_ITERATIONS:
                break
        else:
            break
    return x, float(value)


@cache
def _direct_is_faithful() -> bool:
    if not scipy.__version__.startswith(SERIES):
        return False

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = 1.0 - x[0], x[1] - x[0] ** 2
        return float(a * a + 20.0 * b * b), np.array([-2.0 * a - 80.0 * x[0] * b, 40.0 * b])

    start = np.array([-0.7, 0.9])
    try:
        x, value = _direct(bowl, start, low=-1.0, high=0.8)
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
    expected, least = _public(bowl, start, low=-1.0, high=0.8)
    return bool((x == expected).all()) and value == least
