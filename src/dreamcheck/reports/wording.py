"""The report's sentences: what was found, and what it does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dreamcheck.reports.reading import Reader


def opening(reader: Reader, sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first screen: the main section, its worst finding, and which verdict leads.

    verdict: "fails" when a confirmed failure is the model's own and in support, "suspect" when
    something was confirmed that may be hard for every model or lies out of support, "clear" when
    nothing was confirmed, "unread" when the probe is too coarse for what was found.
    """
    inside = [s for s in sections if s["role"] == "inside"]
    main = inside[0] if inside else (sections[0] if sections else None)
    if main is None or not main["findings"]:
        return {"verdict": "nothing", "section": main, "worst": None}
    findings = main["findings"]
    headlines = [f for f in findings if f["headline"]]
    confirmed = [f for f in findings if f["verdict"] == "confirmed"]
    if headlines:
        verdict, worst = "fails", headlines[0]
    elif confirmed and not any(f["readout_trusted"] for f in confirmed):
        verdict, worst = "unread", confirmed[0]
    elif confirmed:
        verdict, worst = "suspect", confirmed[0]
    else:
        verdict, worst = "clear", findings[0]
    strip = next((s for s in main["strips"] if s["input"] == worst["input"]), None)
    return {"verdict": verdict, "section": main, "worst": worst, "strip": strip}


def limits(reader: Reader, sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a careful reader must know before quoting a number."""
    subject = reader.subject
    notes = [
        "One checkpoint was tested. What is said here speaks of it, not of the recipe that made it; "
        "a claim about a recipe needs several training runs.",
        "Restarts of a search over one table of measurements differ only in the search's own "
        "randomness: their spread says nothing about other checkpoints or tasks, and no method is "
        "claimed to beat another.",
    ]
    if subject["deterministic"]:
        notes.append(
            "The simulator is deterministic after its reset. An environment seed drives the noise "
            "of the behaviour policy: seeds vary which actions follow the input, nothing else."
        )
    if subject["readout"] is not None:
        notes.append(
            "Positions are read from latents by two cross-fitted probes, on both sides of the "
            "comparison. A finding whose risk is not well above the probes' own held-out error "
            "never becomes a headline."
        )
    else:
        notes.append(
            "The model brings no state readout, so the environment's own sensitivity and the error "
            "in task units were not measured."
        )
    if subject["support_rows"] is None:
        notes.append(
            "The model brings no reference of its training data: how far the findings lie from it "
            "was not measured, so none of them is a headline."
        )
    if any(s["strips"] and "nearest" in s["strips"][0]["kind"] for s in sections):
        notes.append(
            "The model has no decoder. The lower row of a film strip shows the training frame "
            "nearest to each imagined latent: a proxy, greyed where the latent is farther from "
            "training than 99 % of training frames are from each other."
        )
    return notes
