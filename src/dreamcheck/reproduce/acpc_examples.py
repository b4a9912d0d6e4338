"""The ACPC data's worked examples, recomputed with the project's own consistency functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dreamcheck.diagnostics.consistency import (
    acpc,
    clean_side_bound,
    cost_bound,
    elite_certificate,
    error_drift,
    error_to_future,
    final_displacement,
    final_displacement_bound,
    goal_cost,
    median_bits,
    motion_scale,
    pair_anchors,
    screening_score,
    separation,
    winner_certificate,
)
from dreamcheck.stats import lower_median, quantile


def worked_examples(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every output of the worked examples from their inputs, in the same schema."""
    makers = {
        "acpc": _acpc,
        "certificates": _certificates,
        "ir_sr": _ir_sr,
        "pairing": _pairing,
        "median_split": _median_split,
        "motion_scale": _motion_scale,
    }
    out: dict[str, Any] = {name: make(given[name]) for name, make in makers.items()}
    out["cost_bound"] = [_cost_bound(e) for e in given["cost_bound"]]
    out["score"] = [
        {
            **{k: e[k] for k in ("ir_rel", "sr", "t_ir", "t_sr")},
            "score": screening_score(e["ir_rel"], e["sr"], t_ir=e["t_ir"], t_sr=e["t_sr"]),
        }
        for e in given["score"]
    ]
    return out


def _acpc(e: Mapping[str, Any]) -> dict[str, Any]:
    clean, perturbed = np.array(e["clean"], float), np.array(e["perturbed"], float)
    zero = np.zeros_like(clean)
    uniform = float(acpc(clean, perturbed))
    return {
        "clean": e["clean"],
        "perturbed": e["perturbed"],
        "uniform": uniform,
        "weights_0_1": float(acpc(clean, perturbed, weights=[0, 1])),
        "weights_1_0": float(acpc(clean, perturbed, weights=[1, 0])),
        "final_displacement": float(final_displacement(clean, perturbed)),
        "final_displacement_bound_uniform": final_displacement_bound(
            uniform, last_weight=1 / len(clean)
        ),
        "error_clean_target_zero": float(error_to_future(clean, zero)),
        "error_perturbed_target_zero": float(error_to_future(perturbed, zero)),
        "error_drift": float(error_drift(clean, perturbed, zero)),
    }


def _cost_bound(e: Mapping[str, Any]) -> dict[str, Any]:
    x, y, g = (np.array(e[k], float) for k in ("x", "x_tilde", "g"))
    return {
        "x": e["x"],
        "x_tilde": e["x_tilde"],
        "g": e["g"],
        "cost_change": abs(float(goal_cost(y, g) - goal_cost(x, g))),
        "b": float(cost_bound(x, y, g)),
        "b_clean_only": float(clean_side_bound(x, g, np.linalg.norm(x - y))),
    }


def _certificates(e: Mapping[str, Any]) -> dict[str, Any]:
    g = np.array([e["g"]], float)
    x, y, flipped = (
        np.array(values, float)[:, None] for values in (e["x"], e["x_tilde"], e["flip"]["x_tilde"])
    )
    cost, bound, flip_bound = goal_cost(x, g), cost_bound(x, y, g), cost_bound(x, flipped, g)
    winner = winner_certificate(cost, bound)
    elite = elite_certificate(cost, bound, num_elites=e["topk"])
    w, w_flipped = int(cost.argmin()), int(goal_cost(flipped, g).argmin())
    r = np.abs(x - y)[:, 0]
    return {
        "g": e["g"],
        "x": e["x"],
        "x_tilde": e["x_tilde"],
        "cost": cost.tolist(),
        "cost_tilde": goal_cost(y, g).tolist(),
        "r": r.tolist(),
        "b": bound.tolist(),
        "b_clean_only": clean_side_bound(x, g, r).tolist(),
        "winner": winner.chosen[0],
        "winner_slack": winner.slack,
        "winner_certified": winner.certified,
        "topk": e["topk"],
        "elite": list(elite.chosen),
        "elite_slack": elite.slack,
        "elite_certified": elite.certified,
        "flip": {
            "x_tilde": e["flip"]["x_tilde"],
            "b": flip_bound.tolist(),
            "winner": w,
            "winner_tilde": w_flipped,
            "excess_cost": float(cost[w_flipped] - cost[w]),
            "b_w_plus_b_wtilde": float(flip_bound[w] + flip_bound[w_flipped]),
        },
    }


def _ir_sr(e: Mapping[str, Any]) -> dict[str, Any]:
    raw = quantile(e["mean_normalised_acpc"], 0.9)
    separated = separation(e["different_distance"], raw_radius=raw, margin=e["delta"])
    return {
        "mean_normalised_acpc": e["mean_normalised_acpc"],
        "raw_ir_q90": raw,
        "raw_ir_q80": quantile(e["mean_normalised_acpc"], 0.8),
        "different_distance": e["different_distance"],
        "delta": e["delta"],
        "threshold": separated.threshold,
        "sr": separated.rate,
    }


def _pairing(e: Mapping[str, Any]) -> dict[str, Any]:
    pairing = pair_anchors(e["states"], e["labels"])
    return {
        "states": e["states"],
        "labels": e["labels"],
        "cutoff_q35": pairing.cutoff,
        "neighbour": list(pairing.neighbour),
        "eligible": pairing.eligible,
    }


def _median_split(e: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "values": e["values"],
        "threshold_lower_median": lower_median(e["values"]),
        "bit": [int(b) for b in median_bits(e["values"])],
    }


def _motion_scale(e: Mapping[str, Any]) -> dict[str, Any]:
    frames = np.array(e["frames"], float)
    return {
        "frames": e["frames"],
        "step_lengths": np.linalg.norm(np.diff(frames, axis=0), axis=1).tolist(),
        "scale": float(motion_scale(frames)),
    }
