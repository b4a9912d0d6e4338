"""What a larger budget alone changes: out of time, or going the wrong way? (H3)"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dreamcheck.errors import UsageError
from dreamcheck.planning.paired import LEVEL, paired_test
from dreamcheck.planning.results import Evaluation
from dreamcheck.tasks.criteria import load_criteria


@dataclass(frozen=True)
class BudgetResponse:
    """One checkpoint under one protocol, whose budget grew and nothing else.

    goal: goal rule and offset. budget, longer: environment steps.
    success, success_longer: shares of the cases that were not already solved.
    gain: their difference, never negative; low, high: its interval, cut at 0; kind says which.
    gained: cases won by the larger budget, one planner stream only.
    farther: share of the misses under the larger budget that ended farther than they began.
    """

    name: str
    goal: str
    budget: int
    longer: int
    success: float
    success_longer: float
    gain: float
    low: float
    high: float
    kind: str
    test: str
    p: float
    gained: int | None
    num_cases: int
    num_streams: int
    farther: float | None
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def budget_response(evaluation: Evaluation, budget: int, *, name: str) -> BudgetResponse:
    """The response from ``budget`` to the evaluation's own budget, out of that one run.

    A planner does not know its budget, and its random numbers belong to episode and replan: what
    it reaches within b steps of a longer run is what it reaches with a budget of b steps.

    Raises:
        UsageError: a budget that is not smaller, a success rule that is judged at the end of the
            budget, one random stream through all episodes, or no case left.

    Source: spec/protocol.md section 9, H3.
    """
    p = evaluation.realised.protocol
    longer = int(p["budget_steps"])
    if not 0 < budget < longer:
        raise UsageError(
            f"budget = {budget} is not between 1 and {longer - 1}: the evaluation ran {longer} "
            "steps, and only smaller budgets can be read off it."
        )
    if p["rng_mode"] == "shared":
        raise UsageError(
            "rng_mode = 'shared': planning of one episode shifts the random numbers of the next, so "
            "another budget is another run. Use rng_mode = 'per_episode'."
        )
    if load_criteria(evaluation.realised.task).rule(p["success"]).at_end:
        raise UsageError(
            f"success = {p['success']!r} is judged at the end of the budget, which a longer run does "
            "not show. Use a rule of first success."
        )
    arm = evaluation.planner
    kept = arm.table("trivial")[1][:, 0] == 0
    if not kept.any():
        raise UsageError("every start is already solved: no budget changes anything.")
    after = arm.table()[1][kept] > 0
    before = after & (arm.table("steps")[1][kept] <= budget)
    found = paired_test(after, before, label=evaluation.label, names=f"budget/{name}")
    return BudgetResponse(
        name=name,
        goal=evaluation.label.split(" / ")[0],
        budget=budget,
        longer=longer,
        success=float(before.mean()),
        success_longer=float(after.mean()),
        gain=found.difference,
        low=max(0.0, found.low),
        high=found.high,
        kind=found.kind,
        test=found.test,
        p=found.p,
        gained=found.a_only,
        num_cases=len(after),
        num_streams=after.shape[1],
        farther=arm.farther,
        verdict=_verdict(name, budget, longer, found.difference, found.p, len(after), arm.farther),
    )


def _verdict(
    name: str, budget: int, longer: int, gain: float, p: float, cases: int, farther: float | None
) -> str:
    grown = f"when only the budget grows from {budget} to {longer} steps"
    if p < LEVEL and gain > 0:
        return f"{name} reaches {gain:.0%} more goals {grown} (p = {p:.3g}): it runs out of time"
    said = f"a gain of {name} {grown} is not established at this sample size ({cases} episodes, "
    said += f"p = {p:.3g})"
    if farther is not None and farther >= 0.5:
        said += f"; {farther:.0%} of its misses end farther than they began, the sign of going the "
        said += "wrong way"
    return said
