"""Commands that make checkpoints or look into them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(train)


def train(
    preset: Annotated[str, typer.Option("--preset", help="A shipped recipe, or a TOML file.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the checkpoint.")],
    threads: shared.Threads = 2,
    resume: shared.Resume = True,
    as_json: shared.AsJson = False,
) -> None:
    """Train a world model from data it makes itself, and write its model card.

    Resumable: stopped at any point, the same command goes on from the last saved step.

    Example: dreamcheck train --preset tworoom-small --out runs/tworoom-small
    """
    from dreamcheck.training import train_preset

    result = train_preset(preset, out, resume=resume, threads=threads or 2)
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
