"""Small TwoRoom models under rising training noise: does the paper's sweep appear?

Run it:  python examples/augmentation_sweep.py runs/sweep --write docs/results
Parts:   python examples/augmentation_sweep.py runs/sweep --stages train --levels 0 0.08
Cost:    python examples/augmentation_sweep.py runs/sweep --time --levels 0.08

Every level is `dreamcheck train --preset tworoom-small --augment gaussian --sigma-max LEVEL` cut to
300 steps without refinement, from one initialisation and one order of clips; level 0 trains without
augmentation. Then each is measured for consistency and plans on clean and on noisy images. Every
part of every level is kept when it ends: stopped at any point, the same command goes on. Processes
with different --levels may share one folder. --time measures and plans once more and keeps what it
took, and says whether the numbers are those on record.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dreamcheck.data.episodes import ArrayEpisodes
from dreamcheck.diagnostics.consistency.anchors import draw_anchors
from dreamcheck.diagnostics.consistency.labels import label_rule
from dreamcheck.diagnostics.consistency.measuring import NUM_DRAWS, measure
from dreamcheck.diagnostics.consistency.screening import Level
from dreamcheck.diagnostics.consistency.sweep import (
    CHECKPOINT,
    CONSISTENCY,
    COST,
    PLANNING,
    STAGES,
    T_IR,
    T_SR,
    Sweep,
    page,
    read_sweep,
)
from dreamcheck.digest import plain
from dreamcheck.evidence import Record, Store
from dreamcheck.evidence.diagnoses import open_store
from dreamcheck.imagination.perturbations import Perturbation
from dreamcheck.models import load_model
from dreamcheck.planning import Protocol, load_protocol, plan_perturbed
from dreamcheck.reports.sweep_chart import sweep_figure
from dreamcheck.training.pipeline import finish, start_training
from dreamcheck.training.prepare import prepare
from dreamcheck.training.progress import LineProgress
from dreamcheck.training.recipe import Recipe, load_recipe
from dreamcheck.training.record import policy_of, record_episodes, task_of

LEVELS = tuple(round(0.01 * k, 2) for k in range(9))
KINDS = {"train": CHECKPOINT, "consistency": CONSISTENCY, "plan": PLANNING}
NOISE = 0.08
SEVERITIES = (0.02, 0.05, NOISE)
LOGGED_EPISODES, LOGGED_FIRST_SEED = 200, 3_000_000
PAGE, FIGURE = "consistency-sweep.md", "consistency-sweep.svg"

# A level needs a readout and its errors, not a card that ships.
REDUCED: dict[str, Any] = {
    "refinement.steps": 0,
    "measure.more_heldout": 100,
    "measure.probe_frames": 6000,
    "measure.probe_steps": 800,
    "measure.windows": 800,
}


def recipe_of(args: argparse.Namespace, level: float) -> Recipe:
    """The preset under one level of noise; level 0 is the unaugmented recipe."""
    augment = {"augment.sigma_max": level} if level else {}
    changes = {**REDUCED, "optimiser.steps": args.steps, **augment}
    return load_recipe(args.preset, **changes)


def folder_of(args: argparse.Namespace, level: float) -> Path:
    """Where a level's checkpoint is kept."""
    return args.out / f"level-{level:.2f}"


def commit(args: argparse.Namespace, stage: str, level: float, payload: dict[str, Any]) -> None:
    """One stage of one level, as a record."""
    with open_store(args.out) as store:
        key = f"level-{level:.2f}"
        store.commit([Record.make(KINDS[stage], key, {"sigma_max": level, **payload})])


def commit_cost(
    args: argparse.Namespace, stage: str, level: float, *, wall_s: float, cpu_s: float, threads: int
) -> None:
    """What a stage took, beside what earlier runs of it took."""
    took = {"stage": stage, "wall_s": wall_s, "cpu_s": cpu_s, "threads": threads}
    with open_store(args.out) as store:
        key = f"level-{level:.2f}/{stage}/"
        nth = sum(r.key.startswith(key) for r in store.records(COST))
        store.commit([Record.make(COST, f"{key}{nth}", {"sigma_max": level, **took})])


def kept(args: argparse.Namespace, stage: str, level: float) -> dict[str, Any] | None:
    """The payload of a stage of a level, where it is recorded."""
    if not (args.out / "evidence.sqlite").exists():
        return None
    with Store.read(args.out) as store:
        found = store.get(KINDS[stage], f"level-{level:.2f}")
        return None if found is None else found.payload


def timed(args: argparse.Namespace, level: float) -> bool:
    """Whether it is recorded what training a level took."""
    with Store.read(args.out) as store:
        return any(r.key.startswith(f"level-{level:.2f}/train/") for r in store.records(COST))


def train(args: argparse.Namespace, level: float) -> dict[str, Any]:
    """The level's checkpoint and what its record says."""
    folder, recipe = folder_of(args, level), recipe_of(args, level)
    if not (folder / "card.json").is_file():
        prepared = data_of(recipe.model_copy(update={"augment": None}))
        training = start_training(recipe, prepared, folder)
        training.load()
        training.run(progress=LineProgress())
        finish(recipe, prepared, training, folder, progress=LineProgress())
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return {
        "identity": card["model_identity"],
        "recipe_digest": card["recipe_digest"],
        "data_digest": card["data"]["digest"],
        "parameters": card["parameters"],
        "image_size": card["data"]["image_size"],
        "steps": card["training"]["steps"],
        "batch": card["training"]["batch"],
        "augment": card["training"]["augment"],
        "one_step_ratio": card["one_step"]["ratio"],
        "probe_r2": card["probes"]["headline_r2"],
        "mode_gap": card["mode_gap"]["after"],
    }


@functools.cache
def data_of(recipe: Recipe) -> Any:
    """The recorded data, the same for every level."""
    return prepare(recipe, progress=LineProgress())


@functools.cache
def logged(recipe: Recipe) -> ArrayEpisodes:
    """Episodes to measure on, which no training saw."""
    data = recipe.data
    return record_episodes(
        task_of(data),
        policy_of(data),
        env_seeds=LOGGED_FIRST_SEED + np.arange(LOGGED_EPISODES),
        steps=data.steps,
        image_size=data.image_size,
        root_seed=recipe.seed,
        progress=LineProgress(),
    )


def consistency(args: argparse.Namespace, level: float) -> dict[str, Any]:
    """Radius and separation under every severity of noise."""
    model = load_model(folder_of(args, level))
    anchors = draw_anchors(logged(recipe_of(args, 0.0)), model)
    pairing = anchors.pairing(label_rule("tworoom"))
    found = measure(model, anchors, [Perturbation("gaussian", s) for s in SEVERITIES], pairing)
    rows = found.to_dict()
    return {
        "identity": model.identity,
        "anchors": anchors.digest,
        "num_anchors": len(anchors),
        "history": anchors.history,
        "horizon": anchors.horizon,
        "draws": NUM_DRAWS,
        "num_pairs": pairing.eligible,
        "median_different": rows["median_different"],
        "spread": rows["spread"],
        "num_still": rows["num_still"],
        "scales": rows["scales"],
        "different": rows["different"],
        "severities": rows["severities"],
    }


def protocol_of(args: argparse.Namespace) -> Protocol:
    """Goals 25 steps away, 50 to reach them, a reduced planner."""
    return load_protocol("fresh-25-50").replace(
        num_eval=args.episodes,
        streams=1,
        solver={"name": "cem", "num_samples": 100, "num_elites": 10, "iterations": 10},
    )


def plan(args: argparse.Namespace, level: float) -> dict[str, Any]:
    """Success on clean and on noisy images, the same episodes and planner noise; goals clean."""
    model, protocol = load_model(folder_of(args, level)), protocol_of(args)
    reporter = LineProgress()
    began: set[str] = set()

    def tell(at: int, total: int, what: str) -> None:
        if what not in began:
            began.add(what)
            reporter.start(what, total)
        reporter.advance(at)

    (found,) = plan_perturbed(
        model,
        task_of(recipe_of(args, 0.0).data),
        protocol,
        [Perturbation("gaussian", NOISE)],
        controls=("random",) if level == 0 else (),
        keep=args.episodes_in or folder_of(args, level) / "episodes",
        progress=tell,
    )
    random = found.clean.controls.get("random")
    success = None if random is None else random.success
    return {
        **found.to_dict(),
        "identity": model.identity,
        "label": found.clean.label,
        "protocol_digest": protocol.digest,
        "num_samples": protocol.solver.num_samples,
        "iterations": protocol.solver.iterations,
        "random": None if success is None else success.to_dict(),
    }


def read(out: Path) -> Sweep:
    """The sweep as it is recorded."""
    with Store.read(out) as store:
        return read_sweep(
            ((r.kind, r.payload) for r in store.records()), severity=NOISE, planned=LEVELS
        )


def paper_levels(data: Path | None) -> list[Level]:
    """The paper's TwoRoom rows, from its released table."""
    if data is None:
        return []
    rows = json.loads((data / "lewm_sweep_three_runs.json").read_text(encoding="utf-8"))["rows"]
    names = Level.__dataclass_fields__
    return [
        Level(**{k: v for k, v in row.items() if k in names})
        for row in rows
        if row["task"] == "TwoRoom"
    ]


def write(args: argparse.Namespace) -> Path:
    """Page and figure, from the records alone."""
    sweep = read(args.out)
    blocks = {s: sweep.block(s) for s in sweep.severities}
    recovered = sweep.recovered or (None,) * len(sweep.levels)
    levels = [
        {
            "sigma_max": level.sigma_max,
            "clean": (level.planning or {})["clean"],
            "noisy": (level.planning or {})["perturbed"],
            "by_severity": {s: (b.ir_relative[i], b.levels[i].sr) for s, b in blocks.items()},
            "recovered": recovered[i],
            "accepted": sweep.accepted[i],
        }
        for i, level in enumerate(sweep.levels)
    ]
    title = f"Augmentation sweep, small TwoRoom model, {sweep.episodes} episodes a level (reduced)"
    args.write.mkdir(parents=True, exist_ok=True)
    (args.write / FIGURE).write_text(
        sweep_figure(levels, severity=NOISE, t_ir=T_IR, t_sr=T_SR, title=title), encoding="utf-8"
    )
    command = "python examples/augmentation_sweep.py runs/sweep --write docs/results"
    if args.paper is not None:
        command += " --paper DATA/acpc"
    text = page(sweep, command=command, figure=FIGURE, paper=paper_levels(args.paper))
    (args.write / PAGE).write_text(text, encoding="utf-8")
    return args.write / PAGE


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Dotted paths at which two payloads differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = [(k, one.get(k), other.get(k)) for k in sorted({*one, *other})]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        both = [(str(i), a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [path]
    return [p for k, a, b in both for p in differing(a, b, f"{path}.{k}" if path else k)]


def perform(
    args: argparse.Namespace,
    stage: str,
    level: float,
    run: Callable[[argparse.Namespace, float], dict[str, Any]],
    held: dict[str, Any] | None,
) -> None:
    """One stage of one level: its record, and what it took."""
    if stage == "train":
        # A training may have been stopped and gone on: its card adds the parts up.
        if held is None:
            commit(args, stage, level, run(args, level))
        if not timed(args, level):
            card = json.loads((folder_of(args, level) / "card.json").read_text(encoding="utf-8"))
            took = {k: card["training"][k] for k in ("wall_s", "cpu_s", "threads")}
            commit_cost(args, stage, level, **took)
        return
    print(f"level {level:g}: {stage}", flush=True)
    whole = True
    with tempfile.TemporaryDirectory() as elsewhere:
        if held is not None:
            args.episodes_in = Path(elsewhere)
        elif stage == "plan":
            whole = not any((folder_of(args, level) / "episodes").glob("*/*"))
        wall, cpu = time.monotonic(), time.process_time()
        payload = run(args, level)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        args.episodes_in = None
    if held is None:
        commit(args, stage, level, payload)
    else:
        other = differing(plain({"sigma_max": level, **payload}), held)
        said = f"OTHER numbers: {', '.join(other)}" if other else "the numbers on record"
        print(f"level {level:g}: {stage} gives {said}", flush=True)
    # The rest of a stopped stage says nothing about the whole of it.
    if whole:
        commit_cost(args, stage, level, wall_s=wall, cpu_s=cpu, threads=args.threads)
    print(f"level {level:g}: {stage} took {wall:.0f} s, {cpu:.0f} s of CPU", flush=True)


def main() -> None:
    """Run what is missing, then write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="tworoom-small")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--levels", type=float, nargs="+", default=list(LEVELS))
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES))
    parser.add_argument("--write", type=Path, help="folder for the page and the figure")
    parser.add_argument("--paper", type=Path, help="folder of the paper's released tables")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--time", action="store_true", help="run again what is recorded, to see what it takes"
    )
    args = parser.parse_args()
    args.episodes_in = None
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    steps = {"train": train, "consistency": consistency, "plan": plan}
    for level in args.levels:
        for stage in args.stages:
            held = kept(args, stage, level)
            if stage == "train" or held is None or args.time:
                perform(args, stage, level, steps[stage], held)
    if args.write is not None:
        print(f"page: {write(args)}")


if __name__ == "__main__":
    main()
