"""Commands that keep failures and test checkpoints against them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode
from dreamcheck.evidence import values_text


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(bank)
    app.command()(gate)
    app.command()(repair)


def bank(
    study: Annotated[Path, typer.Argument(help="Folder of a validated study.", metavar="STUDY")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the bank; commit it.")],
    sentinels: Annotated[
        int | None, typer.Option("--sentinels", min=0, help="Random inputs that passed, to keep.")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Keep a study's confirmed failures, and as many inputs that passed, as a bank.

    Example: dreamcheck bank runs/first --out banks/tworoom
    """
    from dreamcheck.gate import bank_from_study, save_bank

    made = bank_from_study(study, sentinels=sentinels)
    path = save_bank(made, out)
    failures = sum(not e.sentinel for e in made.entries)
    if as_json:
        shared.print_json({"path": str(path), "digest": made.digest, "failures": failures,
                           "sentinels": len(made.entries) - failures})  # fmt: skip
        return
    typer.echo(f"{path}: {failures} failures, {len(made.entries) - failures} sentinels")


def gate(
    bank_folder: Annotated[Path, typer.Argument(help="Folder of a bank.", metavar="BANK")],
    model: Annotated[str, typer.Option("--model", help="The new checkpoint.")],
    baseline: Annotated[str, typer.Option("--baseline", help="The old one, measured again.")],
    null: Annotated[
        str | None,
        typer.Option("--null", help="A second training run of the old recipe: what chance does."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Fresh seeds per input, from unused ones.")
    ] = 16,
    probe_bound: Annotated[
        float | None,
        typer.Option("--probe-bound", help="Largest held-out probe error to compare risks at."),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the result in, for the report.")
    ] = None,
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Replay a bank on two checkpoints; exit 6 when the new one is worse or fails anew.

    Example: dreamcheck gate banks/tworoom --model runs/new --baseline runs/old --junit gate.xml
    """
    from dreamcheck.gate import gate as run_gate
    from dreamcheck.gate import load_bank
    from dreamcheck.gate.junit import write_junit
    from dreamcheck.gate.recording import record_gate

    shared.set_threads(threads)
    kept = load_bank(bank_folder)
    result = run_gate(
        kept,
        new=model,
        old=baseline,
        null=null,
        num_seeds=seeds,
        probe_bound=probe_bound,
        progress=shared.progress(quiet=quiet or as_json),
    )
    if junit is not None:
        write_junit(result, junit)
    if out is not None:
        record_gate(out, result)
    if as_json:
        shared.print_json(result.to_dict())
    else:
        rows = [
            (c.word, c.role, _number(c.old_risk), _number(c.new_risk), values_text(c.values))
            for c in result.cases
            if c.word != "unchanged"
        ]
        if rows:
            shared.print_table(rows, head=("verdict", "role", "old", "new", "input"))
        typer.echo(", ".join(f"{n} {w}" for w, n in result.counts.items()))
        if result.null is not None:
            told = ", ".join(f"{n} {w}" for w, n in result.null.items())
            typer.echo(f"a second training run of the old recipe: {told}")
        typer.echo("REGRESSED" if result.regressed else "not regressed")
    if result.counts["not comparable"] == len(result.cases):
        raise typer.Exit(ExitCode.ABSTAINED)
    if result.regressed:
        raise typer.Exit(ExitCode.GATE_REGRESSED)


def repair(
    bank_folder: Annotated[Path, typer.Argument(help="Folder of a bank.", metavar="BANK")],
    model: Annotated[str, typer.Option("--model", help="The checkpoint to repair.")],
    recipe: Annotated[str, typer.Option("--recipe", help="What it was trained with.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for both checkpoints and the record.")],
    steps: Annotated[int, typer.Option("--steps", min=1, help="Further predictor steps.")] = 600,
    around: Annotated[
        int, typer.Option("--around", min=1, help="Episodes from half of the failures.")
    ] = 100,
    original: Annotated[
        int, typer.Option("--original", min=2, help="Episodes of the original data.")
    ] = 200,
    planning: Annotated[
        int, typer.Option("--planning", min=0, help="Episodes for planning success; 0: none.")
    ] = 20,
    threads: shared.Threads = None,
    as_json: shared.AsJson = False,
) -> None:
    """Train on with data around half of a bank's failures, and judge it by the other half.

    A control is trained on as long without that data; both are gated. TwoRoom for now.

    Example: dreamcheck repair banks/tworoom --model tworoom-small --recipe tworoom-small --out r1
    """
    from dreamcheck.gate import load_bank
    from dreamcheck.gate.repair import Settings
    from dreamcheck.gate.repair import repair as run_repair

    shared.set_threads(threads)
    settings = Settings(steps=steps, around=around, original=original, planning=planning)
    found = run_repair(
        load_bank(bank_folder), model=model, recipe=recipe, out=out, settings=settings
    )
    if as_json:
        shared.print_json(found.to_dict())
        return
    rows = []
    for name, group in found.to_dict()["groups"].items():
        for arm in ("repaired", "control"):
            cell = group[arm]
            changed = ", ".join(f"{n} {w}" for w, n in cell["words"].items() if n)
            rows.append((name, arm, _number(cell["old_risk"]), _number(cell["new_risk"]), changed))
    shared.print_table(rows, head=("inputs", "trained on", "risk before", "after", "gate"))
    for name, s in found.success.items():
        typer.echo(f"planning success, {name}: {s['successes']:g} of {s['episodes']}")


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.2f}"
