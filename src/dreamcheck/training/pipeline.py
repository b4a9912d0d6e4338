"""From a recipe to a checkpoint with its model card: record, train, recalibrate, measure, write."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dreamcheck import __version__
from dreamcheck.data.windows import Windows
from dreamcheck.digest import digest
from dreamcheck.errors import IncompleteError, UsageError
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.checkpoint import save_checkpoint, write_json
from dreamcheck.models.lewm import count_parameters
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.training.assess import (
    fit_probes,
    measure_forecasts,
    settle,
    support_reference,
)
from dreamcheck.training.card import card_text, check_floors
from dreamcheck.training.loop import Training, autocast_dtype
from dreamcheck.training.prepare import Prepared, prepare
from dreamcheck.training.progress import LineProgress, Progress
from dreamcheck.training.recipe import Recipe, load_recipe
from dreamcheck.training.record import policy_of, task_of

STATE_FOLDER = ".training"
STAGE_FOLDER = "stages"


def training_fingerprint(recipe: Recipe, data_digest: str) -> str:
    """What a training state depends on, to the bit: recipe, data and numerics profile."""
    values = recipe.values("seed", "data", "model", "objective", "optimiser", "augment")
    values["optimiser"].pop("save_every")
    return digest(
        {
            "recipe": values,
            "data": data_digest,
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "instruction_set": torch.backends.cpu.get_cpu_capability(),
            "dtype": str(autocast_dtype(recipe.optimiser.precision)),
        }
    )


@dataclass(frozen=True)
class TrainResult:
    """A finished training.

    path: the checkpoint folder. card: what card.json holds. floors_met: whether it may ship.
    """

    path: Path
    model: LeWM
    card: dict[str, Any]
    floors_met: bool


def train_preset(
    name_or_path: str | Path,
    out: str | Path,
    *,
    resume: bool = True,
    threads: int = 2,
    stages: int = 1,
    minutes: float | None = None,
    progress: Progress | None = None,
    on_epoch: Callable[[LeWM, int, float], object] | None = None,
    **overrides: Any,
) -> TrainResult:
    """Record data, train, recalibrate, measure, and write a checkpoint with its model card.

    Kill it at any point and call it again: training continues from the last saved step, and the
    result equals that of a run that was never stopped.

    Args:
        name_or_path: a preset's name or a TOML recipe.
        out: the checkpoint folder; the training state is kept in its ``.training`` folder.
        resume: continue a saved state; False sets it aside and starts over.
        threads: of torch; part of what a resumed run must share.
        on_epoch: see ``Training.run``; a ``ScoreCallback`` scores at the end of epochs.
        stages: equal shares of the steps. The result of every share but the last is kept as a
            checkpoint of its own, measured like the final one, in ``out/stages/N``; the final
            result is the same for any number of them.
        minutes: stop at the first save after this long, to be continued by the same call.
        overrides: recipe values to replace, as ``load_recipe`` takes them.

    Raises:
        UsageError: a recipe that cannot be used.
        EvidenceError: a saved state of another recipe, data, torch or thread count; or divergence.
        IncompleteError: the minutes are over before the steps.
    """
    if stages < 1:
        raise UsageError(f"stages = {stages}: a training has at least one stage.")
    progress = progress or LineProgress()
    stop_at = None if minutes is None else time.monotonic() + 60 * minutes
    recipe = load_recipe(name_or_path, **overrides)
    out = Path(out)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        began = time.monotonic(), time.process_time()
        prepared = prepare(recipe, progress=progress)
        training = start_training(recipe, prepared, out)
        if resume:
            training.load()
        else:
            _set_aside(training.state_path)
        recorded = time.monotonic() - began[0], time.process_time() - began[1]
        for stage in range(1, stages + 1):
            until = round(recipe.optimiser.steps * stage / stages)
            kept = out / STAGE_FOLDER / str(stage)
            if training.step >= until and (stage == stages or training.step > until):
                continue  # behind us: its result was written when it ended
            training.run(until=until, progress=progress, on_epoch=on_epoch, stop_at=stop_at)
            if training.step < until:
                raise IncompleteError(
                    f"the {minutes:g} minutes ended at step {training.step} of "
                    f"{recipe.optimiser.steps}; everything is saved in {out}: run the same "
                    "command again to go on."
                )
            if stage < stages and not (kept / "card.json").exists():
                finish(recipe, prepared, _set_apart(training), kept, recorded=recorded,
                       progress=progress)  # fmt: skip
        return finish(recipe, prepared, training, out, recorded=recorded, progress=progress)
    finally:
        torch.set_num_threads(threads_before)


def _set_apart(training: Training) -> Training:
    """The training with a network of its own: measuring recalibrates and refines in place."""
    apart = copy.copy(training)
    apart.net = copy.deepcopy(training.net)
    return apart


def start_training(recipe: Recipe, prepared: Prepared, out: Path) -> Training:
    """The training at its first step, on the training episodes."""
    windows = Windows(
        prepared.episodes,
        num_frames=recipe.model.history + 1,
        frameskip=recipe.data.frameskip,
        subset=prepared.split.train,
    )
    return Training(
        recipe,
        windows,
        prepared.conventions,
        state_path=out / STATE_FOLDER / "state.safetensors",
        fingerprint=training_fingerprint(recipe, prepared.digest),
    )


def _set_aside(state: Path | None) -> None:
    if state is not None and state.exists():
        kept = state.with_name(f"state.set-aside-{int(time.time())}.safetensors")
        state.rename(kept)


def finish(
    recipe: Recipe,
    prepared: Prepared,
    training: Training,
    out: Path,
    *,
    recorded: tuple[float, float] = (0.0, 0.0),
    progress: Progress | None = None,
) -> TrainResult:
    """Recalibrate, measure on held-out episodes, and write everything that ships.

    recorded: wall and CPU seconds spent on the data, for the card.
    """
    progress = progress or LineProgress()
    began = time.monotonic(), time.process_time()
    gap = settle(recipe, prepared, training, progress=progress)
    progress.start("measuring", 4)
    progress.advance(0, f"mode gap {gap['before']:.3f} -> {gap['after']:.3f}")
    model = LeWM(training.net, prepared.conventions)
    runner = Runner(model, tile=128)
    probes, probe_card = fit_probes(recipe, prepared, runner)
    progress.advance(1, f"probe R2 {probe_card['headline_r2']:.4f}")
    one_step, open_loop = measure_forecasts(recipe, prepared, runner, probes["a"])
    progress.advance(2, f"one step {one_step['ratio']:.4f} of frozen world")
    support, latent = support_reference(recipe, prepared, runner)
    progress.advance(3)
    card: dict[str, Any] = {
        "name": recipe.name,
        "seed": recipe.seed,
        "parameters": count_parameters(training.net),
        "model_identity": model.identity,
        "recipe_digest": recipe.digest,
        "dreamcheck": __version__,
        "torch": str(torch.__version__),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "data": _data_card(recipe, prepared),
        "training": _training_card(recipe, training),
        "latent": latent,
        "probes": probe_card,
        "one_step": one_step,
        "open_loop": open_loop,
        "mode_gap": gap,
    }
    write_weights(recipe, prepared, training, out, gap=gap)
    for probe in probes.values():
        probe.save(out)
    support.save(out)
    now = time.monotonic(), time.process_time()
    card["training"]["wall_s"] = training.wall_s + recorded[0] + now[0] - began[0]
    card["training"]["cpu_s"] = training.cpu_s + recorded[1] + now[1] - began[1]
    card["training"]["optimising_wall_s"] = training.wall_s
    checks = check_floors(
        recipe.floors,
        probe_r2=probe_card["headline_r2"],
        one_step_ratio=one_step["ratio"],
        mode_gap=gap["after"],
        size_mb=folder_size_mb(out) + 0.02,  # the card itself, which is not written yet
    )
    card["floors"] = [asdict(c) for c in checks]
    write_json(out / "card.json", card)
    (out / "card.md").write_text(card_text(card), encoding="utf-8")
    progress.advance(4)
    progress.finish()
    return TrainResult(path=out, model=model, card=card, floors_met=all(c.met for c in checks))


def write_weights(
    recipe: Recipe, prepared: Prepared, training: Training, out: Path, *, gap: Mapping[str, Any]
) -> None:
    """The settled network with its training record: a checkpoint that loads, without a card.

    All that can be written of a collapsed encoder, whose errors and probes mean nothing.

    gap: what ``settle`` returned.
    """
    save_checkpoint(
        out,
        training.net,
        prepared.conventions,
        training={
            "recipe": recipe.values(),
            "recipe_digest": recipe.digest,
            "data_digest": prepared.digest,
            "heldout_digest": prepared.heldout_digest,
            "torch": str(torch.__version__),
            "dreamcheck": __version__,
            "steps": training.step,
            "batchnorm": f"precise, {gap['batches']} training batches",
        },
    )


def folder_size_mb(folder: Path) -> float:
    """Bytes of the files that ship, in millions; a card of an earlier run is not counted."""
    return (
        sum(
            p.stat().st_size
            for p in folder.iterdir()
            if p.is_file() and p.name not in ("card.json", "card.md")
        )
        / 1e6
    )


def _data_card(recipe: Recipe, prepared: Prepared) -> dict[str, Any]:
    data = recipe.data
    last = data.first_env_seed + data.episodes - 1
    return {
        "task": data.task,
        "policy": data.policy,
        "policy_digest": policy_of(data).digest,
        "task_version": task_of(data).version,
        "episodes": data.episodes,
        "steps": data.steps,
        "image_size": data.image_size,
        "frameskip": data.frameskip,
        "env_seeds": f"{data.first_env_seed} to {last}",
        "digest": prepared.digest,
        "heldout_digest": prepared.heldout_digest,
        "train_episodes": len(prepared.split.train),
        "heldout_episodes": len(prepared.heldout.lengths),
        "heldout_of_split": len(prepared.split.heldout),
        "heldout_fresh": recipe.measure.more_heldout,
        "action_mean": list(prepared.conventions.action_mean),
        "action_std": list(prepared.conventions.action_std),
        "nan_action_rows": prepared.nan_action_rows,
    }


def _training_card(recipe: Recipe, training: Training) -> dict[str, Any]:
    return {
        "regulariser": recipe.objective.regulariser,
        "regulariser_weight": recipe.objective.weight,
        "directions": recipe.objective.directions,
        "steps": training.step,
        "batch": recipe.optimiser.batch,
        "frames_per_clip": recipe.model.history + 1,
        "learning_rate": recipe.optimiser.learning_rate,
        "precision": "bfloat16 autocast" if training.dtype else "float32",
        "threads": torch.get_num_threads(),
        "augment": None if recipe.augment is None else recipe.augment.model_dump(),
        "refinement": recipe.refinement.model_dump(),
        "fingerprint": training.fingerprint,
    }
