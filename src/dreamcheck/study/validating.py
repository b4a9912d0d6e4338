"""Held-out validation: is a found failure still there on seeds the search never saw?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from dreamcheck.evidence import Validation
from dreamcheck.stats import AgainstSiblings, NotTestable, Verdict, decide
from dreamcheck.study.availability import keep_availability
from dreamcheck.study.comparing import TOLERANCE_SHARE
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import CONTROL, Aggregate
from dreamcheck.study.searching import penalty_of
from dreamcheck.study.selecting import random_inputs, shortlisted
from dreamcheck.study.siblings import compare, measure_siblings, split_variance
from dreamcheck.study.study import Study

Group = Literal["shortlist", "random-shortlist", "reference", "default-reset"]
JUDGED: tuple[Group, ...] = ("shortlist", "random-shortlist")

CLAIM_SHARE = 0.3
"""A readout abstains when its error exceeds a quarter of the task's tolerance, or this share of the
claimed risk. Source: spec/evidence.md section 6."""


def validate(study: Study, search: Search) -> list[dict[str, Any]]:
    """Verdicts on the search's shortlist; committed as findings, and returned.

    Measured on the validation seeds, in this order: the default reset, random reference inputs,
    a random shortlist of the same size, the shortlist. While a verdict is inconclusive and the
    protocol declares more seeds, everything is measured on more of them.

    Source: spec/evidence.md section 3.
    """
    checks = study.config.checks
    chosen = shortlisted(study, search, size=checks.top_k)
    if not chosen:
        study.progress.say(f"{search.specification}: every query failed; nothing to validate.")
        return []
    scores = dict(chosen)
    groups = _groups(study, search, list(scores))
    total = 1 + sum(len(g) for g in groups.values())
    looks = len(checks.validation_steps)
    for look, num_seeds in enumerate(checks.validation_steps):
        seeds = study.seeds("validation")[:num_seeds]
        with study.progress.stage(f"validate {search.specification}", total) as stage:
            measured: dict[Group, dict[str, Aggregate]] = {
                "default-reset": study.measured(
                    [CONTROL], seeds, partition="validation", stage=stage
                )
            }
            for group, ids in groups.items():
                measured[group] = study.measured(
                    study.asked(search, ids), seeds, partition="validation", stage=stage
                )
        verdicts = _verdicts(study, measured, looks=looks)
        excess = _verdicts(study, measured, looks=looks, excess=True)
        open_ = [v for v in verdicts.values() if v.verdict == "inconclusive"]
        if not open_ or look + 1 == looks:
            break
    _commit(study, search, measured, scores, verdicts)
    keep_availability(study, search, measured, verdicts)
    siblings = measure_siblings(study, search, measured, seeds)
    split_variance(study, search, measured, siblings)
    shares = {i: relative(a) for group in measured.values() for i, a in group.items()}
    family = compare(study, search, measured, siblings, shares, looks=looks)
    scores |= _search_risks(study, search, groups["random-shortlist"])
    return _findings(study, search, measured, scores, verdicts, excess, family)


def _groups(study: Study, search: Search, chosen: Sequence[str]) -> dict[Group, list[str]]:
    """Ids by group; what is random is drawn without looking at any risk."""
    drawn = random_inputs(
        study.library(search),
        size=study.config.checks.references + len(chosen),
        root_seed=study.config.root_seed,
        role="validation-random",
        without=chosen,
    )
    return {
        "reference": drawn[: study.config.checks.references],
        "random-shortlist": drawn[study.config.checks.references :],
        "shortlist": list(chosen),
    }


def _search_risks(study: Study, search: Search, ids: Sequence[str]) -> dict[str, float]:
    """Search scores of inputs that nobody selected: what shrinks without any selection."""
    with study.progress.stage(f"random shortlist {search.specification}", len(ids)) as stage:
        measured = study.measured(
            study.asked(search, ids), study.seeds("search"), partition="search", stage=stage
        )
    return {i: a.risk - penalty_of(study, a) for i, a in measured.items() if a.risk is not None}


def references_of(study: Study, search: Search) -> list[str]:
    """The random inputs that a search's findings had to stand out from, as recorded."""
    found = study.store.records(
        "validation",
        spec=search.specification,
        interface=study.interface,
        group="reference",
        partition="validation",
    )
    return list(dict.fromkeys(r.payload["input"] for r in found))


def _verdicts(
    study: Study,
    measured: Mapping[Group, Mapping[str, Aggregate]],
    *,
    looks: int,
    excess: bool = False,
) -> dict[str, Verdict]:
    """The decision rule on the losses, or on losses minus the environment's own sensitivity."""

    def losses(a: Aggregate) -> list[float]:
        rows = [study.measurer.known(k) for k in a.measurements]
        floor = [m.floor or 0.0 if excess else 0.0 for m in rows]
        return [
            float("nan") if m.loss is None else m.loss - f for m, f in zip(rows, floor, strict=True)
        ]

    out: dict[str, Verdict] = {}
    together = {**measured["shortlist"], **measured["random-shortlist"]}
    for group in JUDGED:
        members = {i: losses(together[i]) for i in measured[group]}
        if not members:
            continue
        try:
            verdicts = decided(
                study,
                members,
                [losses(a) for a in measured["reference"].values()],
                losses(measured["default-reset"][CONTROL.id]),
                looks=looks,
            )
        except NotTestable as e:
            study.progress.say(f"no verdicts on the {group}: {e}")
            verdicts = [_undecided(i, len(losses_of)) for i, losses_of in members.items()]
        out.update({v.input_id: v for v in verdicts})
    return out


def decided(
    study: Study,
    members: Mapping[str, Sequence[float]],
    references: Sequence[Sequence[float]],
    default: Sequence[float],
    *,
    looks: int,
) -> list[Verdict]:
    """The decision rule with the study's statistic and seed, Holm over the members.

    Args:
        members, references, default: losses by seed, NaN where one failed.

    Raises:
        NotTestable: too few complete references.
    """
    return decide(
        members,
        references,
        default,
        root_seed=study.config.root_seed,
        alpha=study.statistic.tail,
        looks=looks,
    )


def _undecided(input_id: str, num_seeds: int) -> Verdict:
    """The verdict on an input that nothing can be said about: too few complete references."""
    nan = float("nan")
    return Verdict(
        input_id=input_id, verdict="incomplete", risk=nan, low=nan, high=nan, confirm_level=nan,
        refute_level=nan, threshold=nan, median=nan, default_risk=nan, num_seeds=0,
        seeds_missing=num_seeds, seeds_informative=False,
    )  # fmt: skip


def _commit(
    study: Study,
    search: Search,
    measured: Mapping[Group, Mapping[str, Aggregate]],
    scores: Mapping[str, float],
    verdicts: Mapping[str, Verdict],
) -> None:
    entries = []
    for group, members in measured.items():
        for input_id, a in members.items():
            entries.append(
                validation_of(
                    study,
                    search,
                    input_id,
                    a,
                    group=group,
                    partition="validation",
                    search_score=scores.get(input_id),
                    verdict=verdicts.get(input_id),
                )
            )
    study.store.commit(entries)


def validation_of(
    study: Study,
    search: Search,
    input_id: str,
    a: Aggregate,
    *,
    group: Group,
    partition: str,
    search_score: float | None,
    verdict: Verdict | None,
) -> Validation:
    """The record of one input on seeds the search never saw; an incomplete verdict is none."""
    known = verdict is not None and verdict.verdict != "incomplete"
    return Validation.of(
        input=input_id,
        spec=search.specification,
        interface=study.interface,
        group=group,
        partition=partition,
        seeds=a.seeds,
        losses=a.losses,
        measurements=a.measurements,
        statistic=study.statistic,
        risk=a.risk,
        frozen_risk=a.frozen,
        floor_risk=a.floor,
        search_score=search_score,
        verdict=verdict.verdict if verdict is not None and known else None,
        stratum=a.stratum,
        details={"activity": a.activity, "support": a.support},
    )


def _findings(
    study: Study,
    search: Search,
    measured: Mapping[Group, Mapping[str, Aggregate]],
    scores: Mapping[str, float],
    verdicts: Mapping[str, Verdict],
    excess: Mapping[str, Verdict],
    family: Mapping[str, AgainstSiblings],
) -> list[dict[str, Any]]:
    library = study.library(search)
    references = [a for a in measured["reference"].values() if a.risk is not None]
    usual = _median([relative(a) for a in references])
    findings = []
    for group in JUDGED:
        for rank, (input_id, a) in enumerate(measured[group].items()):
            verdict, over = verdicts[input_id], excess[input_id]
            readout = a.activity.get("readout_error")
            trusted, why = readout_trusted(study, a)
            mine = relative(a)
            own = bool(
                verdict.verdict == "confirmed"
                and over.verdict == "confirmed"
                and mine is not None
                and usual is not None
                and mine > usual
            )
            label = family[input_id].label if input_id in family else None
            payload = {
                "spec": search.specification,
                "role": search.role,
                "interface": study.interface,
                "group": group,
                "rank": rank,
                "input": input_id,
                "values": library.values(library.index(input_id)),
                "verdict": verdict.verdict,
                "numbers": plain_verdict(verdict),
                "excess_verdict": over.verdict,
                "excess_numbers": plain_verdict(over),
                "risk": a.risk,
                "frozen_risk": a.frozen,
                "floor_risk": a.floor,
                "relative_risk": mine,
                "usual_relative_risk": usual,
                "floor_share": None if a.floor is None or not a.risk else a.floor / a.risk,
                "search_score": scores.get(input_id),
                "default_risk": measured["default-reset"][CONTROL.id].risk,
                "stratum": a.stratum,
                "support": a.support,
                "activity": a.activity,
                "readout_error": readout,
                "readout_trusted": trusted,
                "readout_reason": why,
                "probe_disagreement": _disagreement(study, a),
                "sibling_label": label,
                # Law 11 and 12: in support, above what is hard for everyone, read by a probe
                # that can be trusted at this size; where siblings speak, not theirs too.
                "headline": own
                and trusted
                and a.stratum == "in"
                and search.role == "inside"
                and (not study.siblings or label == "this checkpoint"),
                "own_failure": own,
                "num_seeds": len(a.seeds),
                "seed_share": seed_share(measured, group),
            }
            study.keep("finding", f"{search.specification}:{group}:{input_id}", payload)
            findings.append(payload)
    return findings


def _disagreement(study: Study, a: Aggregate) -> float | None:
    """Mean distance between the two cross-fitted probes on the imagined latents, over seeds."""
    rows = [study.measurer.known(k).details.get("disagreement") for k in a.measurements]
    known = [r for r in rows if r is not None]
    return float(np.mean(known)) if known else None


def relative(a: Aggregate) -> float | None:
    """Risk over frozen-world risk; None where either is missing or nothing would move."""
    if a.risk is None or not a.frozen:
        return None
    return a.risk / a.frozen


def readout_trusted(study: Study, a: Aggregate) -> tuple[bool, str]:
    """Whether the probe is good enough for this claim, and why not.

    Source: spec/evidence.md section 6.
    """
    readout, risk = study.bench.readout, a.risk
    if study.probe.target.name != "state_probe":
        return True, "no probe takes part"
    if readout is None or risk is None:
        return False, "no risk was measured"
    error = float(np.mean(readout.heldout_mae))
    tolerance = getattr(study.bench.task, "tolerance", None)
    unit = study.probe.target.unit
    if tolerance is not None and error > TOLERANCE_SHARE * tolerance:
        return False, (
            f"the probe's held-out error of {error:.2f} {unit} exceeds a quarter of the task's "
            f"tolerance of {tolerance:g} {unit}"
        )
    if error > CLAIM_SHARE * risk:
        return False, (
            f"the probe's held-out error of {error:.2f} {unit} exceeds {CLAIM_SHARE:g} of the "
            f"claimed risk of {risk:.2f} {unit}"
        )
    return True, f"the probe's held-out error is {error:.2f} {unit}"


def seed_share(measured: Mapping[Group, Mapping[str, Aggregate]], group: Group) -> float | None:
    """Share of the losses' variance that lies between inputs rather than between seeds.

    Over the group's complete inputs; None for fewer than two, or where nothing varies.
    """
    rows = [
        [v for v in a.losses if v is not None]
        for a in measured[group].values()
        if a.risk is not None
    ]
    if len(rows) < 2:
        return None
    table = np.array(rows)
    total = float(table.var())
    return None if total == 0 else float(table.mean(axis=1).var()) / total


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict's numbers for a record that names its input itself."""
    return {k: v for k, v in asdict(verdict).items() if k != "input_id"}


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.median(known)) if known else None
