"""Is an input hard for every checkpoint of a family, or for this one?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dreamcheck.stats.bootstrap import mean_rows
from dreamcheck.stats.decision import Verdict, decide
from dreamcheck.stats.estimate import Estimate, StatisticsInputError
from dreamcheck.stats.tail import cvar

Label = Literal["this checkpoint", "hard for everyone", "shared with siblings", "undecided"]


@dataclass(frozen=True, slots=True)
class AgainstSiblings:
    """One input of the tested checkpoint against its siblings, on the same seeds.

    risks: of each sibling, in the losses' unit. thresholds: 95th percentile of each sibling's own
        risks over the random reference inputs; a sibling fails alike above it.
    excess: verdict on the tested checkpoint's loss minus the siblings' mean loss, seed by seed,
        averaged over seeds; "confirmed" when it stands out from the reference inputs'.
    z: (risk - mean sibling risk) / standard deviation of sibling risks (ddof 1); undefined with
        a reason for one sibling, or where siblings agree exactly.
    label: see ``against_siblings``.
    """

    input_id: str
    risks: tuple[float, ...]
    thresholds: tuple[float, ...]
    fails_alike: int
    excess: Verdict
    z: Estimate
    label: Label


def against_siblings(
    own: Mapping[str, Any],
    siblings: Mapping[str, Any],
    own_references: Any,
    sibling_references: Any,
    own_default: Any,
    sibling_default: Any,
    *,
    relative: Mapping[str, float | None],
    usual_relative: float | None,
    root_seed: int,
    alpha: float | str | Decimal | Fraction | None = 0.4,
    looks: int = 1,
    resamples: int = 20_000,
) -> list[AgainstSiblings]:
    """What the family says about each shortlisted input.

    *this checkpoint*: the tested checkpoint's excess over the siblings' mean stands out from the
    random reference inputs' (lower one-sided bound above their 95th percentile, Holm over the
    shortlist). Else, when more than half of the siblings fail alike: *hard for everyone* when its
    relative risk is usual for the library, *shared with siblings* when it is not (a failure of
    the family, which difficulty alone does not explain). Else *undecided*.

    Args:
        own: input id -> losses [seeds] of the tested checkpoint, NaN where one is missing.
        siblings: input id -> losses [siblings, seeds] on the same seeds.
        own_references, sibling_references: [R, seeds] and [siblings, R, seeds], the same random
            inputs of the library.
        own_default, sibling_default: [seeds] and [siblings, seeds] of the default reset.
        relative: input id -> risk over frozen-world risk. usual_relative: value up to which one
            is usual; None where it was not measured, and then nothing is called hard for everyone.
        alpha: tail share of a risk; None is the mean.

    Raises:
        StatisticsInputError: no sibling, or shapes disagree.
        NotTestable: too few complete references.

    Source: evidence.md section 1. The rule that turns it into labels is ours.
    """
    references = np.asarray(sibling_references, dtype=float)
    mine = np.asarray(own_references, dtype=float)
    if references.ndim != 3 or not len(references) or references.shape[1:] != mine.shape:
        raise StatisticsInputError(
            f"sibling references of shape {references.shape} do not fit own references of shape "
            f"{mine.shape}: [siblings, inputs, seeds] against [inputs, seeds], at least one sibling"
        )
    tables = {i: np.asarray(siblings[i], dtype=float) for i in own}
    for name, table in tables.items():
        if table.shape != (len(references), mine.shape[1]):
            raise StatisticsInputError(
                f"input {name!r}: sibling losses of shape {table.shape}, "
                f"{(len(references), mine.shape[1])} were expected"
            )

    def rho(values: np.ndarray) -> np.ndarray:
        return mean_rows(values) if alpha is None else np.asarray(cvar(values, alpha=alpha))

    excess = decide(
        {i: np.asarray(own[i], dtype=float) - tables[i].mean(axis=0) for i in own},
        mine - references.mean(axis=0),
        np.asarray(own_default, dtype=float) - np.asarray(sibling_default, float).mean(axis=0),
        root_seed=root_seed,
        alpha=None,
        looks=looks,
        resamples=resamples,
    )
    thresholds = tuple(
        float(np.quantile(rho(r[np.isfinite(r).all(axis=1)]), 0.95)) for r in references
    )
    out = []
    for verdict in excess:
        i = verdict.input_id
        risks = tuple(
            float(rho(row[None])[0]) if np.isfinite(row).all() else float("nan")
            for row in tables[i]
        )
        alike = sum(r > t for r, t in zip(risks, thresholds, strict=True))
        losses = np.asarray(own[i], dtype=float)
        risk = float(rho(losses[None])[0]) if np.isfinite(losses).all() else float("nan")
        share = relative.get(i)
        label: Label = "undecided"
        if verdict.verdict == "confirmed":
            label = "this checkpoint"
        elif 2 * alike > len(risks):
            usual = share is not None and usual_relative is not None and share <= usual_relative
            label = "hard for everyone" if usual else "shared with siblings"
        out.append(
            AgainstSiblings(
                input_id=i,
                risks=risks,
                thresholds=thresholds,
                fails_alike=alike,
                excess=verdict,
                z=sibling_z(risk, risks),
                label=label,
            )
        )
    return out


def sibling_z(risk: float, sibling_risks: Any) -> Estimate:
    """(risk - mean of the siblings) / their standard deviation (ddof 1).

    Undefined with a reason: fewer than two complete siblings, no spread, no risk.
    """
    known = np.asarray([r for r in sibling_risks if np.isfinite(r)], dtype=float)
    if not np.isfinite(risk):
        return Estimate.undefined(known.size, "the tested checkpoint has no risk here")
    if known.size < 2:
        return Estimate.undefined(
            known.size, f"{known.size} sibling(s) have no spread; 2 are needed"
        )
    spread = float(known.std(ddof=1))
    if spread == 0:
        return Estimate.undefined(known.size, "the siblings' risks are all equal")
    return Estimate((risk - float(known.mean())) / spread, known.size)
