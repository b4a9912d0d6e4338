"""`dreamcheck reproduce`: published tables recomputed from released data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode, UsageError

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
    libraries: Annotated[
        str, typer.Option("--libraries", help="Which protocols, with commas.")
    ] = "576,3510,12016",
    reduced: Annotated[
        bool,
        typer.Option("--reduced", help="Fewer restarts, seeds and cases; the page says which."),
    ] = False,
    menu: Annotated[
        int, typer.Option("--menu", min=0, help="Episodes of `explain` over the menu; 0: none.")
    ] = 50,
    paper_searches: Annotated[
        bool,
        typer.Option(
            "--paper-searches/--no-paper-searches",
            help="Search the larger libraries in paper mode too; else paper mode re-reads.",
        ),
    ] = True,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="--no-measure: only write the page.")
    ] = True,
) -> None:
    """The PushT protocols end to end on your model; needs the [swm] extra.

    Resumable: stopped at any point, the same command goes on.

    Example: dreamcheck reproduce pusht --model runs/pusht --out runs/p --page results.md

    An hour instead of a night: dreamcheck reproduce pusht --reduced --out runs/p --page results.md
    """
    from dreamcheck.cli.planning import Rounds
    from dreamcheck.reproduce.pusht import LIBRARIES, REDUCED, Scale, explain_protocol, run_protocol
    from dreamcheck.reproduce.pusht import page as results_page

    asked = [name.strip() for name in libraries.split(",") if name.strip()]
    unknown = [name for name in asked if name not in LIBRARIES]
    if unknown:
        raise UsageError(
            f"--libraries {unknown[0]!r} is no PushT protocol; there are {', '.join(LIBRARIES)}."
        )
    if measure:
        for library in asked:
            run_protocol(
                model, out, library=library, scale=REDUCED if reduced else Scale(),
                paper_searches=paper_searches,
            )  # fmt: skip
        if menu:
            with Rounds(shared.progress(quiet=False)) as rounds:
                explain_protocol(model, out, episodes=menu, progress=rounds)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(results_page(out), encoding="utf-8")
        typer.echo(f"page: {page}")


@group.command()
def gate(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything; resumable.")],
    study: Annotated[
        Path | None, typer.Option("--study", help="A validated study; its failures are the bank.")
    ] = None,
    task: Annotated[str, typer.Option("--task", help="tworoom or pusht.")] = "tworoom",
    trained: Annotated[
        Path | None,
        typer.Option("--trained", help="A training in stages: its first and last are gated."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Fresh seeds per input of the bank.")
    ] = 16,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results page here.")
    ] = None,
) -> None:
    """The gate on two small trainings of two stages each; without --study only the page.

    The page also shows what `dreamcheck repair` left in OUT/repair.

    Example: dreamcheck reproduce gate --study runs/first --out runs/gates --page gate.md

    PushT: dreamcheck reproduce gate --task pusht --study runs/p/576 --trained runs/pusht --out runs/gates
    """
    from dreamcheck.reproduce.gates import SHOWN, show_gates
    from dreamcheck.reproduce.gates import page as results_page

    if task not in SHOWN:
        raise UsageError(f"--task {task!r}: the gate is shown on {', '.join(SHOWN)}.")
    if study is not None:
        show_gates(out, task=task, study=study, trained=trained, seeds=seeds)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(results_page(out), encoding="utf-8")
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
