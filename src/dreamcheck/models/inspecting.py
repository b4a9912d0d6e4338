"""A first look at a checkpoint: what it is, where each convention came from, does it follow actions.

What could not be done is listed with what it needs; nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from dreamcheck.data.episodes import Episodes, split_episodes
from dreamcheck.data.summary import DataSummary, has_pixels, summarise
from dreamcheck.data.windows import Windows
from dreamcheck.digest import plain
from dreamcheck.errors import Abstention, CheckpointError, UsageError
from dreamcheck.imagination.runner import NotFinite, Runner
from dreamcheck.models.checkpoint import Checkpoint, read_checkpoint
from dreamcheck.models.lewm import count_parameters
from dreamcheck.models.protocol import HasModule, WorldModel
from dreamcheck.models.readout import ColumnError
from dreamcheck.progress import Progress
from dreamcheck.tasks.protocol import Column

if TYPE_CHECKING:
    from dreamcheck.training.measures import Ratio

Verdict = Literal["follows the actions", "better than a frozen world",
                  "no better than a frozen world", "ignores the actions", "not decided",
                  "not measured"]  # fmt: skip

MAX_MEAN_SHIFT = 0.25
MAX_SCALE = 1.5
"""Declared action statistics farther than this from the data's are called another scaler's."""


@dataclass(frozen=True, slots=True)
class StepError:
    """Forecast error k model frames ahead, over that of a world frozen at the last seen frame.

    ratio, low, high: ratio of means and its bootstrap interval over episodes (C7, C8).
    error, baseline: mean L2 distance in latent units. relative_to_step: error over the mean real
        displacement of that one step.
    """

    step: int
    ratio: float
    low: float
    high: float
    error: float
    baseline: float
    windows: int
    episodes: int


@dataclass(frozen=True)
class InspectReport:
    """What ``dreamcheck inspect`` shows.

    facts: name -> (value, source). one_step is open_loop[0].
    shuffled: one-step error with every window given another episode's actions; a model that
        follows actions is worse here.
    probes: held-out errors of a ridge probe per state column.
    action_scale: per raw dimension, (data mean - declared mean) / declared std and
        data std / declared std.
    """

    checkpoint: str
    family: str
    identity: str
    num_parameters: int | None
    sizes: Mapping[str, Any]
    facts: tuple[tuple[str, Any, str, str], ...]
    verdict: Verdict
    why: str
    open_loop: tuple[StepError, ...] = ()
    shuffled: StepError | None = None
    probes: tuple[ColumnError, ...] = ()
    probe_frames: int = 0
    action_scale: tuple[tuple[float, float], ...] = ()
    data: DataSummary | None = None
    skipped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def one_step(self) -> StepError | None:
        """The first step's error."""
        return self.open_loop[0] if self.open_loop else None

    @property
    def contact_sheet(self) -> bytes | None:
        """PNG of recorded frames."""
        return self.data.contact_sheet if self.data else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""

        def step(s: StepError) -> dict[str, Any]:
            return {k: plain(getattr(s, k)) for k in StepError.__slots__}

        return {
            "checkpoint": self.checkpoint,
            "family": self.family,
            "identity": self.identity,
            "num_parameters": self.num_parameters,
            "sizes": plain(self.sizes),
            "facts": [
                {"name": n, "value": plain(v), "source": s, "note": note}
                for n, v, s, note in self.facts
            ],
            "verdict": self.verdict,
            "why": self.why,
            "open_loop": [step(s) for s in self.open_loop],
            "shuffled": step(self.shuffled) if self.shuffled else None,
            "probes": [
                {"name": e.name, "unit": e.unit, "r2": plain(e.r2), "mae": plain(e.mae),
                 "rmse": plain(e.rmse)}
                for e in self.probes
            ],
            "probe_frames": self.probe_frames,
            "action_scale": plain(self.action_scale),
            "data": self.data.to_dict() if self.data else None,
            "skipped": list(self.skipped),
            "warnings": list(self.warnings),
            "settings": plain(self.settings),
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Plain text for a console."""
        count = "" if self.num_parameters is None else f", {self.num_parameters:,} parameters"
        out = [f"{self.checkpoint}: {self.family}{count}, identity {self.identity[:12]}"]
        width = max((len(f[0]) for f in self.facts), default=0)
        for name, value, source, note in self.facts:
            shown = value if not isinstance(value, (list, tuple)) else _short_list(value)
            out.append(f"  {name:<{width}}  {shown}  <- {source}{f' ({note})' if note else ''}")
        for s in self.open_loop:
            out.append(
                f"  step {s.step}: {s.ratio:.3f} of a frozen world's error "
                f"[{s.low:.3f}, {s.high:.3f}] ({s.windows} windows of {s.episodes} episodes)"
            )
        if self.shuffled is not None:
            out.append(
                f"  step 1 with another episode's actions: {self.shuffled.ratio:.3f} "
                f"[{self.shuffled.low:.3f}, {self.shuffled.high:.3f}]"
            )
        for e in self.probes:
            unit = " (unit not declared)" if e.unit in ("", "?") else f" {e.unit}"
            out.append(f"  probe {e.name}: R2 {e.r2:.3f}, mean error {e.mae:.4g}{unit}, held out")
        if self.data is not None:
            out += [f"  note: data: {n}" for n in self.data.notes]
        out += [f"  warning: {w}" for w in self.warnings]
        out += [f"  skipped: {s}" for s in self.skipped]
        out.append(f"verdict: {self.verdict} - {self.why}")
        return out


def _short_list(values: Sequence[Any]) -> str:
    shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values[:6])
    return f"[{shown}{', …' if len(values) > 6 else ''}]"


def _step(k: int, r: Ratio) -> StepError:
    return StepError(
        step=k,
        ratio=r.ratio,
        low=r.low,
        high=r.high,
        error=r.error,
        baseline=r.baseline,
        windows=r.windows,
        episodes=r.episodes,
    )


def _facts_of(checkpoint: Checkpoint | None, model: WorldModel) -> list[tuple[str, Any, str, str]]:
    recorded = (checkpoint.training.get("import") or {}) if checkpoint else {}
    known = {f["name"]: f for f in recorded.get("facts", [])}
    if checkpoint is None:
        default = "the model's own code"
    elif recorded:
        default = "import"
    else:
        default = "training recipe" if checkpoint.training else "checkpoint"
    out = []
    for name, value in model.conventions.model_dump().items():
        fact = known.get(name)
        if name in ("pixel_mean", "pixel_std"):
            fact = known.get("pixel_mean, pixel_std")
        source = fact["source"] if fact else default
        out.append((name, value, source, fact["note"] if fact else ""))
    for name in ("encoder_heads", "predictor_heads"):
        if name in known:
            f = known[name]
            out.append((name, f["value"], f["source"], f["note"]))
    return out


def _scale(
    model: WorldModel, summary: DataSummary
) -> tuple[tuple[tuple[float, float], ...], list[str]]:
    """How far the declared action statistics are from the data's, and a warning when far."""
    conventions = model.conventions
    if len(summary.actions) != conventions.action_dim:
        return (), []
    rows, far = [], []
    for i, r in enumerate(summary.actions):
        mean, std = conventions.action_mean[i], conventions.action_std[i]
        shift, ratio = (r.mean - mean) / std, r.std / std
        rows.append((shift, ratio))
        if not r.constant and (
            abs(shift) > MAX_MEAN_SHIFT or not 1 / MAX_SCALE < ratio < MAX_SCALE
        ):
            far.append(i)
    if not far:
        return tuple(rows), []
    i = far[0]
    return tuple(rows), [
        f"action dimension {i}: the data have mean {summary.actions[i].mean:.4g}, deviation "
        f"{summary.actions[i].std:.4g}; the checkpoint declares {conventions.action_mean[i]:.4g}, "
        f"{conventions.action_std[i]:.4g} ({len(far)} of {len(rows)} dimensions differ). Other data "
        "than it was trained on, other units, or a scaler that was never fitted: import again with "
        "--data of the training data"
    ]


def _clean_episodes(episodes: Episodes) -> np.ndarray:
    """Numbers of the episodes whose actions are whole up to the last row."""
    return np.array(
        [
            e
            for e in range(len(episodes.lengths))
            if not np.isnan(np.asarray(episodes.actions(e))[:-1]).any()
        ],
        dtype=np.int64,
    )


def verdict_of(one: StepError | None, shuffled: StepError | None) -> tuple[Verdict, str]:
    """A first verdict out of one-step error and the same with another episode's actions.

    Without the second nothing is said about following actions beyond beating a frozen world.
    """
    if one is None:
        return "not measured", "no recorded data were given; add --data"
    text = f"one step ahead it errs {one.ratio:.3f} times as much as a world that stands still"
    if one.low > 1:
        return (
            "no better than a frozen world",
            f"{text}: a convention is wrong (action scale, pixel scale, frameskip) or it was not "
            "trained on such data",
        )
    if one.high >= 1:
        return "not decided", f"{text}, with 1 inside its interval: give more data or windows"
    if shuffled is None:
        return (
            "better than a frozen world",
            f"{text}; whether it follows the actions needs windows of a second episode",
        )
    if shuffled.ratio <= one.ratio * 1.02:
        return (
            "ignores the actions",
            f"{text}, and another episode's actions change nothing ({shuffled.ratio:.3f}): it "
            "foresees motion but not what actions do",
        )
    if shuffled.low <= one.high:
        return (
            "not decided",
            f"{text}, {shuffled.ratio:.3f} times with another episode's actions, and the two "
            "intervals overlap: give more data or windows",
        )
    text += f", and {shuffled.ratio:.3f} times with another episode's actions"
    return "follows the actions", text


def _forecasts(
    runner: Runner,
    episodes: Episodes,
    *,
    history: int,
    horizon: int,
    windows: int,
    seed: int,
    skipped: list[str],
    progress: Progress | None,
) -> tuple[tuple[StepError, ...], StepError | None]:
    from dreamcheck.training.measures import (
        draw_windows,
        forecast,
        ratio_of_means,
        step_ratios,
    )

    skip = runner.model.conventions.frameskip
    clean = _clean_episodes(episodes)
    lengths = np.asarray(episodes.lengths)
    dirty = len(lengths) - len(clean)
    if dirty:
        skipped.append(
            f"{dirty} of {len(lengths)} episodes have a NaN action inside: left out of "
            "forecasts; repair or split them"
        )
    if not len(clean):
        return (), None
    longest = int(lengths[clean].max())
    possible = (longest - 1) // skip + 1 - history
    if possible < 1:
        skipped.append(
            f"one-step and open-loop error: {history} observed and 1 forecast frames at frameskip "
            f"{skip} need episodes of {history * skip + 1} frames; the longest has {longest}"
        )
        return (), None
    if possible < horizon:
        skipped.append(
            f"steps {possible + 1} to {horizon} ahead: the longest episode has {longest} frames, "
            f"which hold {possible} steps at frameskip {skip}"
        )
        horizon = possible
    need = (history + horizon - 1) * skip + 1
    short = int((lengths[clean] < need).sum())
    if short:
        skipped.append(
            f"{short} of {len(lengths)} episodes are shorter than a window ({need} frames: {history} "
            f"observed and {horizon} forecast at frameskip {skip}) and were left out of forecasts"
        )
    cut = Windows(episodes, num_frames=history + horizon, frameskip=skip, subset=clean)
    index = draw_windows(cut, windows, seed=seed, role="inspect")
    done = forecast(runner, cut, index, history=history, progress=progress)
    steps = tuple(_step(k + 1, r) for k, r in enumerate(step_ratios(done, seed=seed)))
    # Each window gets the actions of one half a list away: of another episode wherever possible.
    if len(np.unique(done.episodes)) < 2:
        skipped.append("one step with another episode's actions: needs windows of 2 episodes")
        return steps, None
    first = Windows(episodes, num_frames=history + 1, frameskip=skip, subset=clean)
    where, bases = cut.locate(index)
    observed = []
    for e, b in zip(where.tolist(), bases.tolist(), strict=True):
        observed.append(episodes.frames(e, b + skip * np.arange(history)))
    pixels = np.concatenate(observed)
    latents = runner.encode(pixels).reshape(len(index), history, -1)
    actions = np.stack(
        [
            np.asarray(episodes.actions(e)[b : b + first.span], dtype=np.float64)
            for e, b in zip(where.tolist(), bases.tolist(), strict=True)
        ]
    )
    blocks = runner.model.conventions.blocks(np.roll(actions, len(index) // 2, axis=0))
    latents = latents.reshape(len(index), history, *runner.model.latent.shape)
    other = runner.rollout(latents, blocks)[:, 0].flatten(1)
    error = (other - done.real[:, 0]).norm(dim=1).double().numpy()
    frozen = (done.last - done.real[:, 0]).norm(dim=1).double().numpy()
    return steps, _step(1, ratio_of_means(error, frozen, done.episodes, seed=seed))


def fit_and_measure(
    latents: Tensor,
    states: np.ndarray,
    heldout_latents: Tensor,
    heldout_states: np.ndarray,
    *,
    columns: tuple[Column, ...],
    model_identity: str,
    seed: int,
) -> tuple[ColumnError, ...]:
    """Held-out errors of a ridge probe, per state column.

    R1 penalises the constant too. At its 4000 frames that is nothing; at a few hundred it would
    pull every prediction towards 0, so targets are centred first.

    Args:
        latents, heldout_latents: [N, D]; states, heldout_states: [N, S], of disjoint episodes.
    """
    from dreamcheck.training.probes import fit_probe

    centre = states.mean(axis=0)
    probe = fit_probe(
        latents,
        states - centre,
        kind="ridge",
        columns=columns,
        model_identity=model_identity,
        seed=seed,
    )
    offset = torch.from_numpy(centre.astype(np.float32))
    tensors = {**probe.tensors, "out_mean": probe.tensors["out_mean"] + offset}
    measured = replace(probe, tensors=tensors).measured(
        heldout_latents, heldout_states, "held-out episodes"
    )
    return measured.errors


def _probes(
    runner: Runner, episodes: Episodes, *, frames: int, seed: int, skipped: list[str]
) -> tuple[tuple[ColumnError, ...], int]:
    from dreamcheck.training.measures import draw_frames, encode_frames

    if not episodes.columns:
        skipped.append(
            "state probes: the data have no state columns; name some in a mapping file (--mapping)"
        )
        return (), 0
    if len(episodes.lengths) < 2:
        skipped.append("state probes: held-out error needs at least 2 episodes; there is 1")
        return (), 0
    split = split_episodes(episodes, heldout=0.25, seed=seed)
    parts = []
    for role, subset, count in (
        ("probe train", split.train, frames * 3 // 4),
        ("probe heldout", split.heldout, frames // 4),
    ):
        where, ts = draw_frames(episodes, subset, count, seed=seed, role=role)
        latents, states = encode_frames(runner, episodes, where, ts)
        good = ~np.isnan(states).any(axis=1)
        if not good.all():
            skipped.append(f"{int((~good).sum())} frames of the {role} set have a NaN state")
        parts.append((latents[torch.from_numpy(good)], states[good]))
    (z, y), (held_z, held_y) = parts
    if len(y) < 10 or len(held_y) < 10:
        skipped.append(f"state probes: {len(y)} and {len(held_y)} usable frames; 10 are needed")
        return (), 0
    errors = fit_and_measure(
        z,
        y,
        held_z,
        held_y,
        columns=tuple(episodes.columns),
        model_identity=runner.model.identity,
        seed=seed,
    )
    return errors, len(y) + len(held_y)


def load_any(
    ckpt: WorldModel | str | Path, data: Episodes | None, device: str
) -> tuple[Any, Checkpoint | None, str, Any]:
    """The model, its checkpoint folder's record, a name, and an import report if it was foreign."""
    if not isinstance(ckpt, (str, Path)):
        return ckpt, None, type(ckpt).__name__, None
    from dreamcheck.models.registry import checkpoint_folder, load_model

    folder = checkpoint_folder(ckpt)
    if folder is None and ":" in str(ckpt):
        return load_model(ckpt, device=device), None, str(ckpt), None
    if folder is not None:
        try:
            checkpoint = read_checkpoint(folder, device=device)
            return checkpoint.model, checkpoint, str(ckpt), None
        except CheckpointError as error:
            from dreamcheck.models.importing import read_foreign, recognise

            try:
                recognise(ckpt)
            except CheckpointError as other:
                # Ours but broken: the first reason is the one that matters.
                raise error if "already is" in str(other) else other from None
            found = read_foreign(ckpt, data=data)
            return found.model, None, str(ckpt), found.report
    from dreamcheck.models.importing import read_foreign

    found = read_foreign(ckpt, data=data)
    return found.model, None, str(ckpt), found.report


def inspect_checkpoint(
    ckpt: WorldModel | str | Path,
    *,
    data: Episodes | str | Path | None = None,
    mapping: str | Path | None = None,
    horizon: int = 5,
    windows: int = 64,
    probe_frames: int = 600,
    seed: int = 0,
    device: str = "cpu",
    tile: int = 64,
    progress: Progress | None = None,
) -> InspectReport:
    """Family, sizes, conventions and their sources; with data, whether it follows the actions.

    Args:
        ckpt: a checkpoint folder, a shipped or plug-in name, ``package.module:factory``, a model,
            or a foreign checkpoint (read for this look, not written).
        data: recorded episodes or their path; without them nothing is measured, and said so.
        mapping: TOML column mapping for ``data``.
        horizon: model frames ahead at most.
        windows, probe_frames: how many are drawn, with ``seed``.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        UsageError: the data cannot be read, or are of another action width.

    Source: spec/protocol.md C7, C8, R1, R7.
    """
    episodes: Episodes | None
    if data is None or isinstance(data, Episodes):
        episodes = data
    else:
        from dreamcheck.data.readers import open_episodes

        episodes = open_episodes(data, mapping)
    model, checkpoint, name, imported = load_any(ckpt, episodes, device)
    module = model.module if isinstance(model, HasModule) else None
    config = getattr(module, "config", None)
    sizes = config.model_dump() if isinstance(config, BaseModel) else {}
    facts = _facts_of(checkpoint, model)
    skipped: list[str] = []
    warnings: list[str] = []
    record: Mapping[str, Any] = checkpoint.training.get("import", {}) if checkpoint else {}
    if imported is not None:
        by_name = {f.name: f for f in imported.facts}
        facts = [
            (n, v, by_name[n].source, by_name[n].note) if n in by_name else (n, v, s, note)
            for n, v, s, note in facts
        ]
        record = imported.to_dict()
        skipped += imported.skipped
    elif record:
        skipped += [str(s) for s in record.get("skipped", [])]
    family = str(
        record.get("family") or (checkpoint.family if checkpoint else type(model).__name__)
    )
    summary: DataSummary | None = None
    scale: tuple[tuple[float, float], ...] = ()
    open_loop: tuple[StepError, ...] = ()
    shuffled: StepError | None = None
    probes: tuple[ColumnError, ...] = ()
    used = 0
    if episodes is None:
        skipped.append(
            "one-step and open-loop error, state probes, contact sheet, action scale: need --data"
        )
    else:
        summary = summarise(episodes, seed=seed)
        if len(summary.actions) != model.conventions.action_dim:
            raise UsageError(
                f"the actions of {summary.source} have {len(summary.actions)} numbers, those of "
                f"{name} have {model.conventions.action_dim}: data of another task, or a wrong "
                "action column (name it in a mapping file, --mapping)."
            )
        scale, more = _scale(model, summary)
        c = model.conventions
        own_code = checkpoint is None and imported is None
        if not (own_code and set(c.action_mean) == {0} and set(c.action_std) == {1}):
            # A user's own adapter that declares no scaling says that its model takes raw actions.
            warnings += more
        if not has_pixels(episodes):
            skipped.append(
                "everything that needs frames: the data hold no pictures (or their column has "
                "another name: --mapping)"
            )
        else:
            runner = Runner(model, tile=tile)
            try:
                open_loop, shuffled = _forecasts(
                    runner,
                    episodes,
                    history=model.history_max,
                    horizon=horizon,
                    windows=windows,
                    seed=seed,
                    skipped=skipped,
                    progress=progress,
                )
            except (Abstention, NotFinite) as reason:
                skipped.append(f"one-step and open-loop error: {reason}")
            try:
                probes, used = _probes(
                    runner, episodes, frames=probe_frames, seed=seed, skipped=skipped
                )
            except NotFinite as reason:
                skipped.append(f"state probes: {reason}")
    skipped.append("planning success, BatchNorm and protocol checks: not part of this look; a task "
                   "and `dreamcheck doctor` or `dreamcheck plan` give them")  # fmt: skip
    verdict, why = verdict_of(open_loop[0] if open_loop else None, shuffled)
    if open_loop and "assumed" in (f[2] for f in facts if f[0] == "action_mean"):
        why += ". The action scale was a stand-in: import with --data or --statistics, look again"
    if episodes is not None and not open_loop:
        why = "nothing could be forecast; see what was skipped"
    return InspectReport(
        checkpoint=name,
        family=family,
        identity=model.identity,
        num_parameters=count_parameters(module) if module is not None else None,
        sizes=sizes,
        facts=tuple(facts),
        verdict=verdict,
        why=why,
        open_loop=open_loop,
        shuffled=shuffled,
        probes=probes,
        probe_frames=used,
        action_scale=scale,
        data=summary,
        skipped=tuple(dict.fromkeys(skipped)),
        warnings=tuple(warnings),
        settings={"horizon": horizon, "windows": windows, "seed": seed, "tile": tile},
    )
