"""Options and printing that commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamcheck.digest import plain
from dreamcheck.errors import UsageError
from dreamcheck.progress import Progress

if TYPE_CHECKING:
    from dreamcheck.data.episodes import Episodes

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress lines.")]


def _device(name: str) -> str:
    """The device as given, if this torch has it."""
    if name == "cpu":
        return name
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f"--device {name} is not there: {str(error).splitlines()[0].rstrip('.')}. Devices are "
            "cpu, cuda, cuda:1, mps, …; for cuda install a GPU build of torch."
        ) from None
    return name


ColumnMapping = Annotated[
    Path | None, typer.Option("--mapping", help="TOML file that names the data's columns.")
]
Checkpoints = Annotated[
    list[str],
    typer.Argument(
        help="Checkpoint folders or files, shipped names, package.module:factory; "
        "NAME=CHECKPOINT to name one.",
        metavar="CKPT...",
    ),
]
Device = Annotated[
    str,
    typer.Option("--device", help="Torch device of the model, e.g. cuda.", callback=_device),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Torch threads; part of a study's numerics profile."),
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        min=32,
        help="Rows per model call; halved when memory runs out. Part of the numerics profile.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--no-resume",
        help="Go on where a stopped run ended; --no-resume refuses a folder that holds a study.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", help="A guard that may fail (law 2); every record and report then says so."
    ),
]
MixedNumerics = Annotated[
    bool,
    typer.Option(
        "--mixed-numerics",
        help="Resume under another torch, device or thread count; every record says so.",
    ),
]


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?\Z")


def seconds_of(text: str) -> float:
    """Seconds of a duration with units: "90s", "20m", "1h30m".

    Raises:
        UsageError: another form, or nothing at all.
    """
    found = _DURATION.match(text.strip().lower())
    parts = [float(p or 0) for p in found.groups()] if found else [0.0]
    if not any(parts):
        raise UsageError(
            f"--time {text!r} is not a duration: give hours, minutes and seconds with their units, "
            "as in 90s, 20m or 1h30m."
        )
    hours, minutes, seconds = parts
    return 3600 * hours + 60 * minutes + seconds


def set_threads(threads: int | None) -> None:
    """Torch's threads, where asked for."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def episodes(data: Path | None, mapping: Path | None) -> Episodes | None:
    """Recorded episodes, where a file or folder of them is given."""
    from dreamcheck.data.readers import open_episodes

    return None if data is None else open_episodes(data, mapping)


def progress(*, quiet: bool) -> Progress:
    """Progress on standard error, or none."""
    return Progress(quiet=quiet)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def table_lines(rows: Sequence[Sequence[Any]], *, head: Sequence[str]) -> list[str]:
    """A plain aligned table as lines; columns of numbers, also formatted ones, to the right."""
    texts = [[str(v) for v in row] for row in rows]
    widths = [max(len(h), *(len(r[i]) for r in texts), 0) for i, h in enumerate(head)]
    numeric = [bool(rows) and all(_is_number(r[i]) for r in rows) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            c.rjust(w) if right else c.ljust(w)
            for c, w, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return [line(list(head)), "  ".join("-" * w for w in widths), *(line(row) for row in texts)]


def print_table(rows: Sequence[Sequence[Any]], *, head: Sequence[str]) -> None:
    """``table_lines`` on standard output."""
    for line in table_lines(rows, head=head):
        typer.echo(line)


def _is_number(value: Any) -> bool:
    """Whether a cell is a number, a formatted one ("-" where undefined) included."""
    if isinstance(value, (int, float)):
        return True
    text = str(value).removesuffix("%")
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True
