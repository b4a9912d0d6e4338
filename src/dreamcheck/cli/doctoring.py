"""`dreamcheck doctor` and `dreamcheck probe`: what is wrong, before any number."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode, UsageError

Checkpoint = Annotated[
    str | None,
    typer.Argument(
        help="Checkpoint folder or file, shipped name, or package.module:factory.", metavar="CKPT"
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="Held-out episodes.")]
TrainingData = Annotated[
    Path | None, typer.Option("--training-data", help="The episodes it was trained on.")
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Simulator: a name or package.module:factory.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(doctor)
    app.command()(probe)


def doctor(
    checkpoint: Checkpoint = None,
    task: TaskName = None,
    data: Data = None,
    training_data: TrainingData = None,
    mapping: shared.ColumnMapping = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="Planning protocol: a preset or a TOML file.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Evaluation results, JSON or CSV.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this check; repeat for more.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", help="Leave this check out; repeat for more.")
    ] = None,
    thresholds: Annotated[
        str, typer.Option("--thresholds", help="Named set: default, or paper.")
    ] = "default",
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.0, help="Budget; later checks are skipped."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A warning, or what cannot be told, exits 4 too.")
    ] = False,
    list_checks: Annotated[
        bool, typer.Option("--list", help="List every check and what it needs.")
    ] = False,
    recalibrate: Annotated[
        Path | None,
        typer.Option(
            "--recalibrate", help="Write a copy with precise batch normalisation to this folder."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the findings in, for the report.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of every draw.")] = 0,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Examine a checkpoint, its data, simulator, protocol and results; change nothing.

    What is missing is listed as skipped with what it needs. Exit codes: 0 all fine, 3 a warning
    or something that cannot be told, 4 something is wrong.

    Example: dreamcheck doctor tworoom-small --task tworoom

    Example: dreamcheck doctor my_run/ --data heldout.h5 --training-data train.h5 --json
    """
    if list_checks:
        _list(as_json=as_json)
        return
    if checkpoint is None and not any((task, data, protocol, results)):
        raise UsageError(
            "there is nothing to examine: name a checkpoint, or give --data, --task, --protocol or "
            "--results. `dreamcheck doctor --list` says what each check needs."
        )
    from dreamcheck.doctor.assembling import assemble_subject
    from dreamcheck.doctor.examination import examine
    from dreamcheck.doctor.registry import chosen_checks

    shared.set_threads(threads)
    checks = chosen_checks(only=tuple(only or ()), skip=tuple(skip or ()))
    subject = assemble_subject(
        checkpoint, task=task, data=data, training_data=training_data, mapping=mapping,
        protocol=protocol, results=results, thresholds=thresholds, device=device,
        seconds=seconds, seed=seed,
    )  # fmt: skip
    found = examine(subject, checks=checks, progress=shared.progress(quiet=quiet or as_json))
    result = found.to_dict()
    if recalibrate is not None:
        from dreamcheck.doctor.repair import recalibrated

        if checkpoint is None:
            raise UsageError("--recalibrate needs a checkpoint.")
        result["recalibrated"] = recalibrated(checkpoint, recalibrate, subject).to_dict()
    if out is not None:
        from dreamcheck.doctor.recording import record_examination

        record_examination(out, found, subject, model=checkpoint)
        result["record"] = str(out)
    if as_json:
        shared.print_json(result)
    else:
        _print(result)
    code = found.exit_code
    if code == ExitCode.ABSTAINED and strict:
        code = ExitCode.GUARD_REFUSED
    if code:
        raise typer.Exit(code)


def _list(*, as_json: bool) -> None:
    from dreamcheck.doctor.operating import operating, operating_text
    from dreamcheck.doctor.registry import all_checks
    from dreamcheck.doctor.subject import NEEDS

    rows = [
        {
            "check": c.name, "group": c.group, "title": c.title,
            "needs": [NEEDS[n] for n in c.needs], "operating": operating(c.name),
        }
        for c in all_checks()
    ]  # fmt: skip
    if as_json:
        shared.print_json(rows)
        return
    for c in all_checks():
        typer.echo(f"{c.name}  ({c.group})\n    {c.title}")
        needs = "; ".join(NEEDS[n] for n in c.needs)
        typer.echo(f"    needs: {needs}\n    {operating_text(c.name)}")


def _print(result: dict[str, Any]) -> None:
    from dreamcheck.doctor.operating import operating_text

    done = [f for f in result["findings"] if f["verdict"] != "skipped"]
    skipped = [f for f in result["findings"] if f["verdict"] == "skipped"]
    rows = []
    for f in done:
        headline = next(iter(f["measured"].items()), None)
        value = "" if headline is None else f"{headline[1]['value']:.3g} {headline[1]['unit']}"
        limit = "" if f["threshold"] is None else f"{f['threshold']['value']:g}"
        sees = "" if f["limit"] is None else f"{f['limit']['value']:.2g}"
        rows.append((f["verdict"].upper(), f["check"], value, limit, sees, f"{f['seconds']:.1f}"))
    if rows:
        shared.print_table(
            rows, head=("verdict", "check", "measured", "threshold", "sees from", "s")
        )
    for f in done:
        if f["verdict"] == "fine":
            continue
        typer.echo(f"\n{f['verdict'].upper()}  {f['check']}. Asked: {f['title']}?")
        for line in f["evidence"]:
            typer.echo(textwrap.fill(line, 98, initial_indent="    ", subsequent_indent="      "))
        if f["fix"]:
            typer.echo(textwrap.fill("fix: " + f["fix"], 98, initial_indent="    ",
                                     subsequent_indent="      "))  # fmt: skip
        typer.echo(f"    this check: {operating_text(f['check'])}")
    if skipped:
        typer.echo("\nnot examined:")
        for f in skipped:
            typer.echo(f"    {f['check']}: needs {f['needs']}")
    counts = ", ".join(f"{n} {v}" for v, n in result["counts"].items() if n)
    typer.echo(f"\n{counts}; worst: {result['worst']} ({result['seconds']:.0f} s)")
    if "recalibrated" in result:
        r = result["recalibrated"]
        typer.echo(
            f"recalibrated on {r['batches']} batches of {r['clips']}: gap {r['gap_before']:.3g} -> "
            f"{r['gap_after']:.3g}; written to {r['path']}"
        )
    if "record" in result:
        typer.echo(f"kept: dreamcheck report {result['record']}")


def probe(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Checkpoint folder, shipped name, or package.module:factory.", metavar="CKPT"
        ),
    ],
    task: TaskName = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Recorded episodes with state columns.")
    ] = None,
    mapping: shared.ColumnMapping = None,
    frames: Annotated[int, typer.Option("--frames", min=40, help="Frames drawn.")] = 4000,
    split: Annotated[
        str, typer.Option("--split", help="episode: held out by episode; frame: as in the paper.")
    ] = "episode",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of the network's training.")] = 3000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of every draw.")] = 0,
    device: shared.Device = "cpu",
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """What a checkpoint's latents hold: state, actions, rank and spread, and how it was measured.

    Example: dreamcheck probe tworoom-small --task tworoom --frames 2000
    """  # fmt: skip
    from dreamcheck.doctor.assembling import assemble_subject
    from dreamcheck.doctor.probing import probe_model

    subject = assemble_subject(
        checkpoint, task=task, data=data, mapping=mapping, device=device, seed=seed
    )
    found = probe_model(
        subject, frames=frames, split=split, steps=steps,
        progress=shared.progress(quiet=quiet or as_json),
    )  # fmt: skip
    if as_json:
        shared.print_json(found.to_dict())
        return
    for line in found.lines():
        typer.echo(line)
