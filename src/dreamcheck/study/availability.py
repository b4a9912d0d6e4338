"""How much of a declared validation there is: selected, complete, incomplete and why.

Nothing that is missing is filled in, least of all with search seeds.
Source: spec/discovery.md section 4; the paper's Appendix D and Table D.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamcheck.stats import Verdict
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import Aggregate
from dreamcheck.study.selecting import capped, shortlist, traces_of
from dreamcheck.study.study import Study

KIND = "availability"


def keep_availability(
    study: Study,
    search: Search,
    measured: Mapping[Any, Mapping[str, Aggregate]],
    verdicts: Mapping[str, Verdict],
) -> None:
    """Keep, per group, how many inputs are complete on every validation seed that was used."""
    checks = study.config.checks
    traces = traces_of(study, search)
    handed_on = shortlist(
        capped(traces, checks.per_restart),
        method=search.primary,
        size=len(study.library(search)),
    )
    payload = {
        "spec": search.specification,
        "interface": study.interface,
        "method": search.primary,
        "restarts": len({t.restart_seed for t in traces if t.method == search.primary}),
        "per_restart": checks.per_restart,
        "cap_inputs": checks.top_k,
        "cap_seeds": checks.validation_steps[-1],
        "num_seeds": len(next(iter(measured["default-reset"].values())).seeds),
        # What the restarts found, each input once, and what the cap on inputs left out of it.
        "num_unique": len(handed_on),
        "num_left_out": len(handed_on) - len(measured["shortlist"]),
        "groups": [
            group_availability(name, members, verdicts) for name, members in measured.items()
        ],
    }
    study.keep(KIND, search.specification, payload)


def group_availability(
    name: str, members: Mapping[str, Aggregate], verdicts: Mapping[str, Verdict]
) -> dict[str, Any]:
    """Counts of one group, and its incomplete inputs by name.

    complete: a loss on every seed. undecided: shortlisted, and too incomplete for a verdict.
    """
    incomplete = [
        {
            "input": i,
            "num_missing": sum(v is None for v in a.losses),
            "seeds_missing": [s for s, v in zip(a.seeds, a.losses, strict=True) if v is None],
            "why": a.failure,
        }
        for i, a in members.items()
        if a.risk is None
    ]
    return {
        "group": name,
        "num_inputs": len(members),
        "num_complete": len(members) - len(incomplete),
        "num_undecided": sum(
            i in verdicts and verdicts[i].verdict == "incomplete" for i in members
        ),
        "incomplete": incomplete,
    }
