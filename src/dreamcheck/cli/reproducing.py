"""`dreamcheck reproduce`: published tables recomputed from released data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.digest import plain
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


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="reproduce")


def _finish(report: Any, json_file: Path | None) -> None:
    for line in report.lines():
        typer.echo(line)
    if json_file is not None:
        text = json.dumps(plain(report.to_dict()), indent=1, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8")
    if not report.ok:
        raise typer.Exit(ExitCode.INTEGRITY)
