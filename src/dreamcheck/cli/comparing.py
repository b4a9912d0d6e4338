"""`dreamcheck compare`: search methods against each other over measured libraries."""

from __future__ import annotations

import os
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(compare)
    app.command("search-protocols")(search_protocols)


def search_protocols(
    name: Annotated[
        str | None, typer.Argument(help="Show this protocol's TOML.", metavar="NAME")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """List the search protocols that come along, or show one as the TOML file it is.

    Example: dreamcheck search-protocols pusht-3510-b > mine.toml
    """
    from dreamcheck.discovery.protocol import get_protocol, protocol_names, protocol_text

    if name is not None:
        if as_json:
            shared.print_json(get_protocol(name).model_dump())
        else:
            typer.echo(protocol_text(name), nl=False)
        return
    found = [get_protocol(n) for n in protocol_names()]
    if as_json:
        shared.print_json([p.model_dump() for p in found])
        return
    shared.print_table(
        [
            (p.name, p.specification or "any", len(p.seeds.restart),
             " ".join(map(str, p.budgets)), p.title)
            for p in found
        ],
        head=("protocol", "library", "restarts", "budgets", "what it is"),
    )  # fmt: skip


def compare(
    tables: Annotated[
        list[Path],
        typer.Argument(
            help="Measured libraries: folders of studies, or .csv or .npz score tables.",
            metavar="TABLE...",
        ),
    ],
    protocol: Annotated[
        str,
        typer.Option("--protocol", help="A search protocol that ships, or a TOML file."),
    ] = "default",
    specification: Annotated[
        str | None,
        typer.Option("--specification", help="The tables' library, if the protocol names none."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option("--methods", help="Instead of the protocol's: random,gp-ucb,…")
    ] = None,
    primary: Annotated[
        str | None, typer.Option("--primary", help="The method whose advantage is tested.")
    ] = None,
    restarts: Annotated[
        str | None, typer.Option("--restarts", help="Restart seeds: 0-511, or 3,5,8-9.")
    ] = None,
    budgets: Annotated[
        str | None, typer.Option("--budgets", help="Distinct inputs per run: 8,16,32.")
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option("--thresholds", help="Scores, at most two decimals: 1.55,1.60.")
    ] = None,
    top: Annotated[
        str | None, typer.Option("--top", help="Top shares of the library, in percent: 5,10.")
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            help="What is tested over several tables: best, averaged-hits, top-hit or coverage.",
        ),
    ] = "best",
    scale: Annotated[
        float | None, typer.Option("--scale", help="Multiply all scores, e.g. 1e4 for small MSE.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the record and its report.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; every core by default.")
    ] = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Compare search methods by replaying hundreds of paired restarts over measured libraries.

    One table: each method's figures and the paper's paired tests, which speak for that table.
    Several independent ones (checkpoint, task or seeds differ): two-sided tests with the table as
    the unit, Holm over the methods; below six tables, the number that it takes.

    Example: dreamcheck compare scores.csv --protocol pusht-3510-b --out runs/compare

    Example: dreamcheck compare seed-*/ --methods random,gp-ucb,basinlens --restarts 0-255
    """
    from dreamcheck.discovery.comparing import compare_tables, record_comparison, with_changes
    from dreamcheck.discovery.protocol import get_protocol
    from dreamcheck.discovery.tables import read_table

    chosen = with_changes(
        get_protocol(protocol),
        {
            "methods": None if methods is None else [m.strip() for m in methods.split(",")],
            "primary": primary,
            "restart": restarts,
            "budgets": _numbers(budgets, "--budgets"),
            "thresholds": None if thresholds is None else _hundredths(thresholds),
            "averaged": None if thresholds is None else (),
            "top_percents": _numbers(top, "--top"),
            "scale": scale,
        },
    )
    named = [
        read_table(t, specification=specification or chosen.specification, scale=chosen.scale)
        for t in tables
    ]
    found = compare_tables(
        named,
        chosen,
        endpoint=endpoint,
        workers=workers or _cores(),
        progress=shared.progress(quiet=quiet),
    )
    page = None
    if out is not None:
        from dreamcheck.reports import write_report

        record_comparison(out, found)
        page = write_report(out)
    if as_json:
        shared.print_json({**found.to_dict(), "protocol": chosen.model_dump()})
        return
    _print(found)
    if page is not None:
        typer.echo(f"report: {page}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    from dreamcheck.discovery.protocol import whole_numbers

    if text is None:
        return None
    try:
        return whole_numbers(text)
    except ValueError as e:
        raise UsageError(f"{option} {text}: {e}.") from None


def _hundredths(text: str) -> tuple[int, ...]:
    """Thresholds as integers over 100, exactly."""
    found = []
    for part in text.split(","):
        try:
            value = Decimal(part.strip()) * 100
        except InvalidOperation:
            raise UsageError(f"--thresholds: {part.strip()!r} is not a number.") from None
        if value != value.to_integral_value() or value < 0:
            raise UsageError(
                f"--thresholds: {part.strip()} is not a score of at most two decimals, 0 or more. "
                "Small scores are multiplied with --scale."
            )
        found.append(int(value))
    return tuple(found)


def _print(found: Any) -> None:
    for t in found.tables:
        table = t.named.table
        failed, restarts = int(table.failed.sum()), len(t.replay.restarts)
        typer.echo(
            f"{t.named.label}: {len(table.library)} inputs of "
            f"{table.library.specification.name}"
            + (f", {failed} of them failed" if failed else "")
            + f"; {restarts} restart{'s' * (restarts != 1)}, shared scout of {t.replay.scout}"
        )
        if t.from_table:
            typer.echo("thresholds: where the table's own top 5, 2 and 1 % begin")
        for c in t.comparisons:
            typer.echo("")
            _print_budget(c, len(table.library))
        typer.echo(f"p: {c.pairs[0].condition}; one-sided\n" if c.pairs else "")
    for i in found.inferences:
        if len(i.tables) > 1:
            _print_inference(i)
    for warning in dict.fromkeys(i.dependence for i in found.inferences if i.dependence):
        typer.echo(f"note: {warning}")
    for reason in dict.fromkeys(i.reason for i in found.inferences if i.reason):
        typer.echo(f"inference over tables: {reason}")


def _print_budget(c: Any, size: int) -> None:
    if c.budget > size:
        typer.echo(f"budget {c.budget}: more than the {size} inputs; every run ended early")
    shown = [t / 100 for t in c.thresholds]
    shared.print_table(
        [
            (m.name, _pm(m.best), *(f"{m.hit_rates[t]:.3f}" for t in c.thresholds),
             f"{m.averaged_hits.mean:.3f}", *(f"{m.first_hit[t].mean:.1f}" for t in c.thresholds),
             *(v for q in c.top_percents for v in (f"{m.top[q].hit:.3f}",
               f"{m.top[q].coverage.mean:.2f}")))
            for m in c.methods
        ],
        head=(
            f"budget {c.budget}", "best ± SEM", *(f"hit {t:g}" for t in shown), "averaged",
            *(f"first {t:g}" for t in shown),
            *(v for q in c.top_percents for v in (f"top {q}% hit", "coverage")),
        ),
    )  # fmt: skip
    for t in c.never_crossed:
        typer.echo(f"no run of any method reaches {t / 100:g}")
    if not c.pairs:
        return
    typer.echo("")
    shared.print_table(
        [
            (p.comparator, f"{p.difference:+.4g}",
             f"{p.win_loss_tie.wins}/{p.win_loss_tie.losses}/{p.win_loss_tie.ties}",
             f"{p.best.p:.2g}", *(f"{p.hits[t]:.2g}" for t in c.thresholds),
             f"{p.averaged_hits.p:.2g}",
             *(v for q in c.top_percents for v in (f"{p.top_hits[q]:.2g}",
               f"{p.coverage[q].p:.2g}")))
            for p in c.pairs
        ],
        head=(
            f"{c.pairs[0].method} against", "best", "W/L/T", "p best",
            *(f"p hit {t:g}" for t in shown), "p averaged",
            *(v for q in c.top_percents for v in (f"p top {q}%", "p coverage")),
        ),
    )  # fmt: skip


def _print_inference(i: Any) -> None:
    from dreamcheck.discovery.between import ENDPOINTS

    typer.echo(f"budget {i.budget}, over {len(i.tables)} tables: {ENDPOINTS[i.endpoint]}")
    shared.print_table(
        [
            (c.comparator, f"{c.mean:+.3f}",
             "–" if c.sign is None else f"{c.sign.wins}/{c.sign.losses}/{c.sign.ties}",
             _p(c.sign_adjusted), _p(c.flip_adjusted))
            for c in i.contests
        ],
        head=(f"{i.method} against", "mean", "W/L/T", "p sign, Holm", "p sign-flip, Holm"),
    )  # fmt: skip


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _pm(value: Any) -> str:
    from dreamcheck.discovery.comparing import score_format

    mean = score_format(value.mean).format(value.mean)
    if not value.sem.defined:
        return mean
    return f"{mean} ± {score_format(value.sem.value).format(value.sem.value)}"
