"""Upper-tail average (CVaR) of losses, with the tail's size computed in exact arithmetic."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from dreamcheck.stats.estimate import StatisticsInputError, checked_count

RULES = ("fractional", "ceil")


def exact_decimal(value: float | str | int | Decimal | Fraction) -> Fraction:
    """The number a person wrote: 0.28 is 28/100, not the nearest binary float.

    A float is read through its shortest decimal form, so 0.28 * 25 is 7 and not 7.000000000000001.
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            raise StatisticsInputError(f"{value!r} is not a finite number")
        return Fraction(repr(float(value)))
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise StatisticsInputError(f"{value!r} is not a decimal number") from error


def _share(alpha: float | str | Decimal | Fraction) -> Fraction:
    share = exact_decimal(alpha)
    if not 0 < share <= 1:
        raise StatisticsInputError(
            f"alpha = {alpha!r} must lie in (0, 1]: it is the share of worst losses that is averaged"
        )
    return share


def tail_count(alpha: float | str | Decimal | Fraction, num_losses: int) -> int:
    """ceil(alpha * n) in exact decimals: 4 of 8 and 7 of 16 at 0.4; 7 of 25 at 0.28.

    Source: discovery.md section 9.
    """
    n = checked_count(num_losses, name="num_losses", low=1)
    product = _share(alpha) * n
    return -(-product.numerator // product.denominator)


def cvar(
    losses: Any,
    alpha: float | str | Decimal | Fraction,
    *,
    rule: str = "fractional",
) -> np.ndarray | float:
    """Mean of the worst share ``alpha`` of the losses, along the last axis.

    Args:
        losses: [..., n] finite losses, n at least 1, in any unit.
        alpha: share of the tail, in (0, 1]; read as the decimal it is written as.
        rule: "fractional" (default) takes the floor(alpha n) largest losses in full and the next
            with the remaining weight, divided by alpha n, so that an unchanged input keeps its
            value when n changes; "ceil" is the paper's mean of the ceil(alpha n) largest.

    Returns:
        [...] in the unit of the losses; a float for one row.

    Raises:
        StatisticsInputError: a loss is not finite (never dropped silently), the last axis is
            empty, or alpha or the rule is not one of those above.

    Source: evidence.md section 2; discovery.md section 2.
    """
    if rule not in RULES:
        raise StatisticsInputError(f"rule = {rule!r} is not one of {RULES}")
    values = np.asarray(losses, dtype=float)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise StatisticsInputError("no losses: a tail average needs at least one per row")
    if not np.isfinite(values).all():
        raise StatisticsInputError(
            "a loss is not finite. A failed measurement is not a loss: leave the seed out, record "
            "it as failed, and do not compare this input with complete ones"
        )
    n = values.shape[-1]
    share = _share(alpha)
    if rule == "ceil":
        count = tail_count(share, n)
        result = _largest(values, count).mean(axis=-1)
    else:
        weight = share * n
        whole = weight.numerator // weight.denominator
        rest = float(weight - whole)
        worst = _largest(values, min(n, whole + (1 if rest else 0)))  # descending
        total = worst[..., :whole].sum(axis=-1)
        if rest:
            total = total + rest * worst[..., whole]
        result = total / float(weight)
    return float(result) if values.ndim == 1 else result


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """The ``count`` largest of each row, descending."""
    n = values.shape[-1]
    part = values if count == n else np.partition(values, n - count, axis=-1)[..., n - count :]
    return np.sort(part, axis=-1)[..., ::-1]
