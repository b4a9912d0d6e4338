"""Commands that describe what is there: inputs, tasks, models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import UsageError
from dreamcheck.evidence import values_text


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(inputs)
    app.command()(tasks)
    app.command()(models)


def inputs(
    name: Annotated[
        str | None, typer.Argument(help="A specification, or a .toml file; none lists them.")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Describe an input specification: coordinates, tuples, and what each rule removed.

    Example: dreamcheck inputs pusht-576 --json
    """
    from dreamcheck.discovery.graph import Graph
    from dreamcheck.discovery.specification import get_specification, specification_names
    from dreamcheck.discovery.tables import library_of

    if name is None:
        specs = [get_specification(n) for n in specification_names()]
        if as_json:
            shared.print_json([{"name": s.name, "task": s.task, "title": s.title} for s in specs])
            return
        shared.print_table(
            [(s.name, s.task, s.title) for s in specs], head=("name", "task", "what it holds")
        )
        return
    library = library_of(get_specification(name))
    alone = Graph(library).isolated()
    described: dict[str, Any] = library.describe() | {
        "isolated": len(alone),
        "first_isolated": library.values(int(alone[0])) if len(alone) else None,
    }
    if as_json:
        shared.print_json(described)
        return
    typer.echo(f"{described['name']}: {described['title']} (task {described['task']})")
    typer.echo(f"source: {described['source']}\n")
    shared.print_table(
        [
            (c["name"], c["kind"], len(c["values"]), c["unit"], _short(c["values"]))
            for c in described["coordinates"]
        ],
        head=("coordinate", "kind", "values", "unit", ""),
    )
    typer.echo(f"\n{described['tuples']} tuples")
    for rule, count in described["removed"].items():
        typer.echo(f"  {count} removed by {rule}")
    typer.echo(f"{described['valid']} valid")
    if described["isolated"]:
        typer.echo(
            f"  {described['isolated']} of them have no valid neighbour one grid step away, so "
            f"persistence cannot be tested there; the first is "
            f"{values_text(described['first_isolated'])}"
        )
    if described["nominal"] is not None:
        typer.echo(f"nominal: {values_text(described['nominal'])}")


def tasks(as_json: shared.AsJson = False) -> None:
    """List the tasks that can be simulated here.

    Example: dreamcheck tasks
    """
    from dreamcheck.tasks import get_task, task_names

    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    for name in task_names():
        try:
            task = get_task(name)
        except UsageError as error:
            missing.append(f"{name}: {error}")
            continue
        rows.append(
            {
                "name": task.name,
                "version": task.version,
                "package": task.package_version,
                "action": [list(task.action_box.low), list(task.action_box.high)],
                "state": [{"name": c.name, "unit": c.unit} for c in task.columns],
                "specifications": list(task.spec_names),
            }
        )
    if as_json:
        shared.print_json(rows)
        return
    shared.print_table(
        [(r["name"], r["version"], r["package"], " ".join(r["specifications"])) for r in rows],
        head=("task", "version", "package", "specifications"),
    )
    for line in missing:
        typer.echo(f"not here: {line}")


def models(as_json: shared.AsJson = False) -> None:
    """List the models that ship or are installed.

    Example: dreamcheck models
    """
    from dreamcheck.models.registry import load_model, plugin_models, shipped_models

    rows = [_model_row(n, "ships with Dreamcheck", load_model(n)) for n in shipped_models()]
    rows += [_model_row(n, "plug-in", load_model(n)) for n in plugin_models()]
    if as_json:
        shared.print_json(rows)
        return
    shared.print_table(
        [(r["name"], r["source"], r["latent"], r["image_size"], r["history"]) for r in rows],
        head=("model", "source", "latent", "image px", "history"),
    )


def _model_row(name: str, source: str, model: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": source,
        "identity": model.identity,
        "latent": f"{model.latent.kind} {'x'.join(map(str, model.latent.shape))}",
        "image_size": model.conventions.image_size,
        "frameskip": model.conventions.frameskip,
        "history": model.history_max,
    }


def _short(values: list[Any]) -> str:
    shown = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
    return " ".join(shown) if len(shown) <= 10 else " ".join([*shown[:8], "…", shown[-1]])
