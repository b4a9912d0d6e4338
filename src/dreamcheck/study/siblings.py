"""Other checkpoints on the same inputs and seeds: hard for everyone, or this checkpoint's own?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dreamcheck.stats import AgainstSiblings, NotTestable, against_siblings, variance_split
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import CONTROL, Aggregate
from dreamcheck.study.study import Study

USUAL = 0.75
"""Quantile of the reference inputs' relative risks up to which one counts as usual. Ours."""

Members = Mapping[Any, Mapping[str, Aggregate]]
"""Group -> input id -> aggregate."""


def measure_siblings(
    study: Study, search: Search, measured: Members, seeds: Sequence[int]
) -> dict[str, dict[str, Aggregate]]:
    """Every validated input of a search by every sibling: name -> input id -> aggregate."""
    if not study.siblings:
        return {}
    ids = list(dict.fromkeys(i for g in measured.values() for i in g if i != CONTROL.id))
    asked = [CONTROL, *study.asked(search, ids)]
    out = {}
    for name, measurer in study.siblings.items():
        with study.progress.stage(f"sibling {name}", len(asked)) as stage:
            rows = measurer.measure(asked, seeds, partition="validation", stage=stage)
        out[name] = {i: Aggregate.of(ms, study.statistic) for i, ms in rows.items()}
    return out


def compare(
    study: Study,
    search: Search,
    measured: Members,
    siblings: Mapping[str, Mapping[str, Aggregate]],
    relative: Mapping[str, float | None],
    *,
    looks: int,
) -> dict[str, AgainstSiblings]:
    """What the siblings say about the judged groups, by input id; committed as records.

    Source: spec/evidence.md section 1.
    """
    if not siblings:
        return {}
    references = list(measured["reference"])
    if not references:
        study.progress.say("no word from the siblings: there is no random reference input")
        return {}
    known = [r for i in references if (r := relative.get(i)) is not None]
    usual = float(np.quantile(known, USUAL)) if known else None
    out: dict[str, AgainstSiblings] = {}
    for group in ("shortlist", "random-shortlist"):
        members = list(measured[group])
        if not members:
            continue
        try:
            judged = against_siblings(
                {i: losses_of(measured[group][i]) for i in members},
                {i: [losses_of(s[i]) for s in siblings.values()] for i in members},
                [losses_of(measured["reference"][i]) for i in references],
                [[losses_of(s[i]) for i in references] for s in siblings.values()],
                losses_of(measured["default-reset"][CONTROL.id]),
                [losses_of(s[CONTROL.id]) for s in siblings.values()],
                relative=relative,
                usual_relative=usual,
                root_seed=study.config.root_seed,
                alpha=study.statistic.tail,
                looks=looks,
            )
        except NotTestable as e:
            study.progress.say(f"no word from the siblings on the {group}: {e}")
            continue
        out.update({a.input_id: a for a in judged})
        for a in judged:
            _keep(study, search, group, a, siblings)
    return out


def _keep(
    study: Study,
    search: Search,
    group: str,
    a: AgainstSiblings,
    siblings: Mapping[str, Mapping[str, Aggregate]],
) -> None:
    finite = [r for r in a.risks if np.isfinite(r)]
    payload = {
        "spec": search.specification,
        "group": group,
        "input": a.input_id,
        "interface": study.interface,
        "label": a.label,
        "checkpoints": [
            {
                "name": name,
                "identity": study.bench.siblings[name].model.identity,
                "interface": study.siblings[name].interface.digest,
                "risk": risk if np.isfinite(risk) else None,
                "threshold": threshold,
                "failure": siblings[name][a.input_id].failure,
                "measurements": list(siblings[name][a.input_id].measurements),
            }
            for name, risk, threshold in zip(siblings, a.risks, a.thresholds, strict=True)
        ],
        "mean_risk": float(np.mean(finite)) if finite else None,
        "fails_alike": a.fails_alike,
        "num_siblings": len(a.risks),
        "z": a.z.value if a.z.defined else None,
        "z_reason": a.z.reason,
        "excess": {k: v for k, v in asdict(a.excess).items() if k != "input_id"},
    }
    study.keep("sibling", f"{search.specification}:{group}:{a.input_id}", payload)


def split_variance(
    study: Study,
    search: Search,
    measured: Members,
    siblings: Mapping[str, Mapping[str, Aggregate]],
) -> None:
    """Where the losses' variance lies on the random reference inputs: inputs, checkpoints, seeds.

    Over the inputs that are complete on every checkpoint; how many were left out is recorded.

    Source: spec/evidence.md section 3.
    """
    tables = [measured["reference"], *siblings.values()]
    ids = [i for i in measured["reference"] if all(None not in table[i].losses for table in tables)]
    payload: dict[str, Any] = {
        "spec": search.specification,
        "interface": study.interface,
        "group": "reference",
        "num_inputs": len(ids),
        "left_out": len(measured["reference"]) - len(ids),
        "num_checkpoints": len(tables),
        "num_seeds": len(next(iter(measured["default-reset"].values())).seeds),
    }
    try:
        split = variance_split([[losses_of(table[i]) for i in ids] for table in tables])
    except NotTestable as e:
        payload |= {"reason": str(e), "components": None, "shares": None}
    else:
        parts = ("inputs", "checkpoints", "seeds")
        payload |= {
            "reason": "" if split.total > 0 else "no loss differs from another",
            "components": {n: getattr(split, n) for n in parts},
            "shares": {n: split.share(n) for n in parts} if split.total > 0 else None,
        }
    study.keep("variance", search.specification, payload)


def losses_of(a: Aggregate) -> list[float]:
    """Losses by seed, NaN where one failed."""
    return [float("nan") if v is None else v for v in a.losses]
