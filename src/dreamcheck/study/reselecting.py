"""The third seed partition: whatever is selected again among validated inputs is measured afresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dreamcheck.stats import NotTestable, Verdict
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import CONTROL, Aggregate, Asked
from dreamcheck.study.siblings import losses_of
from dreamcheck.study.study import Study
from dreamcheck.study.validating import (
    decided,
    plain_verdict,
    references_of,
    relative,
    validation_of,
)

PARTITION = "reselection"


@dataclass(frozen=True)
class Fresh:
    """The yardstick of a search on the third partition: its default reset and random references."""

    default: Aggregate
    references: tuple[Aggregate, ...]

    def judge(
        self, study: Study, members: Mapping[str, Aggregate], *, looks: int = 1
    ) -> dict[str, Verdict]:
        """The decision rule of validation on fresh seeds, Holm over the members.

        Raises:
            NotTestable: too few complete references.
        """
        verdicts = decided(
            study,
            {i: losses_of(a) for i, a in members.items()},
            [losses_of(a) for a in self.references],
            losses_of(self.default),
            looks=looks,
        )
        return {v.input_id: v for v in verdicts}


def fresh_yardstick(study: Study, search: Search) -> Fresh | None:
    """Measured once per search; None without a third partition or without references."""
    if not study.config.seeds.get(PARTITION):
        return None
    ids = references_of(study, search)
    if not ids:
        return None
    asked = [CONTROL, *study.asked(search, ids)]
    with study.progress.stage(f"fresh seeds {search.specification}", len(asked)) as stage:
        measured = study.measured(asked, study.seeds(PARTITION), partition=PARTITION, stage=stage)
    return Fresh(measured[CONTROL.id], tuple(measured[i] for i in ids))


def reselect(
    study: Study,
    search: Search,
    findings: Sequence[Mapping[str, Any]],
    yardstick: Fresh | None,
) -> list[dict[str, Any]]:
    """The confirmed findings and the worst ones, measured on seeds that selected none of them.

    A verdict selects, and so does taking the worst of several: the numbers a report leads with
    come from here. Without a "reselection" partition nothing is measured and the report says so.

    Args:
        yardstick: the search's ``fresh_yardstick``.

    Source: spec/evidence.md section 3.
    """
    again = _selected_again(study, findings)
    if yardstick is None or not again:
        return []
    asked = [Asked(f["input"], f["values"]) for f in again]
    measured = study.measured(asked, study.seeds(PARTITION), partition=PARTITION)
    try:
        verdicts = yardstick.judge(study, measured)
    except NotTestable as e:
        study.progress.say(f"no verdicts on the third partition: {e}")
        return []
    default = yardstick.default.risk
    out = []
    for f in again:
        a, verdict = measured[f["input"]], verdicts[f["input"]]
        study.store.commit(
            [
                validation_of(
                    study,
                    search,
                    f["input"],
                    a,
                    group="shortlist",
                    partition=PARTITION,
                    search_score=f["search_score"],
                    verdict=verdict,
                )
            ]
        )
        payload = {
            "spec": search.specification,
            "role": search.role,
            "interface": study.interface,
            "input": f["input"],
            "values": f["values"],
            "seeds": list(a.seeds),
            "num_seeds": len(a.seeds),
            "search_score": f["search_score"],
            "validation_risk": f["risk"],
            "validation_verdict": f["verdict"],
            "risk": a.risk,
            "default_risk": default,
            "frozen_risk": a.frozen,
            "floor_risk": a.floor,
            "relative_risk": relative(a),
            "verdict": verdict.verdict,
            "numbers": plain_verdict(verdict),
            "failure": None,
        }
        study.keep("reselection", f"{search.specification}:{f['input']}", payload)
        out.append(payload)
    return out


def _selected_again(study: Study, findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Confirmed findings, and the worst ones that a page would show; by risk, then id."""
    listed = sorted(
        (f for f in findings if f["group"] == "shortlist" and f["risk"] is not None),
        key=lambda f: (-f["risk"], f["input"]),
    )
    shown = max(1, study.config.checks.strips)
    return [f for n, f in enumerate(listed) if n < shown or f["verdict"] == "confirmed"]
