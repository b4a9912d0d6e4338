"""One search of a study as the page shows it: sentences, charts and rows, all from records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.evidence import Shown, values_text
from dreamcheck.reports import charts
from dreamcheck.reports.availability import availability
from dreamcheck.reports.beyond import beyond
from dreamcheck.reports.cards import confirmed_titles, failure_cards
from dreamcheck.reports.pictures import data_uri
from dreamcheck.reports.reading import Reader, slug
from dreamcheck.reports.svg import series_css

MOST_ROWS = 500
"""Evaluated inputs in the page's table; a larger study shows the worst ones and says so."""

STRATA = (("in", "in"), ("edge", "edge"), ("out", "out"), ("not measured", None))
"""How the page calls an input's support, and what the records hold."""

FAR = 99.0
"""Percentile beyond which an imagined latent is far from every training frame."""


def search_section(reader: Reader, search: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the page shows of one search."""
    spec = search["specification"]
    found = reader.payloads("finding", spec=spec, group="shortlist")
    found.sort(key=lambda f: (-(_number(f["risk"]) or 0.0), f["input"]))
    evaluations = reader.payloads("evaluation", spec=spec)
    traces = reader.payloads("trace", spec=spec)
    library = next(iter(reader.payloads("library", spec=spec)))
    names = library["names"]
    random = reader.payloads("finding", spec=spec, group="random-shortlist")
    for f in (*found, *random):
        f["values"] = {n: f["values"][n] for n in names}
    strips = _strips(reader, spec, found)
    values = _values(reader, names)
    rows = [{**e, "values": values[e["input"]]} for e in evaluations]
    return {
        "name": spec,
        "role": search["role"],
        "primary": search["primary"],
        "budget": search["budget"],
        "id": slug(spec),
        "counts": _counts(reader, spec, library["key"]),
        "library": library,
        "findings": [_finding_row(reader, f) for f in found],
        "random": [_finding_row(reader, f) for f in random],
        "strips": strips,
        "cards": failure_cards(reader, spec, confirmed_titles(found)),
        "arena": _arena(reader, rows, strips),
        "legend": charts.legend_bar(
            max((r["risk"] for r in rows if r["risk"] is not None), default=0.0), reader.unit
        ),
        "best_chart": charts.best_so_far(traces, unit=reader.unit),
        "methods": _methods(reader, spec, traces),
        "held_out": _held_out(reader, spec, found),
        "availability": availability(reader, spec),
        "shrinkage": _shrinkage(reader, spec, found),
        "neighbourhood": _neighbourhood(reader, spec),
        "beyond": beyond(reader, spec, names=names),
        "evaluated": _evaluated(reader, rows, traces),
        "evaluated_total": len(rows),
    }


def _counts(reader: Reader, spec: str, library_key: str) -> dict[str, Shown]:
    n = f"{slug(spec)}."
    shortlist = {"spec": spec, "group": "shortlist"}
    return {
        "valid": reader.field("library", library_key, "num_valid", "{}"),
        "tuples": reader.field("library", library_key, "num_tuples", "{}"),
        "evaluated": reader.count(n + "evaluated", "evaluation", spec=spec),
        "restarts": reader.numbers.number(
            n + "restarts",
            "count-distinct",
            query={"kind": "trace", "where": {"spec": spec}},
            params={"path": "restart_seed"},
        ),
        "shortlisted": reader.count(n + "shortlisted", "finding", **shortlist),
        "confirmed": reader.count(n + "confirmed", "finding", **shortlist, verdict="confirmed"),
        "refuted": reader.count(n + "refuted", "finding", **shortlist, verdict="refuted"),
        "own": reader.count(n + "own", "finding", **shortlist, own_failure=True),
        "headlines": reader.count(n + "headlines", "finding", **shortlist, headline=True),
        "random_confirmed": reader.count(
            n + "random-confirmed",
            "finding",
            spec=spec,
            group="random-shortlist",
            verdict="confirmed",
        ),
        "random_listed": reader.count(
            n + "random-listed", "finding", spec=spec, group="random-shortlist"
        ),
        "strata": [  # type: ignore[dict-item]
            {
                "name": name,
                "evaluated": reader.count(
                    f"{n}stratum-{slug(name)}.evaluated", "evaluation", spec=spec, stratum=stratum
                ),
                "shortlisted": reader.count(
                    f"{n}stratum-{slug(name)}", "finding", **shortlist, stratum=stratum
                ),
                "confirmed": reader.count(
                    f"{n}stratum-{slug(name)}.confirmed",
                    "finding",
                    **shortlist,
                    stratum=stratum,
                    verdict="confirmed",
                ),
            }
            for name, stratum in STRATA
        ],
    }


def _finding_row(reader: Reader, f: Mapping[str, Any]) -> dict[str, Any]:
    key = f["key"]

    def show(path: str, fmt: str = "{:.2f}") -> Shown:
        return reader.field("finding", key, path, fmt)

    return {
        **f,
        "title": values_text(f["values"]),
        "shown": {
            "risk": show("risk"),
            "low": show("numbers.low"),
            "high": show("numbers.high"),
            "threshold": show("numbers.threshold"),
            "default": show("default_risk"),
            "frozen": show("frozen_risk"),
            "relative": show("relative_risk"),
            "usual": show("usual_relative_risk"),
            "floor": show("floor_risk"),
            "floor_share": show("floor_share", "{:.0%}"),
            "excess_low": show("excess_numbers.low"),
            "readout": show("readout_error"),
            "disagreement": show("probe_disagreement"),
            "contact": show("activity.contact", "{:.1f}"),
            "jump": show("activity.discontinuity", "{:.1f}"),
            "support_state": show("support.state", "{:.0f}"),
            "support_latent": show("support.latent", "{:.0f}"),
            "seeds": show("num_seeds", "{}"),
            "score": show("search_score"),
        },
    }


def _strips(reader: Reader, spec: str, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    stored = {s["input"]: s for s in reader.payloads("strip", spec=spec)}
    by_input = {f["input"]: f for f in found}
    default = stored.get("default-reset")
    order = [f["input"] for f in found if f["input"] in stored]
    out = []
    for number, name in enumerate(order, start=1):
        strip = stored[name]
        frames = reader.store.artifacts.get_arrays(strip["artifacts"]["frames"])
        history, frameskip = strip["history"], strip["frameskip"]
        imagined = frames.get("imagined")
        worst = max(strip["steps"]) or 1.0
        cells = []
        for k, frame in enumerate(frames["real"]):
            step = k - history + 1
            cell: dict[str, Any] = {
                "real": data_uri(frame),
                "time": k * frameskip,
                "step": step,
                "observed": step <= 0,
            }
            if step > 0:
                i = step - 1
                cell["error"] = reader.field(
                    "strip", strip["key"], f"steps.{i}", "{:.1f} " + reader.unit
                )
                cell["share"] = strip["steps"][i] / worst
                if imagined is not None:
                    cell["imagined"] = data_uri(imagined[i])
                support = strip["support_imagined"]
                cell["far"] = bool(support) and support[i] > FAR
            cells.append(cell)
        out.append(
            {
                "number": number,
                "input": name,
                "finding": _finding_row(reader, by_input[name]),
                "title": values_text(by_input[name]["values"]),
                "seed": reader.field("strip", strip["key"], "seed", "{}"),
                "loss": reader.field("strip", strip["key"], "loss", "{:.2f} " + reader.unit),
                "kind": strip["imagined_kind"],
                "cells": cells,
                "path": strip["path"],
                "imagined": strip.get("imagined_states"),
                "history_end": strip["true_states"][history - 1],
                "chart": _steps_chart(reader, name, has_default=default is not None),
                "any_far": any(c.get("far") for c in cells),
            }
        )
    return out


def _steps_chart(reader: Reader, name: str, *, has_default: bool) -> str:
    def rows(input_id: str, path: str) -> list[list[float]]:
        return [
            m[path]
            for m in reader.payloads(
                "measurement",
                input=input_id,
                partition="validation",
                interface=reader.subject["interface"],
            )
            if m["failure"] is None
        ]

    curves: list[dict[str, Any]] = [
        {"name": "this input", "css": "c1", "rows": rows(name, "step_losses")},
        {
            "name": "frozen world",
            "css": "neutral",
            "rows": rows(name, "frozen_step_losses"),
            "band": False,
        },
    ]
    if has_default:
        curves.insert(
            1,
            {"name": "default reset", "css": "c3", "rows": rows("default-reset", "step_losses")},
        )
    return charts.error_by_step(
        [c for c in curves if c["rows"]], unit=reader.unit, frameskip=reader.subject["frameskip"]
    )


def _arena(
    reader: Reader, rows: Sequence[Mapping[str, Any]], strips: Sequence[Mapping[str, Any]]
) -> str | None:
    if not any("start_x" in r["values"] for r in rows):
        return None
    picture = None
    record = reader.store.get("arena", reader.subject["task"])
    if record is not None:
        arrays = reader.store.artifacts.get_arrays(record.payload["artifacts"]["picture"])
        picture = data_uri(arrays["picture"])
    return charts.arena(picture, rows, strips, unit=reader.unit)


def _methods(
    reader: Reader, spec: str, traces: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    out = []
    for place, method in enumerate(dict.fromkeys(t["method"] for t in traces)):
        own = [t for t in traces if t["method"] == method]
        query = {"kind": "trace", "where": {"spec": spec, "method": method}}
        best = reader.numbers.number(
            f"{slug(spec)}.best.{method}", "trace-best-mean", query=query, format="{:.2f}"
        )
        sem = reader.numbers.number(
            f"{slug(spec)}.best-sem.{method}", "trace-best-sem", query=query, format="{:.2f}"
        )
        out.append(
            {
                "name": method,
                "css": series_css(place),
                "best": best,
                "sem": sem,
                "restarts": reader.count(
                    f"{slug(spec)}.restarts.{method}", "trace", spec=spec, method=method
                ),
                "queries": reader.over(
                    f"{slug(spec)}.queries.{method}", "length", "trace", "queries", "{}",
                    spec=spec, method=method,
                ),
                "exhausted": any(t["exhausted"] for t in own),
            }
        )  # fmt: skip
    return out


def _held_out(
    reader: Reader, spec: str, found: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    if not found:
        return None
    findings = {f["input"]: f for f in reader.payloads("finding", spec=spec)}
    groups: dict[str, list[dict[str, Any]]] = {}
    held = {"spec": spec, "partition": "validation"}
    for v in reader.payloads("validation", **held):
        f = findings.get(v["input"])
        numbers = f["numbers"] if f and v["group"] in ("shortlist", "random-shortlist") else {}
        groups.setdefault(v["group"], []).append(
            {
                "risk": v["risk"],
                "low": _number(numbers.get("low")),
                "high": _number(numbers.get("high")),
                "verdict": v["verdict"],
                "title": f"{charts.GROUP_NAMES[v['group']]}: {v['input'][:10]}, "
                + ("failed" if v["risk"] is None else f"{v['risk']:.2f} {reader.unit}")
                + (f", {v['verdict']}" if v["verdict"] else ""),
            }
        )
    first = found[0]
    n = slug(spec)
    where = {"kind": "validation", "where": {**held, "group": "reference"}}

    def mean_of(group: str) -> Shown:
        return reader.over(
            f"{n}.mean-risk.{group}", "mean", "validation", "risk", **held, group=group
        )

    return {
        "chart": charts.held_out(
            groups,
            threshold=_number(first["numbers"]["threshold"]),
            median=_number(first["numbers"]["median"]),
            unit=reader.unit,
        ),
        "threshold": reader.field("finding", first["key"], "numbers.threshold"),
        "median": reader.field("finding", first["key"], "numbers.median"),
        "default": reader.field("finding", first["key"], "default_risk"),
        "references": reader.numbers.number(f"{n}.references", "count", query=where),
        "mean_found": mean_of("shortlist"),
        "mean_random": mean_of("random-shortlist"),
        "seed_share": reader.field("finding", first["key"], "seed_share", "{:.0%}"),
        "seeds": reader.numbers.number(
            f"{n}.validation-seeds", "seeds", query={"kind": "validation", "where": held}
        ),
    }


def _shrinkage(
    reader: Reader, spec: str, found: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    rows = [
        {"search_score": f["search_score"], "risk": f["risk"], "title": values_text(f["values"])}
        for f in found
        if f["search_score"] is not None and f["risk"] is not None
    ]
    if len(rows) < 3:
        return None
    return {
        "chart": charts.shrinkage(rows, unit=reader.unit),
        "slope": reader.numbers.number(
            f"{slug(spec)}.shrinkage",
            "shrinkage-slope",
            query={"kind": "finding", "where": {"spec": spec, "group": "shortlist"}},
            format="{:.2f}",
        ),
    }


def _neighbourhood(reader: Reader, spec: str) -> dict[str, Any] | None:
    record = reader.store.get("persistence", spec)
    if record is None:
        return None
    p = record.payload
    default = p["default"]
    groups: dict[str, list[float]] = {}
    if default.get("top"):
        groups["top, excess risk"] = [u["mean"] for u in default["top"]]
        groups["matched controls"] = [u["mean"] for u in default["control"]]
    raw = {
        f"{name} anchors": [v for v in values if v is not None]
        for name, values in p["raw_means"].items()
    }

    def show(path: str, fmt: str = "{:.2f}") -> Shown:
        return reader.field("persistence", spec, path, fmt)

    return {
        "default_chart": charts.neighbourhoods(groups, unit=f"excess risk, {reader.unit}")
        if groups
        else None,
        "raw_chart": charts.neighbourhoods(raw, unit=f"risk, {reader.unit}"),
        "default": default,
        "tested": default.get("test") is not None,
        "difference": show("default.test.difference"),
        "p": show("default.test.p", "{:.2g}"),
        "num_top": show("num_inputs", "{}"),
        "seeds": show("num_seeds", "{}"),
        "paper": {
            name: {
                "p": show(f"paper.{name}.test.p", "{:.2g}"),
                "difference": show(f"paper.{name}.test.difference"),
                "reason": test["reason"],
                "tested": test["test"] is not None,
            }
            for name, test in p["paper"].items()
        },
        "mode": p["mode"],
    }


def _evaluated(
    reader: Reader, rows: Sequence[Mapping[str, Any]], traces: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    asked: dict[str, list[str]] = {}
    for t in traces:
        for i in t["queries"]:
            if t["method"] not in asked.setdefault(i, []):
                asked[i].append(t["method"])
    ranked = sorted(rows, key=lambda r: -(r["risk"] if r["risk"] is not None else -1.0))
    out = []
    for r in ranked[:MOST_ROWS]:
        key = r["key"]
        out.append(
            {
                "input": r["input"],
                "values": r["values"],
                "stratum": r["stratum"],
                "methods": ", ".join(asked.get(r["input"], [])),
                "failure": r["failure"],
                "risk": reader.field("evaluation", key, "risk"),
                "frozen": reader.field("evaluation", key, "frozen_risk"),
                "floor": reader.field("evaluation", key, "floor_risk"),
                "contact": reader.field("evaluation", key, "activity.contact", "{:.1f}"),
                "sort": r["risk"],
            }
        )
    return out


def _values(reader: Reader, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Typed values of every measured input of a specification, by id, in its own order."""
    found: dict[str, dict[str, Any]] = {}
    for m in reader.payloads("measurement"):
        if m["values"] is not None and set(m["values"]) == set(names):
            found[m["input"]] = {n: m["values"][n] for n in names}
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
