"""Commands that run and read discovery studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import ExitCode, UsageError
from dreamcheck.evidence import Store, values_text

MOST_PROBLEMS = 20
"""Altered things that `verify` prints one by one."""

Study = Annotated[Path, typer.Argument(help="Folder of a study.", metavar="STUDY")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(demo)
    app.command()(discover)
    app.command()(validate)
    app.command()(persist)
    app.command()(report)
    app.command()(verify)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the study.")] = Path("out/demo"),
    threads: shared.Threads = None,
    resume: shared.Resume = True,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Find where the shipped TwoRoom model breaks, prove it, and write the report.

    Takes a few minutes on two cores; stopped at any point, the same command goes on.

    Example: dreamcheck demo --out out/demo
    """
    _run("tworoom-demo", out, {}, threads=threads, resume=resume, quiet=quiet, as_json=as_json)


def discover(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the study; optional with --data.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Logged episodes instead of a simulator: finds slices of them."
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="With --data: only these columns.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", help="With --data: TOML file naming its columns.")
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="A shipped protocol, or a TOML file.")
    ] = "tworoom-demo",
    search_protocol: Annotated[
        str | None,
        typer.Option(
            "--search-protocol",
            help="Take methods, budget, restarts and seeds of the searches from this one "
            "(`dreamcheck search-protocols`), or a TOML file.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Checkpoint folder, shipped name, or package.module:factory."),
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Task, if not the protocol's.")] = None,
    specification: Annotated[
        list[str] | None,
        typer.Option("--specification", help="Search only these specifications of the protocol."),
    ] = None,
    sibling: Annotated[
        list[str] | None,
        typer.Option(
            "--sibling",
            "--siblings",
            help="Another checkpoint of the family, measured on the same seeds; repeat.",
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Distinct inputs per method and restart.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="DURATION",
            help="Time for everything, e.g. 20m: measures what an input costs and chooses to "
            "evaluate all of them, a random sample and a search, or a search beside random inputs.",
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="default, or paper for the paper's own rules.")
    ] = None,
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    batch_size: shared.BatchSize = 64,
    resume: shared.Resume = True,
    mixed_numerics: shared.MixedNumerics = False,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Search for inputs on which a model fails, validate what was found, and report.

    Example: dreamcheck discover --model my_run/ --protocol tworoom-demo --out runs/first

    Is search needed at all? dreamcheck discover --model my_run/ --time 20m --out runs/timed

    Hard for everyone, or this checkpoint? dreamcheck discover --model new/ --sibling old/ --out s

    Logs and no simulator: dreamcheck discover --model my_run/ --data heldout.h5

    A published ledger: dreamcheck discover --protocol pusht-3510 --search-protocol pusht-3510-b --out s
    """
    seconds = None if time is None else shared.seconds_of(time)
    if seconds is not None and (budget is not None or data is not None):
        raise UsageError(
            f"--time and {'--budget' if data is None else '--data'} cannot stand together: --time "
            "chooses the number of inputs of a simulator by what they cost."
        )
    if data is not None:
        _slices(
            data, model=model, out=out, column=column, mapping=mapping, device=device,
            batch_size=batch_size, quiet=quiet, as_json=as_json,
        )  # fmt: skip
        return
    if out is None:
        raise UsageError("--out is missing: name a folder for the study.")
    changes: dict[str, Any] = {"model": model, "task": task, "mode": mode}
    if sibling:
        changes["siblings"] = tuple(sibling)
    _run(
        protocol,
        out,
        changes,
        search_protocol=search_protocol,
        specification=specification,
        budget=budget,
        seconds=seconds,
        allow=allow,
        device=device,
        threads=threads,
        batch_size=batch_size,
        resume=resume,
        mixed_numerics=mixed_numerics,
        quiet=quiet,
        as_json=as_json,
    )


def validate(
    study: Study,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Re-measure a study's shortlists on held-out seeds and decide: confirmed, refuted, or open.

    Example: dreamcheck validate runs/first --json
    """
    from dreamcheck.study.running import opened, validate_all

    with opened(
        study, progress=shared.progress(quiet=quiet), device=device, threads=threads
    ) as live:
        found = validate_all(live)
        available = [r.payload for r in live.store.records("availability")]
    if as_json:
        shared.print_json(found)
        return
    rows = [
        (f["spec"], f["group"], f["verdict"], _number(f["risk"]), f["stratum"],
         values_text(f["values"]))
        for f in found
    ]  # fmt: skip
    shared.print_table(rows, head=("specification", "group", "verdict", "risk", "support", "input"))
    for a in available:
        told = ", ".join(
            f"{g['num_complete']} of {g['num_inputs']} {g['group']}" for g in a["groups"]
        )
        typer.echo(f"{a['spec']}, complete on {a['num_seeds']} held-out seeds: {told}")


def persist(
    study: Study,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Measure fresh neighbourhoods of a study's findings and of matched controls.

    Example: dreamcheck persist runs/first
    """
    from dreamcheck.study.running import opened, persist_all

    with opened(
        study, progress=shared.progress(quiet=quiet), device=device, threads=threads
    ) as live:
        found = persist_all(live)
    if as_json:
        shared.print_json(found)
        return
    for f in found:
        test = f["default"].get("test")
        text = (
            f"difference {test['difference']:.2f}, p = {test['p']:.2g}"
            if test
            else f["default"]["reason"]
        )
        typer.echo(f"{f['spec']}: {f['default']['value']}, top against matched controls: {text}")


def report(
    study: Study,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a study's report.html and report.json again from its records.

    Example: dreamcheck report runs/first --open
    """
    from dreamcheck.reports import write_report

    page = write_report(study)
    typer.echo(f"report: {page}")
    if open_page:
        typer.launch(str(page))


def verify(
    study: Study,
    as_json: shared.AsJson = False,
) -> None:
    """Check that nothing in a study or its report was altered; exit 5 when something was.

    Example: dreamcheck verify runs/first
    """
    from dreamcheck.reports import verify_study

    result = verify_study(study)
    if as_json:
        shared.print_json(
            {
                "ok": result.ok,
                "checked": result.checked,
                "problems": [asdict(p) for p in result.problems],
            }
        )
    else:
        for name, count in result.checked.items():
            typer.echo(f"{count:>8}  {name} checked")
        for problem in result.problems[:MOST_PROBLEMS]:
            typer.echo(f"ALTERED  {problem}")
        if len(result.problems) > MOST_PROBLEMS:
            typer.echo(f"... and {len(result.problems) - MOST_PROBLEMS} more; --json lists all")
        typer.echo("nothing was altered" if result.ok else f"{len(result.problems)} problem(s)")
    if not result.ok:
        raise typer.Exit(ExitCode.INTEGRITY)


def _run(
    protocol: str,
    out: Path,
    changes: dict[str, Any],
    *,
    search_protocol: str | None = None,
    specification: list[str] | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    allow: list[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    batch_size: int = 64,
    resume: bool = True,
    mixed_numerics: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    from dreamcheck.reports import write_report
    from dreamcheck.study.config import load_study, narrowed
    from dreamcheck.study.running import opened, run
    from dreamcheck.study.summary import as_dict

    config = load_study(protocol, **changes)
    if search_protocol is not None:
        from dreamcheck.discovery.protocol import get_protocol
        from dreamcheck.study.searched_by import searched_by

        config = searched_by(config, get_protocol(search_protocol))
    config = narrowed(config, specifications=specification, budget=budget)
    progress = shared.progress(quiet=quiet or as_json)
    with opened(
        out,
        config,
        progress=progress,
        device=device,
        threads=threads,
        tile=batch_size,
        mixed_numerics=mixed_numerics,
        resume=resume,
        guarded=True,
        allow=tuple(allow or ()),
        seconds=seconds,
    ) as study:
        run(study)
    page = write_report(out)
    with Store.read(out) as store:
        if as_json:
            shared.print_json({**as_dict(store), "report": str(page)})
            return
        print_worst(store)
    typer.echo(f"\nreport: {page}")
    typer.echo(f"check it: dreamcheck verify {out}")


def _slices(
    data: Path,
    *,
    model: str | None,
    out: Path | None,
    column: list[str] | None,
    mapping: Path | None,
    device: str,
    batch_size: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Slices of logged windows on which the forecast fails, confirmed on held-out episodes."""
    from dreamcheck.data.readers import open_episodes
    from dreamcheck.digest import canonical_json
    from dreamcheck.discovery.slice_record import record_slices
    from dreamcheck.discovery.slices import discover_slices
    from dreamcheck.models.registry import load_model
    from dreamcheck.reports import write_report

    if model is None:
        raise UsageError("--model is missing: --data needs the checkpoint to test.")
    live, episodes = load_model(model, device=device), open_episodes(data, mapping)
    found = discover_slices(
        live,
        episodes,
        columns=column,
        tile=batch_size,
        progress=shared.progress(quiet=quiet),
    )
    page = None
    if out is not None:
        record_slices(
            out,
            found,
            model=live,
            model_name=model,
            episodes=episodes,
            data_name=data.name,
            columns=tuple(column) if column else None,
        )
        (out / "slices.json").write_text(canonical_json(found.to_dict()) + "\n", encoding="utf-8")
        page = write_report(out)
    if as_json:
        shared.print_json({**found.to_dict(), "report": None if page is None else str(page)})
        return
    for line in found.lines():
        typer.echo(line)
    if page is not None:
        typer.echo(f"\nreport: {page}")


def print_worst(store: Store) -> None:
    """The three worst inputs of the training distribution, one block each."""
    from dreamcheck.study.summary import unit_of, worst

    unit = unit_of(store)
    for record in store.records("prevalence"):
        typer.echo(f"\n{record.payload['spec']}: {prevalence_text(record.payload)}")
    rows = worst(store)
    if not rows:
        typer.echo("\nNo input of the training distribution has a measured risk.")
        return
    typer.echo(f"\nThe {len(rows)} worst inputs, one per basin, on held-out seeds:")
    for place, f in enumerate(rows, start=1):
        times = (
            "nothing moves here"
            if f["relative_risk"] is None
            else f"{f['relative_risk']:.2f} of a frozen world's"
        )
        usual = (
            ""
            if f["usual_relative_risk"] is None
            else f" (usual here: {f['usual_relative_risk']:.2f})"
        )
        typer.echo(f"{place}. {values_text(f['values'])}")
        typer.echo(
            f"   {f['verdict']} on {f['num_seeds']} seeds; risk {_number(f['risk'])} {unit}, "
            f"default reset {_number(f['default_risk'])} {unit}"
        )
        typer.echo(f"   {times}{usual}; support: {f['stratum'] or 'not measured'}")
        if not f["readout_trusted"]:
            typer.echo(f"   not a headline: {f['readout_reason']}")


def prevalence_text(p: Mapping[str, Any]) -> str:
    """How common failures are, in one line."""
    if p["share"] is None:
        return "no random input could be measured, so no prevalence"
    of = "all" if p["exact"] else "random"
    bounds = "" if p["exact"] else f" (95 % interval {p['low']:.2%} to {p['high']:.2%})"
    lost = f"; {p['num_unmeasured']} failed to be measured" if p["num_unmeasured"] else ""
    return (
        f"{p['num_failing']} of {of} {p['num_inputs']} inputs fail, {p['share']:.2%}{bounds}: "
        f"{p['rule']}{lost}"
    )


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"
