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
from dreamcheck.training.batchnorm import (
    MODES,
    Mode,
    Recalibration,
    mode_losses,
    recalibrate,
)
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
from dreamcheck.training.progress import Progress
from dreamcheck.training.recipe import Recipe
from dreamcheck.training.record import constants_of
from dreamcheck.training.refine import refine_predictor


class ModeGap:
    """Losses of each mode on fixed held-out clips, and precise BN on training clips (B1-B7).

    Float32 throughout: that is how the model will be used.
    """

    def __init__(self, recipe: Recipe, prepared: Prepared, training: Training) -> None:
        self.recipe, self.conventions = recipe, prepared.conventions
        self.net, self.training, self.run = training.net, training.windows, training
        self.heldout = Windows(
            prepared.heldout,
            num_frames=recipe.model.history + 1,
            frameskip=recipe.data.frameskip,
        )
        count = recipe.measure.loss_batches
        self._held = self._batches(self.heldout, count, "mode gap, held-out")
        self._seen = self._batches(self.training, count, "mode gap, training")

    def _batches(self, windows: Windows, count: int, role: str) -> list[np.ndarray]:
        size, seed = self.recipe.optimiser.batch, self.recipe.seed
        index = draw_windows(windows, count * size, seed=seed, role=role)
        # Sorted clips are neighbours; a batch must look like a training batch.
        index = stream(seed, role + " order", len(index)).permutation(index)
        whole = max(1, len(index) // size)
        return [index[i * size : (i + 1) * size] for i in range(whole)]

    def losses(self, *, heldout: bool = True) -> dict[Mode, dict[str, float]]:
        """Mean loss, prediction and regulariser terms in each mode."""
        windows, chosen = (self.heldout, self._held) if heldout else (self.training, self._seen)
        recipe = self.recipe

        def of_batch(i: int) -> dict[str, float]:
            batch = to_batch(windows.take(chosen[i]), self.conventions)
            directions = draw_directions(
                recipe.model.latent_width,
                recipe.objective.directions,
                seed=recipe.seed,
                role="measuring directions",
                identity=i,
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(torch_seed(recipe.seed, "measuring dropout", i))
                terms = batch_losses(self.net, batch, recipe.objective, directions)
            return {k: float(getattr(terms, k)) for k in ("loss", "prediction", "regulariser")}

        # Without dropout, training mode is the batch-statistics mode.
        modes = MODES if recipe.model.dropout else MODES[:2]
        out = mode_losses(self.net, of_batch, range(len(chosen)), modes=modes)
        out.setdefault("train", out["batch_statistics"])
        return out

    def recalibrate(self) -> Recalibration:
        """Precise BN in place, through encoder and predictor, on batches as training saw them."""

        def forward(batch: Batch) -> None:
            latents = self.net.encode(batch.frames)
            self.net(latents[:, :-1], self.net.embed_actions(batch.blocks))

        chosen = self._batches(
            self.training, self.recipe.measure.recalibration_batches, "recalibration"
        )
        return recalibrate(
            self.net,
            forward,
            (
                self.run.training_batch(c, role="recalibration augmentation", identity=i)
                for i, c in enumerate(chosen)
            ),
        )


def settle(
    recipe: Recipe, prepared: Prepared, training: Training, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Recalibrate, refine the predictor where the recipe says so, recalibrate again; in place.

    Returns:
        the card's mode-gap figures: as trained, and as shipped.
    """
    gap = ModeGap(recipe, prepared, training)
    trained = gap.losses()
    done = gap.recalibrate()
    before, layers_before = trained, done.layers_before
    if recipe.refinement.steps:
        refine_predictor(
            training.net,
            Windows(
                prepared.episodes,
                num_frames=recipe.model.history + recipe.refinement.forecast,
                frameskip=recipe.data.frameskip,
                subset=prepared.split.train,
            ),
            prepared.conventions,
            recipe.refinement,
            seed=recipe.seed,
            progress=progress,
        )
        before = gap.losses()
        done = gap.recalibrate()
    after, on_training = gap.losses(), gap.losses(heldout=False)

    def ratio(of: dict[Mode, dict[str, float]], term: str) -> float:
        return of["eval"][term] / of["batch_statistics"][term]

    moved = after["batch_statistics"]["loss"] / before["batch_statistics"]["loss"] - 1
    return {
        "before": ratio(trained, "loss"),
        "after": ratio(after, "loss"),
        "prediction_before": ratio(trained, "prediction"),
        "prediction_after": ratio(after, "prediction"),
        "regulariser_after": ratio(after, "regulariser"),
        "on_training_clips": ratio(on_training, "loss"),
        "batches": done.batches,
        "batch_size": recipe.optimiser.batch,
        "clip_source": "training episodes; none is held out",
        "heldout_clips": sum(len(h) for h in gap._held),
        "batch_statistics_change": moved,
        "heldout_as_trained": trained,
        "heldout_after": after,
        "training_after": on_training,
        "layers_before": [asdict(r) for r in layers_before],
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
    unseen = prepared.heldout
    test = encode_frames(
        runner,
        unseen,
        *draw_frames(
            unseen,
            np.arange(len(unseen.lengths)),
            measure.heldout_frames,
            seed=seed,
            role="probe test",
        ),
    )
    heldout = (
        f"{len(test[1])} frames of {len(unseen.lengths)} held-out episodes "
        f"(data {prepared.heldout_digest[:12]})"
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
                "angle_deg": angle_error_deg(p, *test),
            }
            for name, p in probes.items()
        },
    }
    return probes, card


def angle_error_deg(probe: StateProbe, latents: torch.Tensor, states: np.ndarray) -> float | None:
    """Mean absolute error, degrees, of an angle read as ``block_sin`` and ``block_cos``.

    None where the state has no such columns.
    """
    names = [c.name for c in probe.columns]
    if not {"block_sin", "block_cos"} <= set(names):
        return None
    s, c = names.index("block_sin"), names.index("block_cos")
    read = probe.predict(latents)
    apart = np.arctan2(read[:, s], read[:, c]) - np.arctan2(states[:, s], states[:, c])
    return float(np.degrees(np.abs((apart + np.pi) % (2 * np.pi) - np.pi)).mean())


def measure_forecasts(
    recipe: Recipe, prepared: Prepared, runner: Runner, probe: StateProbe
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One-step ratio, and the open-loop error of every forecast step, on held-out episodes."""
    history, measure, seed = recipe.model.history, recipe.measure, recipe.seed

    def run(steps: int) -> Any:
        windows = Windows(
            prepared.heldout, num_frames=history + steps, frameskip=recipe.data.frameskip
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
