"""Planning results on a checkpoint's model card, each with the command that gives it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dreamcheck.digest import plain
from dreamcheck.errors import UsageError
from dreamcheck.evidence.artifacts import write_whole
from dreamcheck.models.checkpoint import write_json
from dreamcheck.training.card import card_text


def plan_entry(result: Mapping[str, Any], *, command: str) -> dict[str, Any]:
    """What the card says of an evaluation, from ``Evaluation.to_dict()``."""
    realised = result["realised"]
    return {
        "kind": "plan",
        "command": command,
        "label": realised["label"],
        "collision": realised["protocol"]["collision"],
        "episodes": realised["num_cases"],
        "already_solved": result["planner"]["num_trivial"],
        "streams": realised["streams"],
        "numerics": realised["numerics"],
        "data_digest": realised["data_digest"],
        "list_digest": realised["list_digest"],
        "arms": {
            name: {
                "success": arm["success"],
                "legal_success": arm["legal_success"],
                "mean_final_distance": arm["mean_final_distance"],
            }
            for name, arm in {"planner": result["planner"], **result["controls"]}.items()
        },
        "optimism": result["optimism"]["distance"],
        "optimism_se": result["optimism"]["distance_se"],
        "unit": result["unit"],
    }


def explain_entry(result: Mapping[str, Any], *, command: str) -> dict[str, Any]:
    """What the card says of an explanation, from ``Explanation.to_dict()``."""
    return {
        "kind": "explain",
        "command": command,
        "label": result["label"],
        "episodes": result["num_cases"],
        "already_solved": result["num_trivial"],
        "streams": result["realised"]["streams"],
        "search_factor": result["search_factor"],
        "numerics": result["realised"]["numerics"],
        "list_digest": result["realised"]["list_digest"],
        "cells": {k: v["success"] for k, v in result["cells"].items()},
        "controls": {k: v["success"] for k, v in result["controls"].items()},
        "waterfall": [{"name": b["name"], "flip": b["flip"]} for b in result["waterfall"]],
        "swaps": result["swaps"],
        "failed": result["label_counts"],
    }


def add_to_card(folder: str | Path, name: str, entry: Mapping[str, Any]) -> None:
    """Write an entry into card.json and card.md of a checkpoint's folder, replacing its like.

    Raises:
        UsageError: the folder has no card.
    """
    folder = Path(folder)
    path = folder / "card.json"
    if not path.is_file():
        raise UsageError(
            f"{folder} has no card.json: only a checkpoint of `dreamcheck train` carries a card."
        )
    card = json.loads(path.read_text(encoding="utf-8"))
    card["planning"] = {**card.get("planning", {}), name: plain(dict(entry))}
    write_json(path, card)
    write_whole(folder / "card.md", card_text(card).encode("utf-8"))
