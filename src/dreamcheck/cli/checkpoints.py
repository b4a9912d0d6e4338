"""Commands that make checkpoints or look into them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode, UsageError


class Augmentation(Enum):
    """What ``train --augment`` knows."""

    gaussian = "gaussian"


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(train)
    app.command("import")(import_)
    app.command()(inspect)
    app.command()(data)
    app.command("export-queries")(export_queries)
    app.command("import-answers")(import_answers)


Sheet = Annotated[
    Path | None, typer.Option("--contact-sheet", help="Write a PNG of recorded frames here.")
]


def train(
    preset: Annotated[str, typer.Option("--preset", help="A shipped recipe, or a TOML file.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the checkpoint.")],
    threads: shared.Threads = 2,
    resume: shared.Resume = True,
    stages: Annotated[
        int, typer.Option("--stages", min=1, help="Keep the result of so many equal shares.")
    ] = 1,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Stop after this long, to be continued.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Root seed, in place of the recipe's.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Training steps, likewise.")
    ] = None,
    augment: Annotated[
        Augmentation | None,
        typer.Option("--augment", help="Noise on every frame of a training clip."),
    ] = None,
    sigma_max: Annotated[
        float | None,
        typer.Option(
            "--sigma-max", min=0, max=1, help="Its largest sigma, in units of the display range."
        ),
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Train a world model from data it makes itself, and write its model card.

    Resumable: stopped at any point, the same command goes on from the last saved step.

    Example: dreamcheck train --preset tworoom-small --out runs/tworoom-small

    Example: dreamcheck train --preset pusht-small --out runs/pusht --stages 3 --minutes 20

    Example: dreamcheck train --preset tworoom-small --augment gaussian --sigma-max 0.05 --out noisy
    """
    from dreamcheck.training import train_preset

    if (augment is None) != (sigma_max is None):
        given, missing = (
            ("--sigma-max", "--augment") if augment is None else ("--augment", "--sigma-max")
        )
        raise UsageError(
            f"{given} needs {missing}: dreamcheck train --augment gaussian --sigma-max 0.05"
        )
    overrides: dict[str, Any] = {
        "seed": seed,
        "optimiser.steps": steps,
        "augment.kind": None if augment is None else augment.value,
        "augment.sigma_max": sigma_max,
    }
    result = train_preset(
        preset,
        out,
        resume=resume,
        threads=threads or 2,
        stages=stages,
        minutes=minutes,
        **{k: v for k, v in overrides.items() if v is not None},
    )
    if as_json:
        shared.print_json({"path": str(result.path), "card": result.card})
    else:
        typer.echo(f"checkpoint: {result.path}")
        typer.echo(f"model card: {result.path / 'card.md'}")
    if not result.floors_met:
        typer.echo(
            "dreamcheck: the model misses a floor of its recipe; card.md says which and by how "
            "much.",
            err=True,
        )
        raise typer.Exit(ExitCode.GUARD_REFUSED)


def import_(
    path: Annotated[
        str,
        typer.Argument(
            help="A run's folder, a hub snapshot or name, a .ckpt, .pt or .safetensors file.",
            metavar="PATH",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Checkpoint folder to write.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Recorded episodes; action statistics are fitted on them."),
    ] = None,
    statistics: Annotated[
        Path | None,
        typer.Option("--statistics", help="File with action_mean and action_std instead."),
    ] = None,
    family: Annotated[
        str | None, typer.Option("--family", help="lewm, vis-wm or pldm, if it is not recognised.")
    ] = None,
    frameskip: Annotated[
        int | None, typer.Option("--frameskip", min=1, help="Environment steps between two frames.")
    ] = None,
    action_dim: Annotated[
        int | None, typer.Option("--action-dim", min=1, help="Numbers in one raw action.")
    ] = None,
    mapping: shared.ColumnMapping = None,
    download: Annotated[
        bool, typer.Option("--download", help="Let a hub name be fetched; never without this.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that holds a checkpoint.")
    ] = False,
    as_json: shared.AsJson = False,
) -> None:
    """Bring a checkpoint of stable-worldmodel, LeWM, VIS-WM or PLDM in; none of its code runs.

    Example: dreamcheck import runs/pusht/ --data heldout.h5 --out ckpt
    """
    from dreamcheck.models.importing import import_checkpoint

    episodes = shared.episodes(data, mapping)
    report = import_checkpoint(
        path,
        out=out,
        data=episodes,
        statistics=statistics,
        family=family,
        frameskip=frameskip,
        action_dim=action_dim,
        download=download,
        overwrite=overwrite,
    )
    _show(report, as_json)


def inspect(
    checkpoint: Annotated[
        str, typer.Argument(help="Checkpoint folder, shipped name, or package.module:factory.")
    ],
    data: Annotated[Path | None, typer.Option("--data", help="Recorded episodes.")] = None,
    mapping: shared.ColumnMapping = None,
    contact_sheet: Sheet = None,
    device: shared.Device = "cpu",
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Say what a checkpoint is, where each convention came from, and whether it beats a frozen world.

    Example: dreamcheck inspect ckpt --data heldout.h5
    """
    from dreamcheck.models.inspecting import inspect_checkpoint

    report = inspect_checkpoint(
        checkpoint,
        data=data,
        mapping=mapping,
        device=device,
        progress=shared.progress(quiet=quiet),
    )
    _sheet(report.contact_sheet, contact_sheet)
    _show(report, as_json)


def data(
    path: Annotated[
        Path, typer.Argument(help="HDF5 file, Lance or LeRobot dataset, or folder of NPZ episodes.")
    ],
    mapping: shared.ColumnMapping = None,
    contact_sheet: Sheet = None,
    as_json: shared.AsJson = False,
) -> None:
    """Summarise recorded episodes: lengths, NaNs, ranges, action statistics, a contact sheet.

    Example: dreamcheck data heldout.h5 --contact-sheet frames.png
    """
    from dreamcheck.data.readers import open_episodes
    from dreamcheck.data.summary import summarise

    summary = summarise(open_episodes(path, mapping))
    _sheet(summary.contact_sheet, contact_sheet)
    _show(summary, as_json)


def export_queries(
    path: Annotated[Path, typer.Argument(help="Recorded episodes.", metavar="DATA")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the questions.")],
    frameskip: Annotated[
        int, typer.Option("--frameskip", min=1, help="Environment steps between two frames.")
    ],
    history: Annotated[int, typer.Option("--history", min=1, help="Observed frames a row.")] = 3,
    horizon: Annotated[int, typer.Option("--horizon", min=1, help="Forecast frames a row.")] = 5,
    windows: Annotated[int, typer.Option("--windows", min=1, help="Rows to draw.")] = 64,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draw.")] = 0,
    mapping: shared.ColumnMapping = None,
) -> None:
    """Write frames and actions as NPZ, for a model of any framework to answer.

    Example: dreamcheck export-queries heldout.h5 --frameskip 5 --out questions
    """
    from dreamcheck.data.readers import open_episodes
    from dreamcheck.exchange import export_queries as export

    queries = export(
        open_episodes(path, mapping),
        out,
        frameskip=frameskip,
        history=history,
        horizon=horizon,
        windows=windows,
        seed=seed,
    )
    typer.echo(f"questions: {out} ({len(queries.history)} rows, digest {queries.digest[:12]})")


def import_answers(
    folder: Annotated[Path, typer.Argument(help="Folder written by export-queries.")],
    answers: Annotated[Path, typer.Argument(help="NPZ that your script wrote.")],
    as_json: shared.AsJson = False,
) -> None:
    """Score the answers: one-step and open-loop error against a frozen world, probes, a verdict.

    Example: dreamcheck import-answers questions answers.npz
    """
    from dreamcheck.exchange import import_answers as score

    _show(score(folder, answers), as_json)


class _Shown(Protocol):
    def to_dict(self) -> dict[str, Any]: ...

    def lines(self) -> list[str]: ...


def _show(report: _Shown, as_json: bool) -> None:
    if as_json:
        shared.print_json(report.to_dict())
        return
    for line in report.lines():
        typer.echo(line)


def _sheet(png: bytes | None, path: Path | None) -> None:
    if path is None:
        return
    if png is None:
        typer.echo("dreamcheck: these data hold no pictures; no contact sheet.", err=True)
        return
    path.write_bytes(png)
    typer.echo(f"contact sheet: {path}", err=True)
