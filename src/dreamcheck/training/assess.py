"""Everything measured on a trained network before its card is written."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from dreamcheck.data.windows import Windows
from dreamcheck.imagination.runner import Runner
from dreamcheck.models.readout import StateProbe
from dreamcheck.models.reference import SupportReference
from dreamcheck.streams import stream
from dreamcheck.training.batchnorm import mode_losses, recalibrate
from dreamcheck.training.loop import (
    Batch,
    Training,
    batch_losses,
    draw_directions,
    to_batch,
    torch_seed,
)
from dreamcheck.training.measures import (
    draw_frames,
    draw_windows,
    effective_rank,
    encode_frames,
    forecast,
    step_position_errors,
    step_ratios,
)
from dreamcheck.training.prepare import Prepared
from dreamcheck.training.probes import fit_probe
from dreamcheck.training.recipe import Recipe
from dreamcheck.training.record import constants_of


def recalibrate_network(
    recipe: Recipe, prepared: Prepared, training: Training
) -> dict[str, Any]:
    """Precise BN in place, with the held-out losses of every mode before and after (B1-B7).

    Float32 throughout: that is how the model will be used.
    """
    net, conventions, size = training.net, prepared.conventions, recipe.optimiser.batch
    heldout = Windows(
        prepared.episodes,
        num_frames=recipe.model.history + 1,
        frameskip=recipe.data.frameskip,
        subset=prepared.split.heldout,
    )

    def batches(windows: Windows, count: int, role: str) -> list[np.ndarray]:
        index = draw_windows(windows, count * size, seed=recipe.seed, role=role)
        # Sorted clips are neighbours; a batch must look like a training batch.
        index = stream(recipe.seed, role + " order", len(index)).permutation(index)
        whole = max(1, len(index) // size)
        return [index[i * size : (i + 1) * size] for i in range(whole)]

    def losses_on(windows: Windows, chosen: list[np.ndarray]) -> Any:
        def losses(i: int) -> dict[str, float]:
            batch = to_batch(windows.take(chosen[i]), conventions)
            directions = draw_directions(
                recipe.model.latent_width,
                recipe.objective.directions,
                seed=recipe.seed,
                role="measuring directions",
                identity=i,
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(torch_seed(recipe.seed, "measuring dropout", i))
                terms = batch_losses(net, batch, recipe.objective, directions)
            return {k: float(getattr(terms, k)) for k in ("loss", "prediction", "regulariser")}

        return losses

    held = batches(heldout, recipe.measure.loss_batches, "mode gap, held-out")
    seen = batches(training.windows, recipe.measure.loss_batches, "mode gap, training")
    on_heldout = losses_on(heldout, held)
    before = mode_losses(net, on_heldout, range(len(held)))

    def forward(batch: Batch) -> None:
        latents = net.encode(batch.frames)
        net(latents[:, :-1], net.embed_actions(batch.blocks))

    chosen = batches(training.windows, recipe.measure.recalibration_batches, "recalibration")
    done = recalibrate(
        net, forward, (to_batch(training.windows.take(c), conventions) for c in chosen)
    )
    after = mode_losses(net, on_heldout, range(len(held)))
    on_training = mode_losses(
        net, losses_on(training.windows, seen), range(len(seen)), modes=("eval", "batch_statistics")
    )

    def ratio(of: dict[Any, dict[str, float]], term: str) -> float:
        return of["eval"][term] / of["batch_statistics"][term]

    moved = after["batch_statistics"]["loss"] / before["batch_statistics"]["loss"] - 1
    return {
        "before": ratio(before, "loss"),
        "after": ratio(after, "loss"),
        "prediction_before": ratio(before, "prediction"),
        "prediction_after": ratio(after, "prediction"),
        "batches": done.batches,
        "batch_size": size,
        "clip_source": "training episodes; none is held out",
        "heldout_clips": sum(len(h) for h in held),
        "batch_statistics_change": moved,
        "heldout_before": before,
        "heldout_after": after,
        "training_after": on_training,
        "layers_before": [asdict(r) for r in done.layers_before],
        "layers_after": [asdict(r) for r in done.layers_after],
    }


def fit_probes(
    recipe: Recipe, prepared: Prepared, runner: Runner
) -> tuple[dict[str, StateProbe], dict[str, Any]]:
    """Ridge on all training episodes, networks "a" and "b" on one half each; held-out errors.

    The headline is the worse of the two networks.
    """
    episodes, measure, seed = prepared.episodes, recipe.measure, recipe.seed
    train = stream(seed, "probe halves", len(prepared.split.train)).permutation(
        prepared.split.train
    )
    half = len(train) // 2
    halves = {"a": np.sort(train[:half]), "b": np.sort(train[half:])}
    data = {
        name: encode_frames(
            runner,
            episodes,
            *draw_frames(
                episodes, part, measure.probe_frames // 2, seed=seed, role=f"probe {name}"
            ),
        )
        for name, part in halves.items()
    }
    test = encode_frames(
        runner,
        episodes,
        *draw_frames(
            episodes, prepared.split.heldout, measure.heldout_frames, seed=seed, role="probe test"
        ),
    )
    heldout = (
        f"{len(test[1])} frames of {len(prepared.split.heldout)} held-out episodes "
        f"(data {prepared.digest[:12]})"
    )
    sets = {
        "ridge": ("ridge", torch.cat([d[0] for d in data.values()]),
                  np.concatenate([d[1] for d in data.values()]), train),
        "a": ("mlp", *data["a"], halves["a"]),
        "b": ("mlp", *data["b"], halves["b"]),
    }  # fmt: skip
    probes = {
        name: fit_probe(
            latents,
            states,
            kind=kind,
            columns=episodes.columns,
            model_identity=runner.model.identity,
            name=name,
            fitted_on=f"{len(states)} frames of {len(part)} training episodes "
            f"(data {prepared.digest[:12]})",
            seed=seed,
            steps=measure.probe_steps,
        ).measured(*test, heldout)
        for name, (kind, latents, states, part) in sets.items()
    }
    card = {
        "heldout": heldout,
        "headline_r2": min(probes["a"].r2, probes["b"].r2),
        "by_name": {
            name: {
                "kind": p.kind,
                "rows": len(sets[name][2]),
                "r2": p.r2,
                "mae": p.mae,
                "identity": p.identity,
                "columns": [asdict(e) for e in p.errors],
            }
            for name, p in probes.items()
        },
    }
    return probes, card


def measure_forecasts(
    recipe: Recipe, prepared: Prepared, runner: Runner, probe: StateProbe
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One-step ratio, and the open-loop error of every forecast step, on held-out episodes."""
    history, measure, seed = recipe.model.history, recipe.measure, recipe.seed

    def run(steps: int) -> Any:
        windows = Windows(
            prepared.episodes,
            num_frames=history + steps,
            frameskip=recipe.data.frameskip,
            subset=prepared.split.heldout,
        )
        index = draw_windows(windows, measure.windows, seed=seed, role=f"forecast {steps}")
        return forecast(runner, windows, index, history=history)

    one = {**asdict(step_ratios(run(1), seed=seed)[0]), "history": history}
    forecasts = run(measure.forecast)
    ratios = step_ratios(forecasts, seed=seed)
    positions = step_position_errors(forecasts, probe)
    return one, {
        "history": history,
        "windows": len(forecasts.states),
        "steps": [
            {
                "step": k + 1,
                "ratio": r.ratio,
                "low": r.low,
                "high": r.high,
                "position_px": positions["imagined"][k],
                "readout_px": positions["encoded"][k],
                "frozen_px": positions["frozen"][k],
            }
            for k, r in enumerate(ratios)
        ],
    }


def support_reference(
    recipe: Recipe, prepared: Prepared, runner: Runner
) -> tuple[SupportReference, dict[str, Any]]:
    """Training states and their latents, and what the latent space looks like."""
    where, frames = draw_frames(
        prepared.episodes,
        prepared.split.train,
        recipe.measure.support_rows,
        seed=recipe.seed,
        role="support",
    )
    latents, states = encode_frames(runner, prepared.episodes, where, frames)
    reference = SupportReference(
        states=states.astype(np.float32),
        latents=latents.numpy(),
        episodes=where,
        frames=frames,
        columns=prepared.episodes.columns,
        model_identity=runner.model.identity,
        source=f"{len(states)} frames of {len(prepared.split.train)} training episodes "
        f"(data {prepared.digest[:12]})",
        constants=constants_of(recipe.data),
    )
    return reference, {
        "width": int(latents.shape[1]),
        "effective_rank": effective_rank(latents),
        "mean_deviation": float(latents.std(dim=0).mean()),
    }
