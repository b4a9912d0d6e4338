"""Replaying a bank: both checkpoints, the same inputs, the same fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dreamcheck.errors import DreamcheckError, InterfaceMismatch, UsageError
from dreamcheck.evidence import risk_of
from dreamcheck.gate.bank import Bank, BankEntry
from dreamcheck.gate.judge import GateResult, Losses, judge
from dreamcheck.imagination.risk import RiskProbe, Row
from dreamcheck.imagination.runner import Runner
from dreamcheck.imagination.targets import loss_unit
from dreamcheck.progress import Progress
from dreamcheck.study.assembling import assemble
from dreamcheck.study.comparing import require_physical
from dreamcheck.study.config import StudyConfig, study_from
from dreamcheck.study.measuring import interface_of
from dreamcheck.study.study import probe_of
from dreamcheck.tasks.protocol import Task

CHUNK = 64


def gate(
    bank: Bank,
    *,
    new: str,
    old: str,
    null: str | None = None,
    num_seeds: int = 16,
    probe_bound: float | None = None,
    progress: Progress | None = None,
    task: Task | None = None,
) -> GateResult:
    """Both checkpoints on every entry of the bank, on seeds the bank's study never declared.

    The old checkpoint is measured again: a bank is chosen among an old model's failures, so that
    against its old records any new model would look better (regression to the mean).

    Args:
        new, old: checkpoint folders, shipped names or factories.
        null: a second training run of the old recipe; its counts against ``old`` say what the
            chance of training alone does.
        probe_bound: largest held-out probe error, in the risk's unit, at which risks may be
            compared; default: a quarter of the task's tolerance.
        task: a task that is already made; default: the bank's, by name.

    Raises:
        InterfaceMismatch: task version, appearance, policy, target, unit or horizons differ from
            the bank's; named, before anything is measured.
        GuardRefused: a probe is too poor for its risks to be compared.
    """
    progress = progress or Progress(quiet=True)
    if num_seeds < 1:
        raise UsageError(f"{num_seeds} seeds: a gate needs at least 1, and 16 to claim much.")
    seeds = bank.fresh_seeds(num_seeds)
    names = {"old": old, "new": new, **({"null": null} if null else {})}
    probes, notes = {}, []
    for role, name in names.items():
        probe = _probe(bank, name, task)
        task = probe.task  # one simulator for all
        notes += require_same(bank, probe, label=f"{role} checkpoint {name}")
        require_physical(
            probe,
            name,
            bound=probe_bound,
            way_out="Train a better readout, or state another bound with --probe-bound and live "
            "with what it hides",
        )
        probes[role] = probe
    measured = {
        role: _measure(bank, probe, names[role], seeds, progress) for role, probe in probes.items()
    }
    cases = judge(bank, measured["old"], measured["new"])
    chance = None
    if null:
        words = [c.word for c in judge(bank, measured["old"], measured["null"])]
        chance = {w.replace(" ", "_"): words.count(w) for w in dict.fromkeys(words)}
    return GateResult(
        bank=bank.digest,
        title=bank.title,
        levels=bank.measured.levels,
        unit=bank.measured.unit,
        seeds=seeds,
        old=measured["old"].identity,
        new=measured["new"].identity,
        old_label=str(old),
        new_label=str(new),
        cases=cases,
        null=chance,
        null_label=null,
        notes=tuple(dict.fromkeys(notes)),
    )


def config_of(bank: Bank, model: str) -> StudyConfig:
    """The bank's protocol with another model; its seeds play no part in a replay."""
    shared = {k: v for k, v in bank.protocol.items() if k not in ("checks", "searches")}
    parts = {p: (i,) for i, p in enumerate(("search", "validation", "neighbourhood"))}
    return study_from(
        {
            **shared,
            "model": model,
            "searches": [{**s, "neighbourhoods": False} for s in bank.protocol["searches"]],
            "checks": {"validation_steps": [1]},
            "seeds": parts,
        },
        origin="the bank",
    )


def _probe(bank: Bank, name: str, task: Task | None) -> RiskProbe:
    config = config_of(bank, name)
    bench = assemble(config, task=task)
    # A verdict needs losses alone: no sensitivity floors, no distances from training.
    return replace(
        probe_of(config, bench, Runner(bench.model, tile=64)), support=None, floor_samples=0
    )


def require_same(bank: Bank, probe: RiskProbe, *, label: str) -> list[str]:
    """Refuse what would compare different things.

    Returns:
        notes on differences that do not forbid the comparison.

    Raises:
        InterfaceMismatch: what differs, with both values.
    """
    m, h = bank.measured, probe.horizons
    mine = interface_of(probe)
    found = {
        "task": (m.task, probe.task.name),
        "task version": (m.task_version, probe.task.version),
        "policy": (
            f"{m.policy} {m.policy_digest[:12]}",
            f"{probe.policy.name} {mine.policy[:12]}",
        ),
        "target": (m.target, probe.target.name),
        "risk unit": (m.unit, loss_unit(probe.target.unit, probe.discrepancy)),
        "readout columns": (
            m.columns,
            tuple(c.name for c in probe.readout.columns) if probe.readout else (),
        ),
        "history": (m.history, h.history),
        "forecast": (m.forecast, h.forecast),
        "frameskip": (m.frameskip, h.frameskip),
    }
    for what, (kept, now) in found.items():
        if kept == now:
            continue
        way_out = "Replay the bank where it was made"
        if what == "task version":
            if str(kept).split(", appearance")[0] == str(now).split(", appearance")[0]:
                what = "task appearance"
            way_out = (
                f"It was made with {m.package_version}, this is {probe.task.package_version}: "
                "replay it with those packages"
            )
        raise InterfaceMismatch(
            f"the bank {bank.title!r} was made with {what} {kept!r}, the {label} is driven with "
            f"{now!r}: their risks cannot meet (law 7). {way_out}, or make a new one with "
            "`dreamcheck discover` and `dreamcheck bank`."
        )
    if m.package_version != probe.task.package_version:
        return [
            f"the bank was made with {m.package_version}, this is {probe.task.package_version}; "
            "the task version is the same"
        ]
    return []


def _measure(
    bank: Bank, probe: RiskProbe, name: str, seeds: Sequence[int], progress: Progress
) -> Losses:
    statistic = config_of(bank, name).statistic.model_dump()
    losses: dict[str, list[float | None]] = {}
    risks: dict[str, float | None] = {}
    failures: dict[str, str] = {}
    with progress.stage(f"gate {Path(name).name}", len(bank.entries)) as stage:
        width = max(1, CHUNK // len(seeds))
        for group in _groups(bank.entries, width):
            for e, rows in zip(group, _rows(probe, group, seeds), strict=True):
                bad = [r.failure for r in rows if r.failure is not None]
                losses[e.id] = [r.loss for r in rows]
                if bad:
                    failures[e.id] = f"{name}: {bad[0]}"
                    risks[e.id] = None
                else:
                    risks[e.id] = risk_of([float(r.loss or 0.0) for r in rows], statistic)
                stage.advance()
    return Losses(probe.runner.model.identity, name, losses, risks, failures)


def _groups(entries: Sequence[BankEntry], width: int) -> list[list[BankEntry]]:
    """Neighbouring entries of one kind, ``width`` at a time: resets and inputs do not mix."""
    out: list[list[BankEntry]] = []
    for e in entries:
        last = out[-1] if out else None
        fits = (
            last is not None
            and len(last) < width
            and (last[0].values is None) == (e.values is None)
            and last[0].specification == e.specification
        )
        if fits and last is not None:
            last.append(e)
        else:
            out.append([e])
    return out


def _rows(probe: RiskProbe, group: Sequence[BankEntry], seeds: Sequence[int]) -> list[list[Row]]:
    """Rows of a group; a group that fails is measured entry by entry, so one costs only itself."""
    many = [s for _ in group for s in seeds]
    inputs = None if group[0].values is None else [e.values or {} for e in group for _ in seeds]
    try:
        rows = probe.rows(inputs, many)
    except UsageError:
        raise
    except (DreamcheckError, ArithmeticError, RuntimeError, ValueError) as error:
        if len(group) == 1:
            return [[Row.failed(f"crash: {error}")] * len(seeds)]
        return [_rows(probe, [e], seeds)[0] for e in group]
    n = len(seeds)
    return [rows[i * n : (i + 1) * n] for i in range(len(group))]
