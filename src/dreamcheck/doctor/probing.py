"""What latents hold: state by ridge and network, actions from pairs, rank and spread (R1-R7)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import Abstention, UsageError
from dreamcheck.models.protocol import HasModule
from dreamcheck.models.readout import ColumnError, column_errors
from dreamcheck.progress import Progress
from dreamcheck.tasks.protocol import Column
from dreamcheck.training.batchnorm import layer_reports
from dreamcheck.training.measures import draw_frames, effective_rank, encode_frames
from dreamcheck.training.probes import fit_probe

TEST_SHARE = 0.2
UNDERTRAINED = 0.005
"""A network this much below the ridge was not trained enough (R2)."""


@dataclass(frozen=True)
class Probed:
    """What was found, and under which protocol; values of other protocols do not compare.

    ridge, mlp: held-out errors per state column. pearson: of the ridge, per column.
    pair, difference: summed action of a block read from two latents, and from their difference.
    """

    ridge: tuple[ColumnError, ...]
    pearson: tuple[float, ...]
    mlp: tuple[ColumnError, ...]
    undertrained: bool
    pair: tuple[ColumnError, ...]
    difference: tuple[ColumnError, ...]
    effective_rank: float
    width: int
    spread: float
    protocol: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For a terminal."""
        p = self.protocol
        out = [
            f"{p['frames']} frames of {p['episodes']} episodes ({p['source']}); split by "
            f"{p['split']}: {p['train_frames']} to fit, {p['test_frames']} held out from the probe; "
            f"seed {p['seed']}",
            f"held out from the encoder: {p['encoder_heldout']}",
            f"pixels: {p['pixels']}; batch normalisation: {p['batchnorm']}",
            "",
        ]
        for name, errors in (("ridge", self.ridge), ("two-layer network", self.mlp),
                             ("summed action, pair", self.pair),
                             ("summed action, difference", self.difference)):  # fmt: skip
            for e in errors:
                out.append(
                    f"{name:<26} {e.name:<12} R2 {e.r2:.4f}  mean error {e.mae:.3g} {e.unit}"
                )
        out += [
            "ridge, Pearson r           "
            + ", ".join(f"{e.name} {r:.4f}" for e, r in zip(self.ridge, self.pearson, strict=True)),
            f"effective rank             {self.effective_rank:.2f} of {self.width}",
            f"embedding spread           {self.spread:.3g} latent units",
        ]
        if self.undertrained:
            out.append(
                f"the network is more than {UNDERTRAINED} below the ridge: undertrained; raise "
                "--steps"
            )
        return out


def probe_model(
    subject: Subject,
    *,
    frames: int = 4000,
    split: str = "episode",
    steps: int = 3000,
    progress: Progress | None = None,
) -> Probed:
    """Fit and measure all probes.

    Args:
        frames: drawn from all episodes. split: "episode", or "frame" as in the paper (frames of
            one episode then stand on both sides).

    Raises:
        Abstention: no episodes with frames and state. UsageError: an unknown split.
    """
    if split not in ("episode", "frame"):
        raise UsageError(f"split = {split!r} is not one of episode, frame.")
    missing = subject.missing(("model", "frames", "state"))
    if missing:
        raise Abstention(f"probes need {missing}; a simulator (--task) can record them now.")
    model, data = subject.model, subject.episodes
    assert model is not None and data is not None
    everything = np.arange(len(data.lengths))
    progress = progress or Progress(quiet=True)
    with progress.stage("probing", 4, unit="steps") as stage:
        where, ts = draw_frames(data, everything, frames, seed=subject.seed, role="probe frames")
        z, states = encode_frames(subject.runner, data, where, ts)
        stage.advance(note="frames encoded")
        test = _test_rows(where, split, subject)
        columns = data.columns
        ridge = fit_probe(
            z[~test], states[~test], kind="ridge", columns=columns, model_identity=model.identity
        )
        read = ridge.predict(z[test])
        stage.advance(note="ridge")
        net = fit_probe(
            z[~test], states[~test], kind="mlp", columns=columns, model_identity=model.identity,
            steps=steps, seed=subject.seed,
        )  # fmt: skip
        stage.advance(note="network")
        pair, difference = _actions(subject, frames, split)
        stage.advance(note="actions")
    errors = column_errors(read, states[test], columns)
    own = column_errors(net.predict(z[test]), states[test], columns)
    layers = layer_reports(model.module) if isinstance(model, HasModule) else []
    trained_on = subject.provenance.get("data_digest") or subject.provenance.get("data")
    return Probed(
        ridge=errors,
        pearson=tuple(
            float(np.corrcoef(read[:, i], states[test][:, i])[0, 1]) for i in range(len(columns))
        ),
        mlp=own,
        undertrained=_mean(own) < _mean(errors) - UNDERTRAINED,
        pair=pair,
        difference=difference,
        effective_rank=effective_rank(z) if z.shape[1] > 1 else 1.0,
        width=int(z.shape[1]),
        spread=float(z.std(dim=0).mean()),
        protocol={
            "frames": len(z),
            "episodes": len(np.unique(where)),
            "source": subject.episodes_from,
            "data": data.digest,
            "split": split,
            "train_frames": int((~test).sum()),
            "test_frames": int(test.sum()),
            "penalty": 1.0,
            "steps": steps,
            "seed": subject.seed,
            "pixels": f"scale {model.conventions.pixel_scale:.4g}, mean "
            f"{model.conventions.pixel_mean}, deviation {model.conventions.pixel_std}",
            "batchnorm": "none"
            if not layers
            else f"evaluation mode, {layers[0].batches} batches "
            "counted; `dreamcheck doctor --only batchnorm` audits it",
            "encoder_heldout": "yes: recorded now, with seeds no training used"
            if subject.episodes_from == "recorded now with the simulator"
            else f"not known; the checkpoint was trained on {str(trained_on)[:60]}"
            if trained_on
            else "not known: the checkpoint does not say what it was trained on",
        },
    )


def _test_rows(where: np.ndarray, split: str, subject: Subject) -> np.ndarray:
    """Which rows are held out, bool [N]."""
    rng = subject.rng(f"probe split {split}")
    if split == "frame":
        test = np.zeros(len(where), bool)
        test[rng.permutation(len(where))[: round(TEST_SHARE * len(where))]] = True
        return test
    names = np.unique(where)
    if len(names) < 2:
        raise Abstention("one episode cannot be split by episode; give more, or --split frame.")
    held = rng.permutation(names)[: max(1, round(TEST_SHARE * len(names)))]
    return np.asarray(np.isin(where, held))


def _actions(
    subject: Subject, frames: int, split: str
) -> tuple[tuple[ColumnError, ...], tuple[ColumnError, ...]]:
    """The summed raw action of a block, from the pair of latents and from their difference (R3)."""
    model = subject.model
    assert model is not None
    clips = subject.draw(frames=2, count=max(40, frames // 2), role="probe pairs")
    z = subject.encode(clips.pixels).flatten(2)
    summed = clips.actions.sum(axis=1)
    columns = tuple(Column(f"action_{i}", "summed") for i in range(summed.shape[1]))
    test = _test_rows(clips.episodes, split, subject)
    out = []
    for x in (torch.cat([z[:, 0], z[:, 1]], dim=1), z[:, 1] - z[:, 0]):
        fitted = fit_probe(
            x[~test], summed[~test], kind="ridge", columns=columns, model_identity=model.identity
        )
        out.append(column_errors(fitted.predict(x[test]), summed[test], columns))
    return out[0], out[1]


def _mean(errors: tuple[ColumnError, ...]) -> float:
    return float(np.nanmean([e.r2 for e in errors]))
