"""The model card: what was done, what came out, and by how much it clears its floors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dreamcheck.training.recipe import Floors

LIMITS = {
    "tworoom": "Trained on one fixed layout and speed: doors, walls, colours, radii and speeds "
    "were never varied, so inputs that change them are out of its training distribution.",
    "pusht": "A small model of a weak policy's data, made to be looked at by the diagnostics, not "
    "to plan with. Shapes, colours and scales were never varied; the goal is not in the picture.",
}


@dataclass(frozen=True, slots=True)
class FloorCheck:
    """One floor: the measured value, the bound, whether it holds, and the margin in words."""

    name: str
    value: float
    bound: str
    met: bool
    margin: str


def check_floors(
    floors: Floors, *, probe_r2: float, one_step_ratio: float, mode_gap: float, size_mb: float
) -> list[FloorCheck]:
    """Every floor with its margin.

    mode_gap: evaluation loss / loss with batch statistics and dropout off, on held-out clips.
    """
    folded = max(mode_gap, 1 / mode_gap)
    return [
        FloorCheck(
            "network probe R2 on held-out episodes",
            probe_r2,
            f">= {floors.probe_r2}",
            probe_r2 >= floors.probe_r2,
            f"{probe_r2 - floors.probe_r2:+.4f}",
        ),
        FloorCheck(
            "one-step error / frozen world",
            one_step_ratio,
            f"<= {floors.one_step_ratio}",
            one_step_ratio <= floors.one_step_ratio,
            f"{floors.one_step_ratio / one_step_ratio:.1f} x below",
        ),
        FloorCheck(
            "evaluation loss / batch-statistics loss after recalibration",
            mode_gap,
            f"within [1/{floors.mode_gap}, {floors.mode_gap}]",
            folded <= floors.mode_gap,
            f"factor {folded:.3f} of {floors.mode_gap}",
        ),
        FloorCheck(
            "size of the checkpoint folder, MB",
            size_mb,
            f"<= {floors.size_mb}",
            size_mb <= floors.size_mb,
            f"{floors.size_mb - size_mb:+.2f}",
        ),
    ]


def card_text(card: Mapping[str, Any]) -> str:
    """The card as Markdown. Every number comes from ``card``, which is card.json."""
    data, steps = card["data"], card["training"]
    one, gap = card["one_step"], card["mode_gap"]
    lines = [
        f"# {card['name']}",
        "",
        f"A LeWM world model of {card['parameters']:,} parameters, trained on {data['task']} by "
        f"`dreamcheck train --preset {card['name']}`. This card was written by that command.",
        "",
        "## Training",
        "",
        f"- Data: {data['episodes']} episodes of {data['steps']} environment steps from default "
        f"resets (environment seeds {data['env_seeds']}), behaviour policy {data['policy']}; "
        f"{data['image_size']} px frames, frameskip {data['frameskip']}. Digest `{data['digest']}`.",
        f"- Split by episode: {data['train_episodes']} for training, {data['heldout_episodes']} "
        f"held out ({data['heldout_of_split']} of the split and {data['heldout_fresh']} of later "
        f"environment seeds, digest `{data['heldout_digest']}`); no gradient and no statistic saw "
        "a held-out frame.",
        f"- Actions: dense blocks, standardised with mean {_list(data['action_mean'])} and "
        f"deviation {_list(data['action_std'])} ({data['nan_action_rows']} NaN rows left out).",
        f"- Objective: prediction error + {steps['regulariser_weight']} x {steps['regulariser']} "
        f"({steps['directions']} directions).",
        f"- {steps['steps']} steps of {steps['batch']} clips of {steps['frames_per_clip']} frames, "
        f"AdamW at {steps['learning_rate']:g}, {steps['precision']}, root seed {card['seed']}.",
        *_augmentation(steps.get("augment")),
        *_refinement(steps["refinement"]),
        f"- Took {steps['wall_s'] / 60:.1f} min on {steps['threads']} threads "
        f"({steps['cpu_s'] / 60:.1f} CPU min), torch {card['torch']}.",
        "",
        "## Position from latents",
        "",
        f"Fitted on frames of training episodes, measured on {card['probes']['heldout']}.",
        "",
        "| probe | R2 | MAE, px | RMSE, px |",
        "|---|---|---|---|",
    ]
    for name, probe in card["probes"]["by_name"].items():
        columns = probe["columns"]
        lines.append(
            f"| {name} ({probe['kind']}, {probe['rows']} frames) | {probe['r2']:.4f} | "
            f"{_mean(columns, 'mae'):.2f} | {_mean(columns, 'rmse'):.2f} |"
        )
    lines += _angles(card["probes"]["by_name"])
    lines += [
        "",
        "`a` and `b` are cross-fitted networks: one on each half of the training episodes. The "
        "latent is curved, so a linear probe reads it less well.",
        "",
        "## Prediction on held-out episodes",
        "",
        f"- One step: {one['ratio']:.4f} of a frozen world's error [{one['low']:.4f}, "
        f"{one['high']:.4f}] (95 % bootstrap over episodes, {one['windows']} windows of "
        f"{one['history']} observed frames, float32, seed {one['seed']}).",
        "",
        "| forecast step | error / frozen world | position error, px | of which readout, px | "
        "frozen world, px |",
        "|---|---|---|---|---|",
    ]
    for row in card["open_loop"]["steps"]:
        lines.append(
            f"| {row['step']} | {row['ratio']:.4f} | {row['position_px']:.2f} | "
            f"{row['readout_px']:.2f} | {row['frozen_px']:.2f} |"
        )
    lines += [
        "",
        f"Open loop from {card['open_loop']['history']} observed frames on recorded actions, "
        f"{card['open_loop']['windows']} windows; mean Euclidean position error read by probe a.",
        "",
        "## Evaluation mode",
        "",
        "Loss on held-out clips in evaluation mode over the loss with batch statistics (dropout "
        "off):",
        "",
        f"- as trained {gap['before']:.3f}, after recalibration on {gap['batches']} training "
        f"batches {gap['after']:.3f} (prediction term alone: {gap['prediction_before']:.3f} and "
        f"{gap['prediction_after']:.3f}).",
        f"- Recalibration moved the batch-statistics loss by "
        f"{100 * gap['batch_statistics_change']:.2f} % (more than 15 % would make it invalid).",
        "",
        "## Floors",
        "",
        "| what | value | floor | met | margin |",
        "|---|---|---|---|---|",
    ]
    for floor in card["floors"]:
        lines.append(
            f"| {floor['name']} | {floor['value']:.4g} | {floor['bound']} | "
            f"{'yes' if floor['met'] else '**no**'} | {floor['margin']} |"
        )
    lines += [
        "",
        f"Latent: {card['latent']['width']} numbers, effective rank "
        f"{card['latent']['effective_rank']:.1f}, mean deviation "
        f"{card['latent']['mean_deviation']:.2f}.",
        "",
        *_planning(card.get("planning", {})),
        "## Limits",
        "",
        LIMITS.get(data["task"], LIMITS["tworoom"]),
        "",
    ]
    return "\n".join(lines)


def _planning(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Planning success and its explanation; written by `dreamcheck plan` and `explain`."""
    plans = [e for e in entries.values() if e["kind"] == "plan"]
    out = []
    if plans:
        out += [
            "## Planning",
            "",
            "Success on episodes generated for the evaluation, which no training saw; Wilson 95 % "
            "intervals over episodes, planner streams averaged inside an episode, starts already "
            "at the goal left out. Optimism: how much farther from the goal chosen plans end than "
            "imagined, beyond what random plans do.",
            "",
            "| protocol | collision | streams | planner | random | zero action | oracle | planner, "
            "legal routes only | optimism |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for e in plans:
            arms = e["arms"]
            optimism = "–"
            if e["optimism"] is not None:
                optimism = f"{e['optimism']:.1f} ± {e['optimism_se']:.1f} {e['unit']}"
            out.append(
                f"| {e['label']} | {e['collision']} | {e['streams']} | "
                + " | ".join(
                    _rate(arms.get(a, {}).get("success"))
                    for a in ("planner", "random", "zero", "oracle")
                )
                + f" | {_rate(arms['planner']['legal_success'])} | {optimism} |"
            )
        out += ["", *(f"    {e['command']}" for e in plans), ""]
    for e in entries.values():
        if e["kind"] != "explain":
            continue
        out += [
            f"### Where the success goes, {e['label']}",
            "",
            f"{e['episodes']} episodes ({e['already_solved']} already solved), {e['streams']} "
            f"planner stream(s), larger search with {e['search_factor']} times the samples.",
            "",
            "| planner | goals reached |",
            "|---|---|",
            *(f"| {name} | {_rate(r)} |" for name, r in e["cells"].items()),
            *(f"| control: {name} | {_rate(r)} |" for name, r in e["controls"].items()),
            "",
            "| replaced alone | won / lost | gain | McNemar p |",
            "|---|---|---|---|",
            *(
                f"| {s['swap']} | +{s['won']} / −{s['lost']} | {s['gain']:+.1%} [{s['low']:+.1%}, "
                f"{s['high']:+.1%}] | {s['p']:.3g} |"
                for s in e["swaps"]
            ),
            "",
            "Failed episodes: " + ", ".join(f"{n} {k}" for k, n in e["failed"].items()) + ".",
            "",
            f"    {e['command']}",
            "",
        ]
    return out


def _rate(rate: Mapping[str, Any] | None) -> str:
    if rate is None:
        return "–"
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}] of {rate['num_cases']}"


def _angles(probes: Mapping[str, Any]) -> list[str]:
    """Held-out error of block angles, where the state has one, and of each position."""
    out = []
    for name, probe in probes.items():
        if probe.get("angle_deg") is not None:
            apart = ", ".join(
                f"{c['name']} {c['mae']:.1f}" for c in probe["columns"] if c["unit"] == "px"
            )
            out.append(
                f"- {name}: mean absolute error {apart} px; block angle (from sine and cosine) "
                f"{probe['angle_deg']:.1f} degrees."
            )
    return ["", *out] if out else []


def _augmentation(augment: Mapping[str, Any] | None) -> list[str]:
    if augment is None:
        return []
    return [
        f"- Augmentation: {augment['kind']} noise on every frame of a training clip, targets "
        f"included, sigma ~ U(0, {augment['sigma_max']:g}) of the display range, drawn per frame; "
        "BatchNorm was recalibrated under it. The predictor's refinement, where there is one, and "
        "everything measured below, the mode gap included, saw clean frames."
    ]


def _refinement(refinement: Mapping[str, Any]) -> list[str]:
    if not refinement["steps"]:
        return []
    return [
        f"- Then the predictor alone, {refinement['steps']} steps of {refinement['batch']} clips at "
        f"{refinement['learning_rate']:g} on the frozen encoder's latents, loss over "
        f"{refinement['forecast']} forecast step(s), float32. The encoder was not touched again."
    ]


def _list(values: list[float]) -> str:
    return "(" + ", ".join(f"{v:.4f}" for v in values) + ")"


def _mean(columns: list[Mapping[str, Any]], key: str) -> float:
    """Over the columns in px; an angle's sine has another unit."""
    lengths = [c[key] for c in columns if c["unit"] == "px"]
    return sum(lengths) / len(lengths)
