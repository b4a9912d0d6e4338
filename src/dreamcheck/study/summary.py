"""What a study found, read from its records alone."""

from __future__ import annotations

from typing import Any

from dreamcheck.evidence import Store


def findings(store: Store, *, group: str = "shortlist") -> list[dict[str, Any]]:
    """Findings of a group, the searched training distribution first, largest risk first.

    Values in the order of their specification; a record keeps them sorted by name.
    """
    names = {r.payload["spec"]: r.payload["names"] for r in store.records("library")}
    rows = [
        f | {"values": {n: f["values"][n] for n in names.get(f["spec"], f["values"])}}
        for f in (r.payload for r in store.records("finding", group=group))
    ]
    return sorted(
        rows,
        key=lambda f: (f["role"] != "inside", -(f["risk"] or 0.0), f["input"]),
    )


def worst(store: Store, *, count: int = 3) -> list[dict[str, Any]]:
    """The worst inputs to talk about: in support, inside the training distribution.

    Where fewer were found, inputs at the edge or out of it follow; each carries its stratum.
    """
    inside = [f for f in findings(store) if f["role"] == "inside" and f["risk"] is not None]
    order = {"in": 0, "edge": 1, "out": 2, None: 3}
    return sorted(inside, key=lambda f: (order[f["stratum"]], -f["risk"], f["input"]))[:count]


def unit_of(store: Store) -> str:
    """Unit of the study's losses, e.g. "px", from its interface record."""
    for record in store.records("interface"):
        target = record.payload["target"]
        return target[target.index("(") + 1 : -1]
    return ""


def as_dict(store: Store) -> dict[str, Any]:
    """The study's outcome for machines: searches, findings and persistence tests."""
    return {
        "protocol_digest": store.protocol_digest,
        "records": store.kinds(),
        "searches": [
            {
                "specification": r.payload["spec"],
                "method": r.payload["method"],
                "restart_seed": r.payload["restart_seed"],
                "queries": len(r.payload["queries"]),
                "best": max((o for o in r.payload["outcomes"] if o is not None), default=None),
                "exhausted": r.payload["exhausted"],
            }
            for r in store.records("trace")
        ],
        "worst": worst(store),
        "findings": findings(store),
        "random_shortlist": findings(store, group="random-shortlist"),
        "time_plans": [r.payload for r in store.records("time-plan")],
        "prevalence": [r.payload for r in store.records("prevalence")],
        "persistence": [r.payload for r in store.records("persistence")],
    }
