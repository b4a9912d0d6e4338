"""Commands around an evaluation: protocols, power, register, compare-plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.cli.planning import (
    Changes,
    Data,
    Episodes_,
    ProtocolName,
    Streams,
    sized,
)
from dreamcheck.errors import UsageError

Pilot = Annotated[
    list[str] | None,
    typer.Option(
        "--pilot",
        help="Give twice: two evaluations of the same episodes (folders of `plan --out`, or JSON).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(protocols)
    app.command()(power)
    app.command("register")(register_design)
    app.command("compare-plans")(compare_plans)


def protocols(
    name: Annotated[
        str | None, typer.Argument(help="Show this protocol's TOML.", metavar="NAME")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """List the planning protocols that come along, or show one as the TOML file it is.

    Example: dreamcheck protocols fresh-25-50 > mine.toml
    """
    from dreamcheck.planning.protocol import load_protocol, preset_names, protocol_text

    if name is not None:
        if as_json:
            shared.print_json(load_protocol(name).model_dump())
        else:
            typer.echo(protocol_text(name), nl=False)
        return
    found = [(n, load_protocol(n)) for n in preset_names()]
    if as_json:
        shared.print_json({n: p.model_dump() for n, p in found})
        return
    shared.print_table(
        [(n, p.label, p.start_rule, p.note) for n, p in found],
        head=("protocol", "goal / budget", "starts", "note"),
    )


def power(
    effect: Annotated[
        float, typer.Option("--effect", help="Difference of success rates to show, e.g. 0.2.")
    ],
    pilot: Pilot = None,
    rates: Annotated[
        tuple[float, float] | None,
        typer.Option("--rates", help="Without a pilot: two assumed rates that differ by it."),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=2, help="Also say the power of this many.")
    ] = None,
    wanted: Annotated[
        float, typer.Option("--power", min=0.01, max=0.999, help="Wanted power.")
    ] = 0.8,
    level: Annotated[
        float, typer.Option("--level", min=1e-6, max=0.5, help="Two-sided test level.")
    ] = 0.05,
    as_json: shared.AsJson = False,
) -> None:
    """Episodes, planner streams and training runs that showing an effect takes.

    Example: dreamcheck power --effect 0.2 --pilot runs/a --pilot runs/b

    Without a pilot: dreamcheck power --effect 0.2 --rates 0.64 0.44 --episodes 110
    """
    report = _power(effect, pilot, rates, episodes, wanted, level)
    if as_json:
        shared.print_json(report.to_dict())
        return
    for line in report.lines():
        typer.echo(line)


def register_design(
    protocol: ProtocolName,
    out: Annotated[Path, typer.Option("--out", help="File to seal; never overwritten.")],
    rules: Annotated[
        Path,
        typer.Option(
            "--rules",
            help="TOML with one line per outcome: better, worse, not_established, "
            "control_shows_the_same, integrity_failure.",
        ),
    ],
    primary_test: Annotated[
        str, typer.Option("--primary-test", help="The one test that decides.")
    ] = "exact McNemar",
    design: Annotated[
        str, typer.Option("--design", help="The design in a sentence.")
    ] = "two checkpoints on identical episodes",
    secondary: Annotated[
        list[str] | None, typer.Option("--secondary", help="A secondary analysis; repeatable.")
    ] = None,
    data: Data = None,
    mapping: shared.ColumnMapping = None,
    episodes: Episodes_ = None,
    streams: Streams = None,
    changes: Changes = None,
    effect: Annotated[
        float | None, typer.Option("--effect", help="Seal the power calculation for this effect.")
    ] = None,
    pilot: Pilot = None,
    rates: Annotated[
        tuple[float, float] | None, typer.Option("--rates", help="Assumed rates, without a pilot.")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Seal protocol, episode list and decision rules with their hash, before anything is evaluated.

    `dreamcheck plan --registration FILE` refuses a primary analysis that does not match.

    Example: dreamcheck register --protocol fresh-50-100 --rules rules.toml --out sealed.json
    """
    from dreamcheck.planning import load_protocol, prepare
    from dreamcheck.planning import register as seal
    from dreamcheck.planning.protocol import changed
    from dreamcheck.planning.registration import read_rules
    from dreamcheck.tasks.registry import get_task

    chosen = sized(changed(load_protocol(protocol), changes or ()), episodes, streams)
    _, _, _, _, selection = prepare(
        chosen, get_task(chosen.task), data=shared.episodes(data, mapping)
    )
    planned = None
    if effect is not None:
        planned = _power(effect, pilot, rates, len(selection.cases), 0.8, 0.05).to_dict()
    sealed = seal(
        design=design,
        primary_test=primary_test,
        rules=read_rules(rules),
        protocol=chosen,
        list_digest=selection.list_digest,
        secondary=secondary or (),
        power=planned,
    )
    sealed.write(out)
    if as_json:
        shared.print_json(sealed.to_dict())
        return
    typer.echo(f"sealed {len(selection.cases)} episodes and {len(sealed.rules)} rules: {out}")
    typer.echo(f"seal {sealed.seal}, {sealed.sealed_at}")


def compare_plans(
    first: Annotated[
        list[str],
        typer.Option(
            "--a", help="Evaluation of A: folder of `plan --out` or JSON; repeat for a recipe."
        ),
    ],
    second: Annotated[list[str], typer.Option("--b", help="Evaluation of B; repeat for a recipe.")],
    unit: Annotated[
        str, typer.Option("--unit", help="checkpoint (episodes speak) or recipe (runs speak).")
    ] = "checkpoint",
    name_a: Annotated[str, typer.Option("--name-a", help="What to call A.")] = "A",
    name_b: Annotated[str, typer.Option("--name-b", help="What to call B.")] = "B",
    as_json: shared.AsJson = False,
) -> None:
    """Compare two checkpoints on identical episodes, or two recipes over their training runs.

    Example: dreamcheck compare-plans --a runs/plan-a --b runs/plan-b

    Recipes: dreamcheck compare-plans --unit recipe --a a1 --a a2 --a a3 --a a4 --b b1 --b b2 ...
    """
    from dreamcheck.planning import compare, compare_recipes
    from dreamcheck.planning.records import stored_evaluation

    if unit not in ("checkpoint", "recipe"):
        raise UsageError(f"--unit {unit} is neither checkpoint nor recipe.")
    a, b = [stored_evaluation(x) for x in first], [stored_evaluation(x) for x in second]
    result: Any
    if unit == "recipe":
        result = compare_recipes(a, b, name_a=name_a, name_b=name_b)
    elif len(a) > 1 or len(b) > 1:
        raise UsageError(
            f"{len(a)} and {len(b)} evaluations were given: several checkpoints a side are a claim "
            "about recipes; use --unit recipe."
        )
    else:
        result = compare(a[0], b[0], name_a=name_a, name_b=name_b)
    if as_json:
        shared.print_json(result.to_dict())
        return
    for line in result.lines():
        typer.echo(line)


def _power(
    effect: float,
    pilot: list[str] | None,
    rates: tuple[float, float] | None,
    episodes: int | None,
    wanted: float,
    level: float,
) -> Any:
    from dreamcheck.planning import power as needed
    from dreamcheck.planning.records import stored_evaluation

    pair = None
    if pilot:
        if len(pilot) != 2:
            raise UsageError(
                f"--pilot was given {len(pilot)} time(s); a pilot is a pair: give two."
            )
        pair = (stored_evaluation(pilot[0]), stored_evaluation(pilot[1]))
    return needed(
        effect=effect, pilot=pair, rates=rates, num_cases=episodes, wanted=wanted, level=level
    )
