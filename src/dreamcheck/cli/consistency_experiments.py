"""`dreamcheck consistency --experiments`: what ACPC predicts, and what would fool a radius."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import UsageError

if TYPE_CHECKING:
    from dreamcheck.data.episodes import Episodes
    from dreamcheck.diagnostics.consistency.experiments import Experiments
    from dreamcheck.diagnostics.consistency.labels import LabelRule
    from dreamcheck.models.protocol import WorldModel
    from dreamcheck.planning.protocol import Protocol
    from dreamcheck.progress import Progress
    from dreamcheck.tasks.protocol import Task


def asked_for(text: str) -> tuple[str, ...]:
    """The experiments of "drift,planner" or "all", in the order of the page.

    Raises:
        UsageError: one does not exist, named.
    """
    from dreamcheck.diagnostics.consistency.experiments import EXPERIMENTS

    given = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in given if name not in (*EXPERIMENTS, "all")]
    if unknown or not given:
        raise UsageError(
            f"--experiments {text!r}: there are {', '.join(EXPERIMENTS)}, and all of them by `all`."
        )
    return EXPERIMENTS if "all" in given else tuple(n for n in EXPERIMENTS if n in given)


def conduct(
    names: Sequence[str],
    models: Mapping[str, WorldModel],
    checkpoints: Mapping[str, str],
    episodes: Episodes,
    *,
    source: str,
    task: str,
    simulator: Task | None,
    rule: LabelRule | None,
    reference: str | None,
    perturbation: str,
    severities: Sequence[float] | None,
    sizes: Mapping[str, Any],
    protocol: Protocol | None,
    out: Path | None,
    page: Path | None,
    stamps: Sequence[str],
    show: Progress,
    as_json: bool,
) -> None:
    """Run the experiments, keep them, write their page, print them.

    Args:
        checkpoints: what each model was opened from. sizes: fields of ``Budget`` to change.
        protocol: of the ablation's clean success, None to leave it out.
    """
    from dreamcheck.diagnostics.consistency.experiments import (
        Budget,
        record_experiments,
        run_experiments,
        trained_as,
    )

    success = None
    if protocol is not None and simulator is not None and "collapse" in names:
        success = _success(simulator, protocol, out, stamps, show)
    found = run_experiments(
        models, {n: trained_as(c) for n, c in checkpoints.items()}, episodes, task=task,
        reference=reference, simulator=simulator, rule=rule, names=names,
        budget=replace(Budget(), **sizes).under(perturbation, severities),
        success=success, progress=show,
    )  # fmt: skip
    held = None if success is None or protocol is None else protocol.model_dump()
    found = replace(found, stamps=tuple(stamps), protocol=held)
    places: dict[str, str] = {}
    if page is not None:
        places["page"] = str(_write_page(found, page))
    if out is not None:
        from dreamcheck.reports import write_report

        places["record"] = record_experiments(out, found, data_name=source).key
        places["report"] = str(write_report(out))
    if as_json:
        shared.print_json({**found.to_dict(), "stamps": list(stamps), **places})
        return
    _print(found)
    for what, where in places.items():
        if what != "record":
            typer.echo(f"{what}: {where}")


def _success(
    simulator: Task, protocol: Protocol, out: Path | None, stamps: Sequence[str], show: Progress
) -> Any:
    from dreamcheck.cli.planning import GROUPS, Rounds
    from dreamcheck.planning.evaluate import plan
    from dreamcheck.planning.guarding import Guarded

    passed = Guarded(stamps=tuple(stamps))

    def clean(name: str, model: WorldModel) -> Mapping[str, Any]:
        with Rounds(show) as rounds:
            found = plan(
                model, simulator, protocol, controls=(), log=False, guard=lambda *asked: passed,
                keep=None if out is None else out / GROUPS,
                progress=lambda d, t, w: rounds(d, t, f"{name}, {w}"),
            )  # fmt: skip
        rate = found.planner.success
        if rate is None:
            raise UsageError(
                f"protocol {protocol.name}: every start is already solved, so there is no success."
            )
        return rate.to_dict()

    return clean


def _command(found: Experiments, page: Path) -> str:
    """The command that writes the page, from what was run."""
    from dreamcheck.diagnostics.consistency.experiments import EXPERIMENTS

    b, result = found.budget, found.to_dict()
    names = [c["name"] for c in result["checkpoints"] if c["name"] != found.reference]
    ran = [n for n in EXPERIMENTS if result[n] is not None]
    parts = [
        "dreamcheck consistency", *names, f"--reference {found.reference}", f"--task {found.task}",
        f"--experiments {'all' if len(ran) == len(EXPERIMENTS) else ','.join(ran)}",
        f"--histories {b.histories}",
    ]  # fmt: skip
    if b.perturbation != "gaussian":
        parts.append(f"--perturbation {b.perturbation}")
    if found.protocol is None:
        parts.append("--protocol none")
    else:
        solver = found.protocol["solver"]
        sizes = "x".join(str(solver[k]) for k in ("num_samples", "num_elites", "iterations"))
        parts.append(f"--episodes {found.protocol['num_eval']} --search {sizes}")
    return " ".join([*parts, f"--page {page.name}"])


def _write_page(found: Experiments, page: Path) -> Path:
    from dreamcheck.diagnostics.consistency.experiments_page import page as text_of
    from dreamcheck.reports.experiments_charts import experiments_figure

    result = found.to_dict()
    figure = page.with_suffix(".svg")
    title = f"Consistency experiments, {found.task} (reduced)"
    figure.write_text(experiments_figure(result, title=title), encoding="utf-8")
    page.write_text(
        text_of(result, command=_command(found, page), figure=figure.name), encoding="utf-8"
    )
    return page


def _print(found: Experiments) -> None:
    from dreamcheck.diagnostics.consistency.experiments_page import agreements

    result = found.to_dict()
    typer.echo(f"{found.task}, reference {found.reference}")
    shared.print_table(
        [(c["name"], c["role"], c["sigma_max"], c["weight"]) for c in result["checkpoints"]],
        head=("checkpoint", "part", "training noise", "regulariser"),
    )
    typer.echo("")
    shared.print_table(
        [(a.here, a.paper, a.verdict, a.statement) for a in agreements(result)],
        head=("here", "paper", "", "finding"),
    )
    for name, why in found.skipped.items():
        typer.echo(f"{name}: {why}")
