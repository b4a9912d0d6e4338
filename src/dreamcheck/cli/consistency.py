"""`dreamcheck consistency`: does a checkpoint see through noise?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamcheck.cli import consistency_experiments as _experiments
from dreamcheck.cli import shared
from dreamcheck.errors import UsageError

if TYPE_CHECKING:
    from dreamcheck.diagnostics.consistency.examining import Examined
    from dreamcheck.planning.protocol import Protocol

FRESH = "fresh-25-50"


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(consistency)


def consistency(
    checkpoints: shared.Checkpoints,
    task: Annotated[str, typer.Option("--task", help="The task the windows are of.")],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", help="The unaugmented checkpoint that radii are relative to; NAME=CKPT."
        ),
    ] = None,
    perturbation: Annotated[
        str,
        typer.Option(
            "--perturbation",
            help="gaussian, blur, resize, brightness, contrast, colour, occlusion or jpeg.",
        ),
    ] = "gaussian",
    severity: Annotated[
        list[float] | None,
        typer.Option("--severity", help="Severity; repeat for a sweep. Default: the kind's own."),
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help="history, or camera: the goal image is perturbed too.")
    ] = "history",
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Recorded episodes; fresh ones of a simulated task otherwise."),
    ] = None,
    mapping: shared.ColumnMapping = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", help="Label rule: a task that ships one, or your TOML file."),
    ] = None,
    windows: Annotated[int, typer.Option("--windows", min=2, help="Logged windows, N.")] = 100,
    horizon: Annotated[int, typer.Option("--horizon", min=1, help="Rollout steps, H.")] = 8,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Draws of the noise, M.")] = 5,
    weights: Annotated[
        str | None, typer.Option("--weights", help="Weights of the H steps, with commas; sum 1.")
    ] = None,
    t_ir: Annotated[float, typer.Option("--t-ir", help="Screen: largest relative radius.")] = 0.3,
    t_sr: Annotated[float, typer.Option("--t-sr", help="Screen: smallest separation.")] = 0.95,
    histories: Annotated[
        int, typer.Option("--histories", min=0, help="Histories to plan from, clean and perturbed.")
    ] = 25,
    protocol: Annotated[
        str,
        typer.Option("--protocol", help="Planning protocol of the success that is lost; or none."),
    ] = FRESH,
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, help="Episodes of that protocol.")
    ] = 50,
    search: Annotated[
        str,
        typer.Option("--search", help="Samples x elites x iterations of its CEM, or protocol."),
    ] = "100x10x10",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for record and report; success is resumable then."),
    ] = None,
    experiments: Annotated[
        str | None,
        typer.Option(
            "--experiments",
            help="Instead of the table: drift, planner, geometry, collapse, sensitivity, with "
            "commas; or all.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Experiments: write a Markdown page, its figure beside it."),
    ] = None,
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """What a visual perturbation does to imagined futures, to the planner's choice, to success.

    Example: dreamcheck consistency tworoom-small --task tworoom --severity 0.02 --severity 0.08

    Screen: dreamcheck consistency runs/aug-* --reference runs/plain --task tworoom --out runs/noise

    Quick: dreamcheck consistency tworoom-small --task tworoom --protocol none --histories 8

    Predict: dreamcheck consistency noisy --reference plain --task tworoom --experiments all
    """
    from dreamcheck.diagnostics.consistency.anchors import draw_anchors
    from dreamcheck.diagnostics.consistency.examining import (
        Settings,
        examine,
        record_consistency,
    )
    from dreamcheck.diagnostics.consistency.pairwise import step_weights
    from dreamcheck.diagnostics.viscore.cells import named_all, open_cell
    from dreamcheck.doctor.guards import stamps_of
    from dreamcheck.imagination.perturbations import KINDS, Perturbation

    shared.set_threads(threads)
    # Everything that options alone can get wrong, before a checkpoint is read.
    if perturbation not in KINDS:
        raise UsageError(f"--perturbation {perturbation} is not one of {', '.join(KINDS)}.")
    shifts = [
        Perturbation(perturbation, s, on)  # type: ignore[arg-type]
        for s in (severity or KINDS[perturbation].steps)
    ]
    settings = Settings(
        draws=draws,
        weights=None if weights is None else _numbers(weights),
        t_ir=t_ir,
        t_sr=t_sr,
        histories=histories,
        plan_steps=min(5, horizon),
    )
    step_weights(settings.weights, horizon=horizon)
    asked = None if experiments is None else _experiments.asked_for(experiments)
    if page is not None and asked is None:
        raise UsageError("--page is of the experiments; name them with --experiments, or `all`.")
    rule, unlabelled = _rule(labels or task, given=labels is not None)
    if search != "protocol":
        _budget(search)
    show = shared.progress(quiet=quiet)
    simulator = _simulator(task, needed=data is None, show=show)
    given = shared.episodes(data, mapping)
    if given is not None and data is not None:
        logged, source = given, data.name
    else:
        logged, source = _fresh(simulator, task), "fresh episodes of the simulator"
    cells = named_all([*([reference] if reference else []), *checkpoints])
    named_reference = cells[0][0] if reference else None
    models: dict[str, Any] = {}
    stamps: list[str] = []
    for name, checkpoint in cells:
        show.say(f"reading {name}")
        cell = open_cell(name, checkpoint, device=device)
        _of_this_task(checkpoint, name, task)
        stamps += [
            f"{name}: {s}"
            for s in stamps_of(
                "consistency", checkpoint, cell.model, task=simulator, allow=allow,
                episodes=logged, episodes_from="recorded" if data is not None else "fresh",
            )
        ]  # fmt: skip
        models[name] = cell.model
    if asked is not None:
        _experiments.conduct(
            asked, models, dict(cells), logged, source=source, task=task, simulator=simulator,
            rule=rule, reference=named_reference, perturbation=perturbation, severities=severity,
            sizes={
                "horizon": horizon, "histories": histories, "windows": windows, "draws": draws,
                "plan_steps": settings.plan_steps,
            },
            protocol=None if protocol == "none" else sized(protocol, episodes, search),
            out=out, page=page, stamps=stamps, show=show, as_json=as_json,
        )  # fmt: skip
        return
    first = next(iter(models.values()))
    anchors = draw_anchors(logged, first, task=simulator, count=windows, horizon=horizon)
    if unlabelled:
        show.say(unlabelled)
    found = examine(
        models, anchors, shifts, task=task, reference=named_reference, rule=rule,
        settings=settings, progress=show,
    )  # fmt: skip
    found = replace(found, stamps=tuple(stamps))
    found = _with_success(
        found, models, simulator, shifts,
        protocol=protocol, episodes=episodes, search=search, out=out, show=show,
    )  # fmt: skip
    record = report = None
    if out is not None:
        from dreamcheck.reports import write_report

        record = record_consistency(out, found, data_name=source)
        report = write_report(out)
    if as_json:
        places = {} if record is None else {"record": record.key, "report": str(report)}
        shared.print_json({**found.to_dict(), "stamps": stamps, **places})
        return
    for line in lines(found):
        typer.echo(line)
    if report is not None:
        typer.echo(f"report: {report}")


def _simulator(task: str, *, needed: bool, show: Any) -> Any:
    """The task's simulator; None where there is none, or where recorded frames do without it."""
    from dreamcheck.tasks.registry import get_task, task_names

    if task not in task_names() and ":" not in task:
        return None
    try:
        return get_task(task)
    except UsageError as e:
        if needed:
            raise
        show.say(f"going on without a simulator, hence without success: {e}")
        return None


def _fresh(simulator: Any, task: str) -> Any:
    from dreamcheck.planning.protocol import load_protocol
    from dreamcheck.planning.recorded import fresh_episodes

    if simulator is None or task != "tworoom":
        raise UsageError(
            f"--data: no fresh episodes can be made of task {task!r}; give recorded ones."
        )
    protocol = load_protocol(FRESH)
    return fresh_episodes(simulator, protocol.fresh, seed=protocol.seed).episodes


def _of_this_task(checkpoint: str, name: str, task: str) -> None:
    """Refuse a checkpoint whose own training record names another task."""
    from dreamcheck.models.registry import recorded_recipe

    recipe = recorded_recipe(checkpoint) or {}
    held = recipe.get("data")
    trained_on = held.get("task") if isinstance(held, dict) else None
    if trained_on is not None and trained_on != task:
        raise UsageError(
            f"{name} was trained on task {trained_on!r}, not on {task!r}: its radius would be "
            "relative to nothing. Name its own task, or another checkpoint."
        )


def _rule(name: str, *, given: bool) -> tuple[Any, str]:
    from dreamcheck.diagnostics.consistency.labels import label_rule, label_rule_names

    if given or name in label_rule_names():
        return label_rule(name), ""
    return None, (
        f"no label rule ships for task {name!r}: the separation rate is left undefined (--labels "
        "FILE.toml gives one)"
    )


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as e:
        raise UsageError(f"--weights {text!r} is no list of numbers with commas.") from e


def _budget(text: str) -> tuple[int, int, int]:
    try:
        samples, elites, iterations = (int(part) for part in text.split("x"))
    except ValueError as e:
        raise UsageError(f"--search {text!r} is not SAMPLESxELITESxITERATIONS.") from e
    return samples, elites, iterations


def sized(protocol: str, episodes: int, search: str) -> Protocol:
    """The protocol with so many episodes, one planner stream, and its CEM at this size."""
    from dreamcheck.planning import load_protocol

    chosen = load_protocol(protocol).replace(num_eval=episodes, streams=1)
    if search == "protocol":
        return chosen
    samples, elites, iterations = _budget(search)
    return chosen.replace(
        solver={
            "name": "cem", "num_samples": samples, "num_elites": elites, "iterations": iterations,
        }
    )  # fmt: skip


def _with_success(
    found: Examined, models: dict[str, Any], simulator: Any, shifts: Any, *,
    protocol: str, episodes: int, search: str, out: Path | None, show: Any,
) -> Examined:  # fmt: skip
    """The table with the success that each severity costs, where it can be evaluated."""
    from dreamcheck.cli.planning import GROUPS, Rounds
    from dreamcheck.planning import plan_perturbed
    from dreamcheck.planning.guarding import Guarded

    if protocol == "none":
        return replace(found, no_success="not evaluated: --protocol none")
    if simulator is None:
        return replace(found, no_success=f"task {found.task} has no simulator here")
    chosen = sized(protocol, episodes, search)
    if chosen.task != simulator.name:
        return replace(
            found, no_success=f"protocol {chosen.name} is for task {chosen.task}; name another"
        )
    # This command's own guards were asked when the checkpoints were read.
    passed = Guarded(stamps=found.stamps)
    success = {}
    for name, model in models.items():
        with Rounds(show) as rounds:
            success[name] = plan_perturbed(
                model, simulator, chosen, shifts,
                progress=lambda d, t, w, name=name, rounds=rounds: rounds(d, t, f"{name}, {w}"),
                keep=None if out is None else out / GROUPS, guard=lambda *asked: passed,
            )  # fmt: skip
    return replace(found, success=success, protocol=chosen.model_dump())


def lines(found: Examined) -> list[str]:
    """The table and what it means, for a console."""
    result = found.to_dict()
    first = found.perturbations[0]
    out = [
        f"{result['task']}, {first.name} on {first.on} (severity: {first.kind.severity})",
        f"{result['num_anchors']} windows of {result['num_windows']}, {result['horizon']} steps of "
        f"{result['frameskip']}, {result['draws']} draws; {result['eligible']} windows have a "
        f"differently labelled neighbour, {result['skipped']} do not",
    ]
    head = ("checkpoint", "severity", "IR", "IR rel", "SR", "score", "accepted", "choice changed", "certified",
            "success lost, points")  # fmt: skip
    rows = []
    for c in result["checkpoints"]:
        name = c["name"] + (" (reference)" if c["is_reference"] else "")
        rows += [_cells(name, s) for s in c["severities"]]
    return [*out, *shared.table_lines(rows, head=head), *_notes(result)]


def _cells(name: str, s: dict[str, Any]) -> tuple[str, ...]:
    def text(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    p, success = s["planner"], s["success"]
    changed = certified = lost = "-"
    if p is not None:
        n = p["num_histories"]
        changed = (
            f"{p['winner']['uncertified, changed'] / n:.0%} [{100 * p['changed_low']:.0f}, "
            f"{100 * p['changed_high']:.0f}]"
        )
        certified = f"{p['winner']['certified, unchanged'] / n:.0%}"
    if success is not None:
        lost = (
            f"{success['loss_points']:z.0f} [{success['loss_low']:z.0f}, "
            f"{success['loss_high']:z.0f}]"
        )
    sr = "-" if s["sr"] is None else f"{s['sr_count']}/{s['sr_eligible']}"
    return (
        name, f"{s['severity']:g}", f"{s['ir_raw']:.3f}", text(s["ir_rel"], ".3f"), sr,
        text(s["score"], "z.2f"), {True: "yes", False: "no", None: "-"}[s["accepted"]], changed, certified, lost,
    )  # fmt: skip


def _notes(result: dict[str, Any]) -> list[str]:
    from dreamcheck.reports.consistency_statistics import undefined_because

    out = []
    for c in result["checkpoints"]:
        if c["num_still"]:
            out.append(
                f"{c['name']}: {c['num_still']} window(s) stand still; their normalised distances "
                "are near 1e8 and drive the radius"
            )
        if c["clipped"]:
            out.append(f"{c['name']} takes 8-bit frames: perturbed ones were rounded and clipped")
        out += [f"{c['name']}: {why}" for why in undefined_because(result, c)]
    if result["reference"] is not None and result["sign_from_radius_alone"]:
        out.append(
            f"at t_IR = {result['t_ir']:g} the reference scores "
            f"{(result['t_ir'] - 1) / result['t_ir']:.4f} whatever its SR: a score above it says "
            "only that the relative radius is under 1"
        )
    if result["reference"] is None:
        out.append("no --reference: radii are not relative, and nothing is screened")
    if result["no_success"]:
        out.append(f"success under the perturbation: {result['no_success']}")
    pairs = sum(s["num_pairs"] for c in result["checkpoints"] for s in c["severities"])
    out.append(f"Proposition 1 holds on all {pairs} pairs (a check of the code, not of the model)")
    return out
