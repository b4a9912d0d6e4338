"""Failure cards as the page shows them: what each exchanged part explains, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.evidence import Shown, values_text
from dreamcheck.reports import charts
from dreamcheck.reports.reading import Reader, slug

PARTS = (
    ("loss", "error of the forecast"),
    ("true_loss", "error against the true state, not the probe on real frames"),
    ("readout_error", "the readout's own error on real frames"),
    ("foreign_change", "added when actions come from other rollouts"),
)


def failure_cards(
    reader: Reader, spec: str, titles: Mapping[str, str]
) -> list[dict[str, Any]] | None:
    """Cards of a search's confirmed failures, the default reset's beside each; None without.

    titles: input id -> how the page calls it, in the page's order.
    """
    stored = {c["input"]: c for c in reader.payloads("card", spec=spec)}
    default = stored.pop("default-reset", None)
    cards = []
    for name in (n for n in titles if n in stored):
        card = stored[name]
        if "failure" in card:
            cards.append({"title": titles[name], "failure": card["failure"]["reason"]})
            continue
        cards.append(
            {
                "title": titles[name],
                "failure": None,
                "rows": [
                    {
                        "part": text,
                        "here": _triple(reader, card, f"shown.{part}"),
                        "default": _triple(reader, default, f"shown.{part}"),
                    }
                    for part, text in PARTS
                    if part in card["shown"]
                ],
                "response": _response(reader, card),
                "default_response": _response(reader, default),
                "half_step": _half_step(reader, card),
                "reencoded": _half_step(reader, card, part="reencoded"),
                "reencoded_reason": card["reencoded_reason"],
                "chart": _chart(card, default, unit=reader.unit),
            }
        )
    return cards or None


def _triple(reader: Reader, card: Mapping[str, Any] | None, path: str) -> dict[str, Shown] | None:
    if card is None or "failure" in card:
        return None
    return {
        name: reader.field("card", card["key"], f"{path}.{name}", "{:.2f}")
        for name in ("mean", "low", "high")
    }


def _response(reader: Reader, card: Mapping[str, Any] | None) -> Shown | None:
    """How far the forecast moves under other actions, over how far the real future moves."""
    if card is None or "failure" in card or "real_response" not in card["shown"]:
        return None
    return reader.numbers.number(
        f"card/{slug(card['key'])}/response",
        "ratio",
        query={"kind": "card", "keys": [card["key"]]},
        params={"path": "columns.imagined_response", "over": "columns.real_response"},
        format="{:.0%}",
    )


def _half_step(
    reader: Reader, card: Mapping[str, Any], *, part: str = "replaced"
) -> dict[str, Any] | None:
    """The first step that holds half of the error after it: what exchanging it removes."""
    if card["half_step"] is None or not card["shown"].get(part):
        return None
    path = f"shown.{part}.{card['half_step'] - 1}"
    return {
        "step": reader.field("card", card["key"], "half_step", "{}"),
        "removed": _triple(reader, card, path),
        "share": reader.field("card", card["key"], f"{path}.share", "{:.0%}"),
    }


def _chart(card: Mapping[str, Any], default: Mapping[str, Any] | None, *, unit: str) -> str | None:
    rows = card["shown"].get("replaced")
    if not rows:
        return None
    curves: list[dict[str, Any]] = [{"css": "c1", "name": "real latent", "rows": rows}]
    if card["shown"].get("reencoded"):
        curves.append({"css": "c2", "name": "re-encoded", "rows": card["shown"]["reencoded"]})
    if default is not None and default.get("shown", {}).get("replaced"):
        curves.append(
            {
                "css": "c3",
                "name": "default reset, real latent",
                "rows": default["shown"]["replaced"],
            }
        )
    return charts.error_removed(curves, unit=unit)


def confirmed_titles(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the page calls the confirmed inputs, in its order."""
    return {f["input"]: values_text(f["values"]) for f in found if f["verdict"] == "confirmed"}
