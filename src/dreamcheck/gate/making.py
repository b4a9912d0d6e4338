"""A bank from a study: its confirmed failures, and as many sentinels drawn without looking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dreamcheck.errors import Abstention
from dreamcheck.evidence import DEFAULT_RESET, Store, Validation, entry_of
from dreamcheck.gate.bank import Bank, BankEntry, Measured, Role


def bank_from_study(directory: str | Path, *, sentinels: int | None = None) -> Bank:
    """Every confirmed in-library failure of a study, with matched sentinels.

    Sentinels are the default reset and random inputs of the study's reference and random
    shortlist groups that were not themselves confirmed, in the order they were drawn.

    Args:
        sentinels: random inputs to keep; default: as many as failures, at least 8.

    Raises:
        Abstention: the study confirmed nothing, or was never validated.
    """
    with Store.read(directory) as store:
        findings = [r.payload for r in store.records("finding")]
        confirmed = [f for f in findings if f["verdict"] == "confirmed"]
        if not confirmed:
            told = "none of its inputs was confirmed" if findings else "it was never validated"
            raise Abstention(
                f"{directory} gives no bank: {told}. Run `dreamcheck validate {directory}` with "
                "more seeds or a larger budget; a bank of unconfirmed inputs would test noise."
            )
        subject = [r.payload for r in store.records("subject")][-1]
        interface = next(iter(store.records("interface"))).payload
        validations: list[Validation] = [
            entry_of(r) for r in store.records("validation", partition="validation")
        ]
        values = _values(store)
        protocol = dict(store.protocol)
        seeds = store.seeds
    levels = {f["spec"]: float(f["numbers"]["threshold"]) for f in findings}
    stratum = {f["input"]: f["stratum"] for f in findings}
    # A shortlisted and a randomly drawn confirmed input are both failures: one entry each.
    chosen = {f["input"]: f for f in confirmed}
    entries = [
        BankEntry(
            id=i,
            role="failure",
            specification=f["spec"],
            values=f["values"],
            risk=f["risk"],
            frozen_risk=f["frozen_risk"],
            stratum=f["stratum"],
        )
        for i, f in chosen.items()
    ]
    wanted = max(8, len(entries)) if sentinels is None else sentinels
    kept: dict[str, BankEntry] = {}
    reset: BankEntry | None = None
    for v in validations:
        if v.risk is None or v.input in chosen:
            continue
        role: Role = "default-reset" if v.group == "default-reset" else "random"
        if v.group == "shortlist" or v.risk > levels[v.spec]:
            continue  # a sentinel is something that passed
        entry = BankEntry(
            id=v.input,
            role=role,
            specification=v.spec,
            values=None if v.input == DEFAULT_RESET else values[v.input],
            risk=v.risk,
            frozen_risk=v.frozen_risk,
            stratum=stratum.get(v.input, v.stratum),
        )
        if role == "default-reset":
            reset = reset or entry
        elif len(kept) < wanted:
            kept.setdefault(v.input, entry)
    readout = subject["readout"]
    return Bank(
        title=str(protocol.get("title", Path(directory).name)),
        model=subject["identity"],
        measured=Measured(
            task=subject["task"],
            task_version=subject["task_version"],
            package_version=subject["package_version"],
            policy=subject["policy"]["name"],
            policy_digest=interface["policy"],
            target=subject["target"],
            unit=subject["unit"],
            columns=tuple(name for name, _ in readout["columns"]) if readout else (),
            history=subject["history"],
            forecast=subject["forecast"],
            frameskip=subject["frameskip"],
            levels=levels,
        ),
        protocol=protocol,
        used_seeds=tuple(sorted({s for part in seeds.values() for s in part})),
        entries=(*entries, *([reset] if reset else []), *kept.values()),
    )


def _values(store: Store) -> dict[str, dict[str, Any]]:
    """Typed values of every measured input, by id."""
    out: dict[str, dict[str, Any]] = {}
    for record in store.records("measurement"):
        if record.payload.get("values") is not None:
            out[record.payload["input"]] = record.payload["values"]
    return out
