"""Commands that evaluate planning: plan, explain, dissociation."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamcheck.cli import shared
from dreamcheck.errors import UsageError
from dreamcheck.progress import Progress, Stage

if TYPE_CHECKING:
    from dreamcheck.models.protocol import Readout, WorldModel
    from dreamcheck.planning.guarding import Guard, Guarded
    from dreamcheck.planning.protocol import Protocol
    from dreamcheck.planning.recorded import Recorded
    from dreamcheck.tasks.protocol import Task

GROUPS = "episodes"
"""Folder inside --out that keeps finished groups of episodes."""

Model = Annotated[
    str,
    typer.Option("--model", help="Checkpoint folder, shipped name, or package.module:factory."),
]
TaskName = Annotated[str, typer.Option("--task", help="Task; the protocol's by default.")]
ProtocolName = Annotated[
    str,
    typer.Option(
        "--protocol", help="A protocol file, or a name that `dreamcheck protocols` lists."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Recorded episodes, where the protocol takes starts from them."),
]
Episodes_ = Annotated[
    int | None, typer.Option("--episodes", min=1, help="Episodes, instead of the protocol's.")
]
Streams = Annotated[
    int | None,
    typer.Option("--streams", min=1, help="Planner streams averaged inside an episode."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one field of the protocol, e.g. collision=swept, solver.iterations=10.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for the record and the report; makes the command resumable."
    ),
]
Speed = Annotated[
    str,
    typer.Option("--speed", help="exact, screened (checked bfloat16), or generic (step by step)."),
]


Card = Annotated[
    bool,
    typer.Option("--card", help="Also write the result into the checkpoint's model card."),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(plan)
    app.command()(explain)
    app.command()(dissociation)


def plan(
    model: Model,
    protocol: ProtocolName,
    task: TaskName = "",
    data: Data = None,
    mapping: shared.ColumnMapping = None,
    episodes: Episodes_ = None,
    streams: Streams = None,
    changes: Changes = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="goal-latent, decoded-state, or package.module:function of the model.",
        ),
    ] = "goal-latent",
    controls: Annotated[
        str,
        typer.Option(
            "--controls",
            help="Controls on the same episodes, with commas: zero, oracle; random always runs.",
        ),
    ] = "random,zero,oracle",
    registration: Annotated[
        Path | None,
        typer.Option("--registration", help="Sealed by `dreamcheck register`: a primary analysis."),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Only say what the data allow; no model is loaded.")
    ] = False,
    out: Out = None,
    card: Card = False,
    speed: Speed = "exact",
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Planning success of a checkpoint under a protocol, beside random, zero and oracle controls.

    With --out, finished episodes are kept: stopped at any point, the same command goes on.

    Example: dreamcheck plan --model tworoom-small --protocol fresh-25-50 --out runs/plan

    Legal physics: dreamcheck plan --model my_run/ --protocol fresh-25-50 --set collision=swept
    """
    from dreamcheck.models.readout import CrossFitted
    from dreamcheck.models.registry import checkpoint_folder
    from dreamcheck.planning import load_protocol, prepare
    from dreamcheck.planning import plan as evaluate
    from dreamcheck.planning.protocol import changed
    from dreamcheck.planning.records import record_plan
    from dreamcheck.study.assembling import companion_probes
    from dreamcheck.tasks.registry import get_task

    shared.set_threads(threads)
    arms = _controls(controls)
    chosen = sized(changed(load_protocol(protocol), changes or ()), episodes, streams)
    on = get_task(task or chosen.task)
    recorded = shared.episodes(data, mapping)
    # Before a model is loaded: what cannot be evaluated needs none.
    prepared = prepare(chosen, on, data=recorded)
    if audit:
        if chosen.context_init == "history":
            typer.echo(
                "dreamcheck: context_init = history also needs recorded frames before each start, as "
                "many as the model reads; without the model this audit asks for none.",
                err=True,
            )
        _show_audit(prepared.report, as_json)
        return
    if registration is not None:
        _sealed(registration, chosen, prepared.selection.list_digest, out)
    probes = companion_probes(checkpoint_folder(model))
    seen = None if probes is None else CrossFitted(*probes)

    def load() -> Any:
        loaded = _model(model, device)
        for probe in probes or ():
            probe.require(loaded)
        return loaded

    with Rounds(shared.progress(quiet=quiet)) as rounds:
        result = evaluate(
            load,
            on,
            chosen,
            data=recorded,
            objective=_objective(objective, seen),
            readout=seen,
            controls=arms,
            speed=speed,
            guard=_guard(model, chosen, seen, allow),
            prepared=prepared,
            progress=rounds,
            keep=None if out is None else out / GROUPS,
        )
    record = None if out is None else record_plan(out, result, model=model)
    if card:
        from dreamcheck.planning.card import plan_entry

        name = f"{chosen.name}, {chosen.collision}"
        _on_card(model, name, plan_entry(result.to_dict(), command=_command()))
    _finish(result, out, record, as_json)


def explain(
    model: Model,
    protocol: ProtocolName = "",
    task: TaskName = "",
    data: Data = None,
    mapping: shared.ColumnMapping = None,
    episodes: Episodes_ = None,
    streams: Annotated[
        int, typer.Option("--streams", min=1, help="Planner streams averaged inside an episode.")
    ] = 1,
    changes: Changes = None,
    true_cost: Annotated[
        str, typer.Option("--true-cost", help="path (through the door) or straight.")
    ] = "path",
    search_factor: Annotated[
        int, typer.Option("--search-factor", min=2, help="Samples of the larger search, times.")
    ] = 10,
    cells: Annotated[
        str,
        typer.Option("--cells", help="waterfall (six of the factorial's cells) or all (eight)."),
    ] = "waterfall",
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Write the figure here, as SVG.")
    ] = None,
    out: Out = None,
    card: Card = False,
    speed: Speed = "exact",
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Where planning success goes: the cost, the dynamics and the search swapped for better ones.

    On identical episodes and noise. With --out it is resumable and its figure opens the report.
    On PushT, where a step is dear, a fixed menu of 64 plans replaces search (pusht-menu).

    Example: dreamcheck explain --model tworoom-small --protocol fresh-50-100 --out runs/explain

    PushT: dreamcheck explain --model pusht-small --task pusht --out runs/explain-pusht
    """
    from dreamcheck.planning import explain as attribute
    from dreamcheck.planning import explain_menu, explanation_figure, load_protocol
    from dreamcheck.planning.attribution import ALL_CELLS, WATERFALL_CELLS
    from dreamcheck.planning.protocol import changed
    from dreamcheck.planning.records import record_explanation
    from dreamcheck.tasks.registry import get_task

    if cells not in ("waterfall", "all"):
        raise UsageError(f"--cells {cells} is neither waterfall nor all.")
    if true_cost not in ("path", "straight"):
        raise UsageError(f"--true-cost {true_cost} is neither path nor straight.")
    shared.set_threads(threads)
    protocol = protocol or ("pusht-menu" if task == "pusht" else "fresh-50-100")
    chosen = sized(changed(load_protocol(protocol), changes or ()), episodes, None)
    on = get_task(task or chosen.task)
    loaded = _model(model, device)
    which = ALL_CELLS if cells == "all" else WATERFALL_CELLS
    seen = _readout(model, loaded)
    guard = _guard(model, chosen, seen, allow)
    with Rounds(shared.progress(quiet=quiet)) as rounds:
        if on.name == "pusht":
            result = explain_menu(
                loaded, on, chosen, readout=seen, search_factor=search_factor, streams=streams,
                cells=which, guard=guard, progress=rounds,
                keep=None if out is None else out / GROUPS,
            )  # fmt: skip
        else:
            result = attribute(
                loaded,
                on,
                chosen,
                readout=seen,
                data=shared.episodes(data, mapping),
                true_cost=true_cost,
                search_factor=search_factor,
                streams=streams,
                cells=which,
                guard=guard,
                speed=speed,
                progress=rounds,
                keep=None if out is None else out / GROUPS,
            )
    if figure is not None:
        figure.write_text(explanation_figure(result, task=on), encoding="utf-8")
    if card:
        from dreamcheck.planning.card import explain_entry

        entry = explain_entry(result.to_dict(), command=_command())
        _on_card(model, f"{chosen.name}, explain", entry)
    record = None if out is None else record_explanation(out, result, model=model, task=on)
    _finish(result, out, record, as_json)


def dissociation(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Two or more checkpoints, e.g. stages of a training.", metavar="MODEL..."
        ),
    ],
    short: Annotated[
        str, typer.Option("--short", help="Protocol of the short horizon.")
    ] = "fresh-25-50",
    long: Annotated[
        str, typer.Option("--long", help="Protocol of the long horizon.")
    ] = "fresh-50-100",
    task: TaskName = "tworoom",
    data: Data = None,
    mapping: shared.ColumnMapping = None,
    episodes: Episodes_ = None,
    streams: Streams = None,
    changes: Changes = None,
    windows: Annotated[
        int, typer.Option("--windows", min=2, help="Windows of the one-step error.")
    ] = 400,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Write the figure here, as SVG.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write a Markdown page here, its figure beside it."),
    ] = None,
    out: Out = None,
    speed: Speed = "exact",
    allow: shared.Allow = None,
    device: shared.Device = "cpu",
    threads: shared.Threads = None,
    quiet: shared.Quiet = False,
    as_json: shared.AsJson = False,
) -> None:
    """Does one-step error order planning success, at a short and at a long horizon?

    With --out, finished episodes are kept: stopped at any point, the same command goes on.

    Example: dreamcheck dissociation stages/step-00100 stages/step-00400 tworoom-small --out runs/d
    """
    from dreamcheck.planning import dissociation as analyse
    from dreamcheck.planning import dissociation_figure, load_protocol
    from dreamcheck.planning.checkpoint_set import measured_checkpoints
    from dreamcheck.planning.dissociation_page import dissociation_page
    from dreamcheck.planning.protocol import changed
    from dreamcheck.planning.records import record_dissociation
    from dreamcheck.tasks.registry import get_task

    shared.set_threads(threads)
    horizons = [
        sized(changed(load_protocol(p), changes or ()), episodes, streams) for p in (short, long)
    ]
    paths = dict(zip(short_names(models), models, strict=True))
    opened = {}
    for name, path in paths.items():
        loaded = _model(path, device)
        opened[name] = (loaded, _readout(path, loaded))
    with Rounds(shared.progress(quiet=quiet)) as rounds:
        checkpoints = measured_checkpoints(
            opened,
            get_task(task),
            short=horizons[0],
            long=horizons[1],
            data=shared.episodes(data, mapping),
            windows=windows,
            speed=speed,
            keep=None if out is None else out / GROUPS,
            guard=lambda name, p: _guard(paths[name], p, opened[name][1], allow),
            progress=rounds,
        )
    result = analyse(checkpoints)
    beside = None if page is None else page.with_suffix(".svg")
    for place in (figure, beside):
        if place is not None:
            place.write_text(dissociation_figure(result), encoding="utf-8")
    if page is not None and beside is not None:
        names = " ".join(short_names(models))
        set_ = "".join(f" --set {c}" for c in changes or ())
        sizes = "".join(
            f" {flag} {n}"
            for flag, n in (("--episodes", episodes), ("--streams", streams))
            if n is not None
        )
        text = dissociation_page(
            result,
            horizons,
            figure=beside.name,
            command=f"dreamcheck dissociation {names}{sizes}{set_} --page {page.name}",
        )
        page.write_text(text, encoding="utf-8")
    record = None if out is None else record_dissociation(out, result, checkpoints)
    _finish(result, out, record, as_json)


@dataclass
class Rounds:
    """Turns ``(done, total, what)`` calls into stages of the progress display."""

    progress: Progress
    _what: str = ""
    _done: int = 0
    _stage: Stage | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def __call__(self, done: int, total: int, what: str) -> None:
        if what != self._what:
            self._open.close()
            self._what, self._done = what, done
            self._stage = self._open.enter_context(
                self.progress.stage(what, total - done, unit="replans")
            )
        if done > self._done and self._stage is not None:
            self._stage.advance(done - self._done)
            self._done = done

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()


def short_names(paths: Sequence[str]) -> list[str]:
    """The last part of each path, or the whole where two would be alike."""
    last = [Path(p.rstrip("/")).name for p in paths]
    return last if len(set(last)) == len(last) else list(paths)


def _readout(name: str, model: WorldModel) -> Readout | None:
    """The cross-fitted readout kept beside a checkpoint; None for a model that has none."""
    from dreamcheck.models.registry import checkpoint_folder
    from dreamcheck.study.assembling import load_companion_readout

    folder = checkpoint_folder(name)
    return None if folder is None else load_companion_readout(folder, model)


def _controls(text: str) -> list[str]:
    """The arms asked for, the random one always among them (P14)."""
    from dreamcheck.planning.evaluate import CONTROLS

    asked = [c.strip() for c in text.split(",") if c.strip()]
    for name in asked:
        if name not in CONTROLS:
            raise UsageError(f"--controls {name!r} is not one of {', '.join(CONTROLS)}.")
    if "random" in asked:
        return asked
    typer.echo(
        "dreamcheck: the random control runs as well: without its floor a rate says nothing (P14).",
        err=True,
    )
    return ["random", *asked]


def _guard(name: str, protocol: Protocol, readout: Any, allow: list[str] | None) -> Guard:
    """The guards of planning for a checkpoint that was named, asked once it is loaded."""

    def ask(model: WorldModel, task: Task, held: Recorded) -> Guarded:
        from dreamcheck.doctor.guards import guarded

        return guarded(
            "plan", name, model, task=task, episodes=held.episodes, episodes_from=held.source,
            protocol=protocol, readout=readout, allow=allow,
        )  # fmt: skip

    return ask


def _model(name: str, device: str) -> Any:
    from dreamcheck.models.registry import load_model

    return load_model(name, device=device)


def sized(protocol: Protocol, episodes: int | None, streams: int | None) -> Protocol:
    """The protocol with as many episodes and streams as asked for."""
    given = {"num_eval": episodes, "streams": streams}
    return protocol.replace(**{k: v for k, v in given.items() if v is not None})


def _objective(name: str, readout: Any) -> Any:
    from dreamcheck.planning.objectives import DecodedState, imported_objective

    if name == "goal-latent":
        return None
    if name == "decoded-state":
        if readout is None:
            raise UsageError(
                "--objective decoded-state needs a readout of the state beside the checkpoint, and "
                "this model has none."
            )
        return DecodedState(readout)
    return imported_objective(name)


def _sealed(path: Path, protocol: Protocol, list_digest: str, out: Path | None) -> None:
    """Refuse a primary analysis whose first episode is older than its registration."""
    from dreamcheck.planning.registration import check_registration, read_registration

    written = [] if out is None else [p.stat().st_mtime for p in (out / GROUPS).glob("*/*.npz")]
    first = datetime.fromtimestamp(min([time.time(), *written]), UTC)
    check_registration(
        read_registration(path), list_digest=list_digest, protocol=protocol, first_result_at=first
    )


def _show_audit(report: Any, as_json: bool) -> None:
    if as_json:
        shared.print_json(report.to_dict())
        return
    for line in report.lines():
        typer.echo(line)


def _command() -> str:
    """This command as it was typed, without what does not change its numbers."""
    words = [w for w in sys.argv[1:] if w not in ("--card", "--json", "--quiet")]
    return "dreamcheck " + " ".join(shlex.quote(w) for w in words)


def _on_card(model: str, name: str, entry: dict[str, Any]) -> None:
    from dreamcheck.models.registry import checkpoint_folder
    from dreamcheck.planning.card import add_to_card

    folder = checkpoint_folder(model)
    if folder is None:
        raise UsageError(f"--card: {model} is not a checkpoint folder, so it has no card.")
    add_to_card(folder, name, entry)


def _finish(result: Any, out: Path | None, record: Any, as_json: bool) -> None:
    page = None
    if out is not None:
        from dreamcheck.reports import write_report

        page = write_report(out)
    if as_json:
        places = {} if record is None else {"record": record.key, "report": str(page)}
        shared.print_json({**result.to_dict(), **places})
        return
    for line in result.lines():
        typer.echo(line)
    if page is not None:
        typer.echo(f"report: {page}")
