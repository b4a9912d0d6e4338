"""Failure cards: what each part of a confirmed failure explains, by substitution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dreamcheck.errors import DreamcheckError
from dreamcheck.imagination.substitution import Substitutions, substitute
from dreamcheck.stats import bootstrap_interval
from dreamcheck.study.config import Search
from dreamcheck.study.measuring import CONTROL, Asked
from dreamcheck.study.study import Study

HALF = 0.5
"""Share of the later error from which on a step is said to hold it. Ours."""


def card(study: Study, search: Search, findings: Sequence[Mapping[str, Any]]) -> None:
    """A card for every confirmed failure of the shortlist, and one for the default reset.

    All on the validation seeds of the first look; a card that is stored is not made again.

    Source: spec/discovery.md, failure card.
    """
    confirmed = [f for f in findings if f["group"] == "shortlist" and f["verdict"] == "confirmed"]
    if not confirmed:
        return
    wanted = [Asked(f["input"], f["values"]) for f in confirmed] + [CONTROL]
    with study.progress.stage(f"card {search.specification}", len(wanted), unit="cards") as stage:
        for asked in wanted:
            key = f"{search.specification}:{asked.id}"
            if study.store.get("card", key) is None:
                study.keep("card", key, _payload(study, search, asked))
            stage.advance()


def _payload(study: Study, search: Search, asked: Asked) -> dict[str, Any]:
    seeds = study.seeds("validation")[: study.config.checks.validation_steps[0]]
    payload: dict[str, Any] = {
        "spec": search.specification,
        "input": asked.id,
        "values": asked.values,
        "interface": study.interface,
        "partition": "validation",
        "seeds": list(seeds),
    }
    inputs = None if asked.values is None else [asked.values] * len(seeds)
    try:
        found = substitute(study.probe, inputs, seeds, identity=asked.id)
    except DreamcheckError as e:
        return payload | {"failure": {"kind": "nan", "reason": str(e)}}
    return payload | _numbers(found, identity=asked.id, root_seed=study.config.root_seed)


def _numbers(found: Substitutions, *, identity: str, root_seed: int) -> dict[str, Any]:
    """Per-seed values as they are, and for each part the mean with its 95 % interval over seeds."""

    def interval(name: str, values: np.ndarray) -> dict[str, Any]:
        if len(values) < 2:
            return {"mean": float(values.mean()), "low": None, "high": None}
        b = bootstrap_interval(values, root_seed=root_seed, identity=f"card:{identity}:{name}")
        return {"mean": b.value, "low": b.low, "high": b.high, "degenerate": b.degenerate}

    columns = {
        name: value.tolist() for name, value in vars(found).items() if isinstance(value, np.ndarray)
    }
    shown: dict[str, Any] = {"loss": interval("loss", found.loss)}
    if found.readout_error is not None:
        shown["readout_error"] = interval("readout", found.readout_error)
    if found.true_loss is not None:
        shown["true_loss"] = interval("true", found.true_loss)
    shown["foreign_change"] = interval("foreign", found.foreign_loss - found.loss)
    shown["imagined_response"] = interval("imagined-response", found.imagined_response)
    if found.real_response is not None:
        shown["real_response"] = interval("real-response", found.real_response)
    if found.replaced_before is not None and found.replaced_after is not None:
        for name, after in (
            ("replaced", found.replaced_after),
            ("reencoded", found.reencoded_after),
        ):
            if after is None:
                continue
            removed = found.replaced_before - after
            later = found.replaced_before.mean(axis=0)
            shown[name] = [
                interval(f"{name}-{k}", removed[:, k])
                | {
                    "step": k + 1,
                    "share": float(removed[:, k].mean() / later[k]) if later[k] else 0.0,
                }
                for k in range(removed.shape[1])
            ]
    return {
        "columns": columns,
        "shown": shown,
        "reencoded_reason": found.reencoded_reason,
        "half_step": _half_step(shown.get("replaced")),
    }


def _half_step(replaced: Sequence[Mapping[str, Any]] | None) -> int | None:
    """The first step whose replacement removes half of the error after it; None where none does.

    By then the error is in the latent; before, it was still to come.
    """
    return next((int(r["step"]) for r in replaced or () if r["share"] >= HALF), None)
