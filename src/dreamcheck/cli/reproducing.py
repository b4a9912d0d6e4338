"""`dreamcheck reproduce`: published tables recomputed from released data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.errors import ExitCode

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Recompute published tables from released data and compare them line by line.",
)

Data = Annotated[Path, typer.Option("--data", help="Folder with the released data.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write checks and values to this file.")
]


@group.command()
def tworoom(data: Data, json_file: JsonFile = None) -> None:
    """Planning outcomes of the TwoRoom reproduction: every count, interval, test and mean.

    Example: dreamcheck reproduce tworoom --data released/tworoom_runs --json out.json
    """
    from dreamcheck.reproduce import reproduce_tworoom

    _finish(reproduce_tworoom(data), json_file)


@group.command()
def acpc(data: Data, json_file: JsonFile = None) -> None:
    """ACPC screening tables, in exact arithmetic and in the released float arithmetic.

    Example: dreamcheck reproduce acpc --data released/acpc
    """
    from dreamcheck.reproduce import reproduce_acpc

    _finish(reproduce_acpc(data), json_file)


@group.command()
def viscore(data: Data, json_file: JsonFile = None) -> None:
    """VIScore's tables from the released pools.

    Example: dreamcheck reproduce viscore --data released/viscore
    """
    from dreamcheck.reproduce.viscore import reproduce_viscore

    _finish(reproduce_viscore(data), json_file)


@group.command()
def pusht(
    out: Annotated[Path, typer.Option("--out", help="Folder for the records; resumable.")],
    model: Annotated[str, typer.Option("--model", help="Checkpoint folder.")] = "pusht-small",
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results page here.")
    ] = None,
    cases: Annotated[int, typer.Option("--cases", help="Inputs for the consequence.")] = 8,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="--no-measure: only write the page.")
    ] = True,
) -> None:
    """The 576 PushT protocol end to end on your model; needs the [swm] extra.

    Example: dreamcheck reproduce pusht --model runs/pusht --out runs/576 --page results.md
    """
    from dreamcheck.reproduce.pusht import page as results_page
    from dreamcheck.reproduce.pusht import run_protocol

    directory = run_protocol(model, out, cases=cases) if measure else out / "576"
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(results_page(directory), encoding="utf-8")
        typer.echo(f"page: {page}")


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="reproduce")


def _finish(report: Any, json_file: Path | None) -> None:
    for line in report.lines():
        typer.echo(line)
    if json_file is not None:
        report.write_json(json_file)
    if not report.ok:
        raise typer.Exit(ExitCode.INTEGRITY)
