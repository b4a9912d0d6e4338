"""The command line: a thin reading of the same functions, one exit code per kind of end."""

from __future__ import annotations

import sys
import traceback

import typer

from dreamcheck import __version__
from dreamcheck.cli import (
    checkpoints,
    comparing,
    consistency,
    designing,
    doctoring,
    gating,
    looking,
    planning,
    reproducing,
    scoring,
    studies,
)
from dreamcheck.errors import DreamcheckError, ExitCode

app = typer.Typer(
    name="dreamcheck",
    help="Check what a world model imagines against what really happens.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"dreamcheck {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Exit codes: 0 done, 1 internal error, 2 bad input, 3 abstained, 4 a guard refused,
    5 integrity or reproduction mismatch, 6 gate regressed, 7 incomplete."""


for module in (
    studies,
    comparing,
    looking,
    checkpoints,
    consistency,
    planning,
    designing,
    doctoring,
    scoring,
    gating,
    reproducing,
):
    module.register(app)


def main() -> None:
    """Entry point: runs the command and turns every end into its exit code."""
    try:
        # Without standalone mode a command that ends with typer.Exit returns its code here.
        code = app(standalone_mode=False)
        if isinstance(code, int) and code:
            sys.exit(code)
    except (typer.Abort, KeyboardInterrupt):
        _interrupted()
    except DreamcheckError as e:
        print(f"dreamcheck: {e}", file=sys.stderr)
        sys.exit(e.exit_code)
    except BrokenPipeError:
        sys.exit(ExitCode.DONE)
    except Exception as e:
        # typer's own usage errors; their class moved between typer releases, their face did not.
        if hasattr(e, "show") and hasattr(e, "format_message"):
            e.show()
            sys.exit(ExitCode.USAGE)
        traceback.print_exc()
        print(
            "dreamcheck: this is a bug in Dreamcheck or in a part you brought; the lines above "
            "say where.",
            file=sys.stderr,
        )
        sys.exit(ExitCode.INTERNAL)


def _interrupted() -> None:
    print(
        "dreamcheck: stopped. What was measured is committed; the same command goes on from there.",
        file=sys.stderr,
    )
    sys.exit(ExitCode.INCOMPLETE)


if __name__ == "__main__":
    main()
