"""From a foreign checkpoint to one of ours: network, conventions, statistics, and their sources."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from dreamcheck.data.episodes import Episodes
from dreamcheck.digest import digest_file
from dreamcheck.errors import CheckpointError, UsageError
from dreamcheck.models.checkpoint import CONFIG_FILE, save_checkpoint
from dreamcheck.models.conventions import IMAGENET_MEAN, IMAGENET_STD, Conventions
from dreamcheck.models.importing.build import Built, build
from dreamcheck.models.importing.download import download as download_hub
from dreamcheck.models.importing.facts import ColumnStatistics, Fact, ImportReport, Source
from dreamcheck.models.importing.recognise import HUB_NAME, Found, hub_folders, recognise
from dreamcheck.models.importing.statistics import fit_statistics, read_statistics
from dreamcheck.models.importing.weights import Weights, read_weights
from dreamcheck.models.lewm import count_parameters
from dreamcheck.models.lewm_model import LeWM

Family = Literal["lewm", "vis-wm", "pldm"]
NETWORK = "lewm"
"""Three families, one network: what a checkpoint of ours names. The family is in its provenance."""

FAMILIES: tuple[Family, ...] = ("lewm", "vis-wm", "pldm")
DEFAULT_FRAMESKIP = 5


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model read from a foreign checkpoint, not yet written anywhere."""

    model: LeWM
    report: ImportReport


def _family(asked: str | None, found: Found, weights: Weights) -> tuple[Family, Source, str]:
    if asked is not None:
        if asked not in FAMILIES:
            raise UsageError(f"family = {asked!r} is not one of {', '.join(FAMILIES)}.")
        return asked, "user", ""
    if found.config is not None and found.config.family == "pldm":
        return "pldm", "config", found.config.target or ""
    if found.config is not None and found.config.family == "lewm":
        return "lewm", "config", found.config.target or ""
    classes = {c.rsplit(".", 1)[-1]: p for p, c in weights.classes.items()}
    if "PLDM" in classes:
        return "pldm", "pickled attribute", "class PLDM"
    attributes = weights.attributes.get(classes.get("JEPA", ""), {})
    if "patch_proj_masked" in attributes:
        return (
            "vis-wm",
            "pickled attribute",
            "the class has VIS-WM's patch projections; that code also trains LeWM with SIGReg "
            "(say family = lewm if it did)",
        )
    if "JEPA" in classes or "LeWM" in classes:
        return "lewm", "pickled attribute", f"class {weights.classes.get('', '')}"
    return (
        "lewm",
        "family default",
        "LeWM, VIS-WM and PLDM are one network; only the training loss differs. Name it with family",
    )


def _divisor(found: Found, weights: Weights) -> tuple[Literal["n", "n-1"], str]:
    """The divisor of the deviation the training code used."""
    if found.config is not None and (found.config.target or "").startswith("stable_worldmodel."):
        return "n", "stable-worldmodel 0.1.1 standardises with the population deviation"
    root = weights.classes.get("", "")
    if weights.kind == "pickled module" and not root.startswith("stable_worldmodel."):
        return "n-1", "the le-wm and VIS-WM code standardises with torch's deviation, divisor n - 1"
    return "n", "no training code named; stable-worldmodel's divisor is used"


def _actions(
    built: Built,
    source: Path,
    episodes: Episodes | None,
    frameskip: int | None,
    action_dim: int | None,
) -> tuple[int, int, list[Fact]]:
    """Frameskip and raw action width out of the block width, the data and the user's word."""
    width = built.net.config.action_width
    recorded = None
    logged = getattr(episodes, "source", "the data")
    if episodes is not None and len(episodes.lengths):
        recorded = int(episodes.actions(0).shape[1])
    if action_dim is not None and recorded is not None and action_dim != recorded:
        raise UsageError(
            f"action_dim = {action_dim} was given but the actions of {logged} have {recorded} "
            "numbers: leave it out, or name another column (--mapping)."
        )
    dim, dim_source, dim_note = action_dim, "user", ""
    if dim is None and recorded is not None:
        dim, dim_source = recorded, "data"
    skip, skip_source, skip_note = frameskip, "user", ""
    if skip is None and dim is not None:
        if width % dim:
            raise CheckpointError(
                f"one action block of {source} has {width} numbers (its first action layer), which "
                f"is no multiple of the {dim} numbers of one action "
                f"({logged if recorded is not None else 'action_dim'}). Data and "
                "checkpoint are of different tasks, or actions were not laid side by side; say "
                "frameskip and action_dim if you know better."
            )
        skip, skip_source = width // dim, "tensor shape"
        skip_note = f"block width {width} / action width {dim}"
    if skip is None:
        skip, skip_source = DEFAULT_FRAMESKIP, "family default"
        skip_note = "not in the checkpoint; give --data or frameskip"
        if width % skip:
            raise CheckpointError(
                f"one action block of {source} has {width} numbers, no multiple of the usual frameskip "
                f"{skip}, and there are no data to read the action width from. Give --data, or "
                "frameskip and action_dim."
            )
    if dim is None:
        dim, dim_source = width // skip if skip else 0, "tensor shape"
        dim_note = f"block width {width} / frameskip {skip}"
    if skip < 1 or dim < 1 or skip * dim != width:
        raise CheckpointError(
            f"frameskip {skip} x action width {dim} = {skip * dim}, but one action block of "
            f"{source} has {width} numbers. Dense actions are side by side: leave --frameskip out, "
            "or give a divisor."
        )
    facts = [
        Fact("frameskip", skip, skip_source, skip_note),  # type: ignore[arg-type]
        Fact("action_dim", dim, dim_source, dim_note),  # type: ignore[arg-type]
        Fact("action_combine", "concat", "family default", "the block's actions side by side"),
    ]
    return skip, dim, facts


def _open(data: Episodes | str | Path | None) -> Episodes | None:
    if data is None or isinstance(data, Episodes):
        return data
    from dreamcheck.data.readers import open_episodes

    return open_episodes(data)


def _resolve(path: str | Path, fetch: bool) -> Found:
    given = str(path)
    local = Path(path).exists() or any(f.is_dir() for f in hub_folders(given))
    if fetch and HUB_NAME.match(given) and not local:
        folder = download_hub(given)
        found = recognise(folder)
        return dataclasses.replace(
            found, notes=(*found.notes, f"{given} was downloaded to {folder}")
        )
    return recognise(path)


def read_foreign(
    path: str | Path,
    *,
    data: Episodes | str | Path | None = None,
    statistics: str | Path | ColumnStatistics | None = None,
    family: str | None = None,
    frameskip: int | None = None,
    action_dim: int | None = None,
    divisor: Literal["n", "n-1"] | None = None,
    download: bool = False,
    out: str = "",
) -> Imported:
    """A foreign checkpoint as a model in evaluation mode, with the source of every convention.

    Arguments and errors are those of ``import_checkpoint``; nothing is written.
    """
    found = _resolve(path, download)
    weights = read_weights(found.weights)
    built = build(weights, found.config)
    episodes = _open(data)
    which, family_source, family_note = _family(family, found, weights)
    skip, dim, facts = _actions(built, found.weights, episodes, frameskip, action_dim)
    skipped: list[str] = []
    warnings: list[str] = []
    rule, rule_note = _divisor(found, weights)
    if divisor is not None:
        rule, rule_note = divisor, ""
    fitted: tuple[ColumnStatistics, ...] = ()
    stats_source: Source
    if statistics is not None:
        given = (
            statistics if isinstance(statistics, ColumnStatistics) else read_statistics(statistics)
        )
        fitted, stats_source = (given,), "file"
        stats_note = "" if isinstance(statistics, ColumnStatistics) else Path(statistics).name
        if len(given.mean) != dim:
            raise UsageError(
                f"the statistics have {len(given.mean)} numbers but one raw action has {dim}. Give "
                "one per raw dimension; they are tiled over the block."
            )
    elif episodes is not None:
        fitted, stats_source = fit_statistics(episodes, divisor=rule), "data"
        action_rows = fitted[0]
        stats_note = (
            f"{action_rows.rows} rows, {action_rows.nan_rows} with NaN left out, divisor "
            f"{action_rows.divisor}: {rule_note or 'asked for'}. Right only for the data it was "
            "trained on"
        )
        if fitted[0].constant_dims:
            warnings.append(
                f"action dimensions {list(fitted[0].constant_dims)} never change in the data; they "
                "are centred and not scaled"
            )
    else:
        stats_source, stats_note = "assumed", "no data and no statistics file: nothing is scaled"
        skipped.append(
            "action statistics: mean 0 and deviation 1 stand in for the training scaler, which is "
            "not in the checkpoint. Predictions are wrong if training standardised actions (this "
            "family does). Needs --data with the training data, or --statistics FILE"
        )
        skipped.append("state statistics: need --data with state columns")
    if episodes is not None and not episodes.columns:
        skipped.append("state statistics: the data have no state columns (name some in a mapping)")
    mean = fitted[0].mean if fitted else (0.0,) * dim
    std = fitted[0].std if fitted else (1.0,) * dim
    size = built.net.config.image_size
    conventions = Conventions(
        image_size=size,
        resize="bilinear",
        pixel_mean=IMAGENET_MEAN,
        pixel_std=IMAGENET_STD,
        frameskip=skip,
        action_dim=dim,
        action_mean=mean,
        action_std=std,
        history=built.net.config.history,
    )
    facts += [
        Fact("pixel_mean, pixel_std", "ImageNet on [0, 1]", "family default"),
        Fact("resize", "bilinear", "family default", f"only for frames that are not {size} px"),
        Fact("action_mean", mean, stats_source, stats_note),
        Fact("action_std", std, stats_source, "" if stats_source != "data" else f"divisor {rule}"),
        Fact("mode", "evaluation", "family default", "BatchNorm uses its running statistics"),
    ]
    model = LeWM(built.net, conventions, family=NETWORK)
    files = {found.weights.name: digest_file(found.weights)}
    if found.config is not None:
        files[found.config.path.name] = digest_file(found.config.path)
    report = ImportReport(
        source=str(path),
        files=files,
        layout=f"{found.layout}, {weights.kind}" if weights.kind != found.layout else found.layout,
        family=which,
        out=out,
        identity=model.identity,
        num_parameters=count_parameters(built.net),
        facts=(Fact("family", which, family_source, family_note), *built.facts, *facts),
        statistics=fitted,
        notes=(
            *found.notes,
            *(found.config.notes if found.config else ()),
            *built.notes,
            *(f"data: {n}" for n in getattr(episodes, "notes", ())),
        ),
        skipped=tuple(skipped),
        left_out=built.left_out,
        warnings=tuple(warnings),
    )
    return Imported(model, report)


def import_checkpoint(
    path: str | Path,
    *,
    out: str | Path,
    data: Episodes | str | Path | None = None,
    statistics: str | Path | ColumnStatistics | None = None,
    family: str | None = None,
    frameskip: int | None = None,
    action_dim: int | None = None,
    divisor: Literal["n", "n-1"] | None = None,
    download: bool = False,
    overwrite: bool = False,
) -> ImportReport:
    """Write a foreign checkpoint as one of ours; no code of it is run.

    Args:
        path: a run's folder (``weights*.pt`` + ``config.json``), a hub snapshot or hub name, a
            ``*_object.ckpt``, ``*_weight.ckpt`` or other weights file, safetensors.
        out: the checkpoint folder to write.
        data: recorded episodes (or their path) to fit action and state statistics on; they also
            give the raw action width and so the frameskip.
        statistics: a JSON, TOML or NPZ file with ``action_mean`` and ``action_std`` instead.
        family: "lewm", "vis-wm" or "pldm"; one network, three training losses.
        frameskip, action_dim: when neither data nor the family's habit give them.
        divisor: of the deviation; by default what the training code used.
        download: a hub name may be fetched. Never without this.
        overwrite: write into a folder that already holds a checkpoint.

    Raises:
        CheckpointError: not recognised, unsafe, damaged, of another family, or contradictory; the
            message names the file, the key or class, and the way out.
        UsageError: data or statistics that cannot be used.
    """
    out = Path(out)
    if (out / CONFIG_FILE).exists() and not overwrite:
        raise UsageError(
            f"{out} already holds a checkpoint; choose another folder or say overwrite."
        )
    if Path(path).is_dir() and out.resolve() == Path(path).resolve():
        raise UsageError(
            f"{out} is the run itself: its config.json would be replaced. Choose "
            "another folder for the imported checkpoint."
        )
    found = read_foreign(
        path,
        data=data,
        statistics=statistics,
        family=family,
        frameskip=frameskip,
        action_dim=action_dim,
        divisor=divisor,
        download=download,
        out=str(out),
    )
    save_checkpoint(
        out,
        found.model.module,
        found.model.conventions,
        family=NETWORK,
        training={"import": found.report.to_dict()},
    )
    return found.report
