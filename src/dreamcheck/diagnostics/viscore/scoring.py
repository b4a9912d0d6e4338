"""The score of one checkpoint on one probe: veracity · influence · sobriety, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dreamcheck.data.episodes import Episodes
from dreamcheck.diagnostics.viscore import factors as fs
from dreamcheck.diagnostics.viscore import influence as inf
from dreamcheck.diagnostics.viscore import sobriety as sob
from dreamcheck.diagnostics.viscore import veracity as ver
from dreamcheck.diagnostics.viscore.bank import LatentBank, encode_bank
from dreamcheck.diagnostics.viscore.criteria import Criterion
from dreamcheck.diagnostics.viscore.measuring import Scoring, Stopwatch
from dreamcheck.diagnostics.viscore.probe import Probe, build_probe
from dreamcheck.diagnostics.viscore.record import ScoreRecord
from dreamcheck.diagnostics.viscore.search import ProbeName
from dreamcheck.diagnostics.viscore.settings import ScoreSettings
from dreamcheck.errors import UsageError
from dreamcheck.models.protocol import WorldModel
from dreamcheck.progress import Progress, Stage

NAN = float("nan")


def score(
    model: WorldModel,
    criterion: Criterion,
    data: Episodes | Probe,
    *,
    cell_id: str | None = None,
    settings: ScoreSettings | None = None,
    bank: LatentBank | None = None,
    cache: str | Path | None = None,
    epoch: float = NAN,
    training_loss: float = NAN,
    progress: Progress | None = None,
) -> ScoreRecord:
    """The VIScore of a checkpoint, with everything it was made of.

    Args:
        criterion: tolerance, graded and nuisance coordinates, horizons of the task.
        data: a probe, or recorded episodes from which the standard probe is built.
        cell_id: names the checkpoint and seeds the search; default: the model's identity.
        bank: latents computed before (refused when of another model or probe).
        cache: folder of latent banks.
        epoch, training_loss: free baselines, when known.
        progress: where to show frames encoded and latents predicted, with the time left.

    Returns:
        A record; an included factor that cannot be measured makes it abstain, with the reason.

    Raises:
        UsageError: missing columns, action blocks of another width, an unusable setting.
        EvidenceError: a latent bank of another model or probe.
        Abstention: token latents, which have no distances.

    Source: spec/viscore.md.
    """
    settings = settings or ScoreSettings()
    kept = fs.factor_set(include=settings.include, exclude=settings.exclude)
    if settings.tau <= 0:
        raise UsageError(f"tau = {settings.tau} nats must be positive.")
    probe = data if isinstance(data, Probe) else build_probe(data, frameskip=criterion.frameskip)
    cell_id = cell_id or model.identity
    _check_blocks(model, probe, criterion)
    watch = Stopwatch()
    progress = progress or Progress(quiet=True)
    with watch("encode"):
        if bank is None:
            with progress.stage(f"{cell_id}: encode", probe.num_rows, unit="frames") as stage:
                bank = encode_bank(model, probe, cache=cache, on_rows=stage.advance)
        bank.check(model, probe)
    total = num_predictions(
        probe, criterion, history=model.history_max, factors=kept, search=settings.search
    )
    with progress.stage(f"{cell_id}: score", total, unit="predictions") as stage:
        run = Scoring(
            model, criterion, probe, bank, settings, kept, cell_id, watch, _capped(stage, total)
        )
        return run.record(epoch=epoch, training_loss=training_loss)


def num_predictions(
    probe: Probe, criterion: Criterion, *, history: int, factors: Sequence[str], search: ProbeName
) -> int:
    """Latents that a score predicts on a probe, for a progress bar: what abstains comes out less.

    Source: spec/viscore.md section 19.
    """
    total = 0
    if "veracity" in factors or "influence" in factors:
        clips = len(ver.clip_starts(probe, history=history, curve=criterion.curve))
        total += min(clips, ver.MAX_CLIPS) * criterion.curve
    if "influence" in factors:
        total += inf.NUM_ANCHORS * (inf.NUM_PERTURBATIONS + 1) * criterion.horizon
        total += min(probe.num_rows, inf.MAX_WINDOWS)
    if "sobriety" in factors:
        total += sob.NUM_ANCHORS * sob.num_search_plans(search) * criterion.horizon
    return max(total, 1)


def _capped(stage: Stage, total: int) -> Callable[[int], None]:
    """Advance a stage, never beyond its total: a checked fast search scores some plans twice."""
    left = total

    def advance(count: int) -> None:
        nonlocal left
        count = min(count, left)
        left -= count
        if count:
            stage.advance(count)

    return advance


def score_many(
    models: Iterable[tuple[str, WorldModel]],
    criterion: Criterion,
    data: Episodes | Probe,
    *,
    settings: ScoreSettings | None = None,
    cache: str | Path | None = None,
) -> tuple[ScoreRecord, ...]:
    """Records of many checkpoints, (cell id, model) pairs, on one probe."""
    probe = data if isinstance(data, Probe) else build_probe(data, frameskip=criterion.frameskip)
    return tuple(
        score(m, criterion, probe, cell_id=name, settings=settings, cache=cache)
        for name, m in models
    )


def _check_blocks(model: WorldModel, probe: Probe, criterion: Criterion) -> None:
    width = probe.act_blocks.shape[1]
    wanted = model.conventions.action_width
    if width != wanted:
        raise UsageError(
            f"the probe's action blocks have {width} numbers but the model reads {wanted} "
            f"({model.conventions.action_dim} per action, frameskip "
            f"{model.conventions.frameskip}, {model.conventions.action_combine}). Build the probe "
            "with the model's frameskip, or score a checkpoint of this task."
        )
    if probe.frameskip != criterion.frameskip:
        raise UsageError(
            f"the probe takes every {probe.frameskip}th frame but the criterion's horizons count "
            f"blocks of {criterion.frameskip} steps; a tolerance shell of another spacing is "
            "another score."
        )
