"""The smallest change that makes it fail: the shortest path of edits from the nominal input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.discovery.edits import EditDistances, edits_between, mixtures
from dreamcheck.evidence import values_text
from dreamcheck.stats import NotTestable, Verdict
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import Aggregate
from dreamcheck.study.reselecting import PARTITION, Fresh
from dreamcheck.study.selecting import evaluations_of
from dreamcheck.study.study import Study
from dreamcheck.study.validating import plain_verdict

BUDGET = 128
"""Default of the protocol's edit_budget."""

MOST_EDITS = 4
"""Longest path that is looked for. A change of everything is not a small one."""

CANDIDATES = 8
"""Inputs of one distance that are tried on fresh seeds, the worst first."""


def edit_path(
    study: Study,
    search: Search,
    findings: Sequence[Mapping[str, Any]],
    yardstick: Fresh | None,
) -> dict[str, Any] | None:
    """Look for it within the protocol's budget, confirm it on the third seed partition, keep it.

    Distance by distance from the nominal input, every input within the budget is evaluated on
    the search seeds; first of all the mixtures of the nominal input with each confirmed failure,
    then those one edit beyond the worst. The worst above the failure threshold are measured on
    fresh seeds, and the nearest distance with a confirmed one ends the search.

    Args:
        yardstick: the search's ``fresh_yardstick``.

    Source: design.md (nominal input); the issue's budgeted search is ours.
    """
    budget = BUDGET if study.config.checks.edit_budget is None else study.config.checks.edit_budget
    if budget == 0 or not findings:
        return None
    payload: dict[str, Any] = {
        "spec": search.specification,
        "interface": study.interface,
        "budget": budget,
        "found": False,
        "reason": "",
        "rings": [],
        "steps": [],
        "alternatives": [],
    }
    nominal = study.library(search).nominal
    if nominal is None:
        payload["reason"] = "the specification declares no nominal values to start from"
    elif yardstick is None:
        payload["reason"] = (
            "no third seed partition is declared ([seeds] reselection), so no step could be "
            "confirmed on fresh seeds"
        )
    else:
        try:
            payload["partition"] = PARTITION
            payload |= _Walk(study, search, findings, nominal, yardstick, budget).run()
        except NotTestable as e:
            payload["reason"] = str(e)
    study.keep("edit-path", search.specification, payload)
    return payload


class _Walk:
    """One look for the smallest change."""

    def __init__(
        self,
        study: Study,
        search: Search,
        findings: Sequence[Mapping[str, Any]],
        nominal: str,
        yardstick: Fresh,
        budget: int,
    ) -> None:
        self.study, self.search, self.yardstick = study, search, yardstick
        self.library, self.graph = study.library(search), study.graph(search)
        self.start = self.library.index(nominal)
        self.most = min(MOST_EDITS, len(self.library.names))
        self.reach = EditDistances(self.graph, self.start, most=self.most)
        self.level = float(findings[0]["numbers"]["threshold"])
        self.left = budget
        self.failures = [
            self.library.index(f["input"]) for f in findings if f["verdict"] == "confirmed"
        ]
        self.risks: dict[int, float | None] = {
            self.library.index(i): e.risk for i, e in evaluations_of(study, search).items()
        }
        self.fresh: dict[int, Aggregate] = {}

    def run(self) -> dict[str, Any]:
        """Everything the record says beyond its header."""
        study, library = self.study, self.library
        total = self.left
        said: dict[str, Any] = {"level": self.level, "nominal": library.id(self.start)}
        if not len(self.graph.replacements(self.start)):
            return said | {
                "reason": f"every replacement of the nominal input "
                f"{values_text(library.values(self.start))} is invalid: there is no edit to make"
            }
        with study.progress.stage(f"smallest change {self.search.specification}", total) as stage:
            self.stage = stage
            begin = self._judge([self.start])[self.start]
            if begin.verdict == "confirmed":
                step = self._step(self.start, begin)
                return said | {"found": True, "steps": [step], "num_edits": 0, "evaluated": 0}
            for failure in self.failures:
                self._evaluate(list(mixtures(library, self.start, failure)))
            rings: list[dict[str, Any]] = []
            for distance in range(1, self.most + 1):
                confirmed = self._ring(distance, rings)
                if confirmed:
                    return (
                        said
                        | {"rings": rings, "evaluated": total - self.left}
                        | self._found(confirmed)
                    )
        return said | {
            "rings": rings,
            "evaluated": total - self.left,
            "reason": f"no input within {self.most} edits that was evaluated failed on fresh seeds",
        }

    def _ring(self, distance: int, rings: list[dict[str, Any]]) -> dict[int, Verdict]:
        """Evaluate one distance as far as the budget goes; its confirmed inputs, worst first."""
        ring = [int(i) for i in self.reach.ring(distance)]
        self._evaluate(self._by_promise(ring, distance))
        seen = [i for i in ring if i in self.risks]
        above = sorted(
            (i for i in seen if (self.risks[i] or 0.0) > self.level),
            key=lambda i: (-(self.risks[i] or 0.0), self.library.id(i)),
        )
        tried = above[:CANDIDATES]
        verdicts = self._judge(tried, looks=self.most) if tried else {}
        confirmed = {i: v for i, v in verdicts.items() if v.verdict == "confirmed"}
        rings.append(
            {
                "distance": distance,
                "inputs": len(ring),
                "evaluated": len(seen),
                "above": len(above),
                "tried": len(tried),
                "confirmed": len(confirmed),
                "all_known": self.reach.complete,
            }
        )
        return confirmed

    def _by_promise(self, ring: Sequence[int], distance: int) -> list[int]:
        """Inputs not evaluated yet, those beyond the worst of the previous distance first."""
        before = {int(i) for i in self.reach.ring(distance - 1)} if distance > 1 else set()

        def promise(i: int) -> float:
            parents = [j for j in map(int, self.graph.replacements(i)) if j in before]
            return max((self.risks.get(j) or 0.0 for j in parents), default=0.0)

        return sorted(
            (i for i in ring if i not in self.risks),
            key=lambda i: (-promise(i), self.library.id(i)),
        )

    def _evaluate(self, indices: Sequence[int]) -> None:
        """Search-seed risks of inputs, as many as the budget still allows."""
        wanted = [i for i in dict.fromkeys(indices) if i not in self.risks][: self.left]
        if not wanted:
            return
        self.left -= len(wanted)
        ids = self.library.ids(wanted)
        measured = self.study.measured(
            self.study.asked(self.search, ids),
            self.study.seeds("search"),
            partition="search",
            stage=self.stage,
        )
        self.risks |= {i: measured[name].risk for i, name in zip(wanted, ids, strict=True)}

    def _judge(self, indices: Sequence[int], *, looks: int = 1) -> dict[int, Verdict]:
        """Verdicts on fresh seeds."""
        ids = self.library.ids(indices)
        measured = self.study.measured(
            self.study.asked(self.search, ids), self.study.seeds(PARTITION), partition=PARTITION
        )
        self.fresh |= {i: measured[name] for i, name in zip(indices, ids, strict=True)}
        verdicts = self.yardstick.judge(self.study, measured, looks=looks)
        return {i: verdicts[name] for i, name in zip(indices, ids, strict=True)}

    def _found(self, confirmed: Mapping[int, Verdict]) -> dict[str, Any]:
        """The path to the worst confirmed input, and the others at its distance."""
        paths = {end: self.reach.path(end) for end in confirmed}
        chosen = max(confirmed, key=lambda i: (confirmed[i].risk, self.library.id(i)))
        path = paths[chosen]
        known = self._judge(path[:-1]) | {chosen: confirmed[chosen]}
        steps = [
            self._step(i, known[i], before=path[n - 1] if n else None) for n, i in enumerate(path)
        ]
        others = sorted(
            (i for i in confirmed if i != chosen), key=lambda i: (-confirmed[i].risk, i)
        )
        return {
            "found": True,
            "steps": steps,
            "num_edits": len(path) - 1,
            "alternatives": [
                self._step(i, confirmed[i]) | {"edits": self._edits(self.start, i)} for i in others
            ],
        }

    def _edits(self, a: int, b: int) -> list[dict[str, Any]]:
        return [
            {"name": e.name, "before": e.before, "after": e.after}
            for e in edits_between(self.library, a, b)
        ]

    def _step(self, i: int, verdict: Verdict, *, before: int | None = None) -> dict[str, Any]:
        aggregate = self.fresh[i]
        return {
            "input": self.library.id(i),
            "values": self.library.values(i),
            "edits": [] if before is None else self._edits(before, i),
            "search_risk": self.risks.get(i),
            "risk": aggregate.risk,
            "verdict": verdict.verdict,
            "numbers": plain_verdict(verdict),
            "stratum": aggregate.stratum,
            "measurements": list(aggregate.measurements),
        }
