"""`dreamcheck score` and `dreamcheck meta`: fit to plan with, and whether any score can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import DreamcheckError, ExitCode, UsageError

SEARCHES = ("mini-cem", "mini-adamw", "single-adamw")


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(score)
    app.command()(meta)


def score(
    checkpoints: shared.Checkpoints,
    task: Annotated[
        str, typer.Option("--task", help="A shipped task criterion, or your own TOML file.")
    ],
    probe: Annotated[
        Path, typer.Option("--probe", help="Recorded episodes that every checkpoint is read with.")
    ],
    mapping: shared.ColumnMapping = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the scores in, for the report.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", help="Folder of latents and finished scores (default: OUT/scores)."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the table here.")] = None,
    include: Annotated[
        str | None, typer.Option("--include", help="Only these factors, e.g. VS: another scale.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--exclude", help="All but these factors, e.g. I: another scale.")
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            "--planner",
            help="Planner whose matched sobriety probe to use: cem, mppi, icem, "
            "predictive-sampling, adamw-multi-start, adamw-single-start.",
        ),
    ] = None,
    projection: Annotated[
        int | None,
        typer.Option("--projection", help="192: measure wider latents through a fixed projection."),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option("--reference", help="Apply the released rule at any latent width, labelled."),
    ] = False,
    tau: Annotated[float, typer.Option("--tau", help="Nats at which influence saturates.")] = 82.0,
    horizon: Annotated[
        int | None, typer.Option("--horizon", min=1, help="Blocks, if not the criterion's.")
    ] = None,
    noise: Annotated[
        str, typer.Option("--noise", help="Search noise: numpy, or torch as in the released code.")
    ] = "numpy",
    fast: Annotated[
        bool, typer.Option("--fast", help="Search in bfloat16, checked against float32.")
    ] = False,
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    batch_size: shared.BatchSize = 1024,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Score checkpoints on one probe: veracity, influence, sobriety, and what limits each.

    Finished scores are kept in the cache; the same command goes on after the last finished one.
    Exit code 3 when a checkpoint abstains, with the reason in its row.

    Example: dreamcheck score run/epoch-5 run/epoch-10 --task tworoom --probe heldout.h5 --out study
    """
    from dreamcheck.data.readers import open_episodes
    from dreamcheck.diagnostics.viscore import build_probe
    from dreamcheck.diagnostics.viscore.cells import named_all, open_cell
    from dreamcheck.diagnostics.viscore.keeping import (
        keep_score,
        kept_score,
        record_scores,
        score_key,
    )
    from dreamcheck.diagnostics.viscore.scoring import score as score_one
    from dreamcheck.diagnostics.viscore.table import to_csv
    from dreamcheck.doctor.guards import stamps_of

    settings = _settings(
        include=include, exclude=exclude, planner=planner, projection=projection,
        reference=reference, tau=tau, noise=noise, fast=fast, batch_rows=batch_size,
    )  # fmt: skip
    cells = named_all(checkpoints)
    criterion = _criterion(task, horizon)
    shared.set_threads(threads)
    show = shared.progress(quiet=quiet)
    episodes = open_episodes(probe, mapping)
    instrument = build_probe(episodes, frameskip=criterion.frameskip)
    show.say(
        f"probe {instrument.digest[:12]}: {instrument.num_rows} rows of "
        f"{len(instrument.episodes)} episodes"
    )
    cache = cache or (out / "scores" if out is not None else None)
    records: list[Any] = []
    failures: list[dict[str, Any]] = []
    stamps: list[str] = []
    for number, (name, checkpoint) in enumerate(cells, start=1):
        try:
            cell = open_cell(name, checkpoint, data=episodes, device=device)
            stamps += [
                f"{name}: {stamp}"
                for stamp in stamps_of("score", checkpoint, cell.model, allow=allow)
            ]
            key = score_key(cell.model, criterion, instrument, settings, name)
            record = kept_score(cache, key) if cache is not None else None
            if record is None:
                show.say(f"checkpoint {number} of {len(cells)}: {name}")
                record = score_one(
                    cell.model,
                    criterion,
                    instrument,
                    cell_id=name,
                    settings=settings,
                    cache=cache,
                    epoch=cell.epoch,
                    training_loss=cell.training_loss,
                    progress=show,
                )
                if cache is not None:
                    keep_score(cache, key, record)
            else:
                show.say(f"checkpoint {number} of {len(cells)}: {name}, scored before")
            records.append(record)
        except DreamcheckError as e:
            if len(cells) == 1:
                raise
            # One bad checkpoint costs one row.
            failures.append({"cell_id": name, "error": str(e), "exit_code": int(e.exit_code)})
    if csv is not None:
        csv.parent.mkdir(parents=True, exist_ok=True)
        csv.write_text(to_csv(records), encoding="utf-8")
    if out is not None and records:
        record_scores(
            out, records, criterion=criterion, probe=instrument, settings=settings,
            probe_name=probe.name, stamps=tuple(stamps),
        )  # fmt: skip
    if as_json:
        shared.print_json({"checkpoints": [r.to_dict() for r in records], "failed": failures})
    else:
        _print_scores(records, failures)
    if out is not None and records and not as_json:
        typer.echo(f"kept in {out}; dreamcheck report {out} draws it")
    codes = [int(f["exit_code"]) for f in failures] + [int(r.exit_code) for r in records]
    if any(codes):
        raise typer.Exit(next(c for c in codes if c))


def _settings(*, planner: str | None, noise: str, **values: Any) -> Any:
    from dreamcheck.diagnostics.viscore import PROBE_OF_PLANNER, ScoreSettings, factor_set

    factor_set(include=values["include"], exclude=values["exclude"])
    if noise not in ("numpy", "torch"):
        raise UsageError(f"--noise {noise} is not one of numpy, torch.")
    if planner is not None and planner not in PROBE_OF_PLANNER:
        raise UsageError(f"--planner {planner} is not one of {', '.join(PROBE_OF_PLANNER)}.")
    search = PROBE_OF_PLANNER[planner] if planner else "mini-cem"
    return ScoreSettings(search=search, noise=noise, **values)  # type: ignore[arg-type]


def _criterion(task: str, horizon: int | None) -> Any:
    from dreamcheck.diagnostics.viscore import criterion, load_criterion

    found = load_criterion(task) if task.endswith(".toml") else criterion(task)
    return found if horizon is None else found.replace(horizon=horizon)


def _print_scores(records: list[Any], failures: list[dict[str, Any]]) -> None:
    from dreamcheck.diagnostics.viscore.table import baseline_table, table

    scales = list(dict.fromkeys(r.scale for r in records))
    for scale in scales:
        typer.echo(table([r for r in records if r.scale == scale]))
    if len(scales) > 1:
        typer.echo("the tables are on different scales: their scores cannot be compared")
    baselines = baseline_table(records)
    if baselines:
        typer.echo(baselines)
    for failure in failures:
        typer.echo(f"{failure['cell_id']}: not scored: {failure['error']}")


def meta(
    pool: Annotated[
        Path,
        typer.Argument(help="CSV, or JSON list of objects: one checkpoint a row.", metavar="POOL"),
    ],
    label: Annotated[
        str, typer.Option("--label", help="Column of the measured success, in percent.")
    ] = "success",
    run: Annotated[str, typer.Option("--run", help="Column of the training run.")] = "run",
    task: Annotated[str, typer.Option("--task", help="Column of the task.")] = "task",
    epoch: Annotated[str, typer.Option("--epoch", help="Column of the epoch.")] = "epoch",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Column of a metric; repeat. Default: those it knows."),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="Only rows with COLUMN=VALUE; repeat.")
    ] = None,
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, help="Evaluation episodes behind one label.")
    ] = 50,
    planner: Annotated[
        list[str] | None,
        typer.Option(
            "--planner",
            help="NAME=LABEL_COLUMN or NAME=LABEL_COLUMN:SOBRIETY_COLUMN, for transfer; repeat.",
        ),
    ] = None,
    frozen: Annotated[
        Path | None,
        typer.Option("--frozen", help="Another pool, on which maps are fitted and then frozen."),
    ] = None,
    frozen_where: Annotated[
        list[str] | None, typer.Option("--frozen-where", help="Rows of that pool; repeat.")
    ] = None,
    frozen_label: Annotated[
        str | None, typer.Option("--frozen-label", help="Its label column, if another.")
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option("--split", help="Write a run-level split of the pool to this CSV."),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option("--objective", help="With --split: column of the training objective."),
    ] = None,
    resamples: Annotated[
        int, typer.Option("--resamples", min=0, help="Of the bootstrap over runs; 0 for none.")
    ] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the bootstrap.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to keep the result in, for the report.")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Ask whether any metric ranks your checkpoints, beside the epoch number, which costs nothing.

    Labels that spread less than their own error are not correlated with anything.

    Example: dreamcheck meta scores.csv --label success --metric vis --metric probe_r2
    """
    from dreamcheck.diagnostics.viscore.meta import meta_evaluate, transfer_rows
    from dreamcheck.diagnostics.viscore.meta.printing import report_lines
    from dreamcheck.diagnostics.viscore.meta.reading import (
        PoolColumns,
        read_of_runs,
        read_planners,
        read_pool,
    )
    from dreamcheck.diagnostics.viscore.meta.recording import record_meta
    from dreamcheck.diagnostics.viscore.meta.split import write_split

    columns = PoolColumns(label=label, run=run, task=task, epoch=epoch)
    mine = read_pool(pool, columns, metrics=metric, where=where or ())
    fit = None
    if frozen is not None:
        other = PoolColumns(label=frozen_label or label, run=run, task=task, epoch=epoch)
        fit = read_pool(frozen, other, metrics=list(mine.metrics), where=frozen_where or ())
    if split is not None:
        of_runs = read_of_runs(pool, columns, objective, where=where or ()) if objective else {}
        write_split(split, mine, of_runs)
    report = meta_evaluate(mine, resamples=resamples, seed=seed, episodes=episodes, fit=fit)
    pools = read_planners(pool, columns, planner or (), where=where or ())
    transfer = transfer_rows(pools, episodes=episodes)
    if out is not None:
        record_meta(out, mine, report, transfer, seed=seed, resamples=resamples)
    if as_json:
        shared.print_json({**report.to_dict(), "transfer": [t.to_dict() for t in transfer]})
    else:
        for line in report_lines(report, transfer):
            typer.echo(line)
    if set(report.unresolvable) == set(report.tasks):
        raise typer.Exit(ExitCode.ABSTAINED)
