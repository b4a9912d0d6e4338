"""The gate shown on checkpoints of two training stages and two seeds, and the first repair loop.

Small trainings, made here: the page is about what the gate says of them, not about the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamcheck.errors import Abstention, UsageError
from dreamcheck.evidence import Store
from dreamcheck.evidence.diagnoses import KIND
from dreamcheck.gate import bank_from_study, gate, load_bank, save_bank
from dreamcheck.gate.recording import record_gate
from dreamcheck.progress import Progress
from dreamcheck.training.pipeline import STAGE_FOLDER

WORDS = ("fixed", "unchanged", "worse", "new", "not_comparable")


@dataclass(frozen=True)
class Shown:
    """One task's part of the page.

    recipe, changes: what is trained, twice, in two stages; small on purpose.
    probe_bound: px; stated because probes of small trainings exceed a quarter of the tolerance.
    """

    recipe: str
    probe_bound: float
    changes: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 16


_SMALL = {
    "data.episodes": 150,
    "optimiser.steps": 120,
    "optimiser.batch": 64,
    "refinement.steps": 120,
    "measure.more_heldout": 20,
    "measure.probe_frames": 2000,
    "measure.probe_steps": 500,
    "measure.windows": 400,
    "measure.support_rows": 1000,
}
SHOWN: Mapping[str, Shown] = {
    "tworoom": Shown("tworoom-small", 80.0, _SMALL),
    "pusht": Shown("pusht-small", 80.0, _SMALL),
}


def show_gates(
    out: str | Path,
    *,
    task: str,
    study: str | Path,
    trained: str | Path | None = None,
    seeds: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Path:
    """The bank of a validated study, two trainings of two stages, and three gates over it.

    Kept in ``out/TASK``; what is there already is not made again.

    Args:
        study: a validated study of the task; where it confirmed nothing, the page says so.
        trained: a training of several stages, as ``dreamcheck train --stages`` leaves it, whose
            first and last stage are gated; default: the two stages of the small training.
        seeds: fresh seeds of every gate.
    """
    from dreamcheck.training import train_preset

    directory, shown = Path(out) / task, SHOWN[task]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        save_bank(bank_from_study(study), directory / "bank")
    except Abstention as e:
        (directory / "abstained.txt").write_text(f"{e}\n", encoding="utf-8")
        return directory
    (directory / "abstained.txt").unlink(missing_ok=True)  # of an earlier study
    bank = load_bank(directory / "bank")
    folders = {}
    for seed in (0, 1):
        folders[seed] = directory / f"seed-{seed}"
        if not (folders[seed] / "card.json").exists():
            train_preset(
                shown.recipe, folders[seed], stages=2, threads=threads, seed=seed, **shown.changes
            )
    first, last = stages_of(folders[0] if trained is None else trained)
    for name, old, new in (
        ("stage", first, last),
        ("backwards", last, first),
        ("seed", folders[0], folders[1]),
    ):
        if not (directory / f"gate-{name}" / "evidence.sqlite").exists():
            result = gate(
                bank,
                new=str(new),
                old=str(old),
                num_seeds=seeds or shown.seeds,
                probe_bound=shown.probe_bound,
                progress=progress or Progress(),
            )
            record_gate(directory / f"gate-{name}", result)
    return directory


def stages_of(folder: str | Path) -> tuple[Path, Path]:
    """The first and the last measured stage of a training: the finished checkpoint is the last.

    Raises:
        UsageError: it has fewer than two.
    """
    folder = Path(folder)
    found = sorted(
        (p.parent for p in (folder / STAGE_FOLDER).glob("*/card.json")), key=lambda p: int(p.name)
    )
    if (folder / "card.json").exists():
        found.append(folder)
    if len(found) < 2:
        raise UsageError(
            f"{folder} holds {len(found)} measured stage(s) of a training, two are gated: train "
            f"with `dreamcheck train --stages 2 --out {folder}`, or go on with one that was "
            "stopped."
        )
    return found[0], found[-1]


def page(out: str | Path) -> str:
    """docs/results/gate.md, from the records of ``show_gates`` and of ``dreamcheck repair``.

    Args:
        out: their folder; a repair lies in ``out/repair``.
    """
    out = Path(out)
    parts = [
        "# The gate and the first repair loop\n\nWritten by `dreamcheck reproduce gate --out DIR "
        "--page docs/results/gate.md` from the records in DIR; no number here was typed."
    ]
    for task in SHOWN:
        parts += _task(out / task, task)
    parts.append(_repair(out / "repair" / "record"))
    return "\n\n".join(parts) + "\n"


def _diagnosis(directory: Path, name: str) -> dict[str, Any] | None:
    if not (directory / "evidence.sqlite").exists():
        return None
    with Store.read(directory) as store:
        rows = [r.payload["result"] for r in store.records(KIND) if r.payload["name"] == name]
    return rows[-1] if rows else None


def _task(directory: Path, task: str) -> list[str]:
    title = f"## {task}"
    told = directory / "abstained.txt"
    if told.exists():
        return [f"{title}\n\nNo bank, so nothing to gate: {told.read_text('utf-8').strip()}"]
    if not (directory / "bank").exists():
        return [f"{title}\n\nNot run."]
    bank, shown = load_bank(directory / "bank"), SHOWN[task]
    roles = [e.role for e in bank.entries]
    counts = ", ".join(f"{roles.count(r)} {r}" for r in dict.fromkeys(roles))
    changes = ", ".join(f"{k} = {v}" for k, v in shown.changes.items())
    rows, notes, chance = [], [], ""
    for name, says in (
        ("stage", "a later stage against the first"),
        ("backwards", "the first stage against the later (a step back)"),
        ("seed", "seed 1 against seed 0, same recipe"),
    ):
        r = _diagnosis(directory / f"gate-{name}", "gate")
        if r is None:
            rows.append(f"| {says} | not run |" + " |" * 7)
            continue
        says += f": `{_short(r['new_label'])}` against `{_short(r['old_label'])}`"
        words = " | ".join(str(r["counts"].get(w, 0)) for w in WORDS)
        rows.append(
            f"| {says} | {words} | {_mean(r, 'failure', 'old')} → {_mean(r, 'failure', 'new')} | "
            f"{'regressed' if r['regressed'] else 'not regressed'} |"
        )
        notes = [f"{len(r['seeds'])} fresh seeds an input; risks in {r['unit']}."]
        if name == "seed":
            bad = sum(int(r["counts"].get(w, 0)) for w in ("worse", "new"))
            chance = (
                f"Between the two seeds, where nothing but chance differs, {bad} of "
                f"{len(r['cases'])} inputs are worse or new and {r['counts']['fixed']} fixed: what "
                "`--null` is for."
            )
    return [
        f"{title}\n\nBank `{bank.digest[:12]}` of {bank.title!r}: {counts}. `seed-0` and `seed-1`: "
        f"`{shown.recipe}` with {changes}; two stages each. Probes may be off by at "
        f"most {shown.probe_bound:g} px (--probe-bound, stated because they are small trainings). "
        + " ".join(notes),
        "| new against old | fixed | unchanged | worse | new | not comparable | mean risk of the "
        "failures, old → new | verdict |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(rows),
        *([chance] if chance else []),
    ]


def _short(label: str) -> str:
    """A checkpoint's folder without the way to it; a stage with its training's name."""
    path = Path(label)
    return str(Path(*path.parts[-3:])) if path.parent.name == STAGE_FOLDER else path.name


def _mean(result: Mapping[str, Any], role: str, of: str) -> str:
    value = result["mean_risk"].get(role, {}).get(of)
    return "none" if value is None else f"{value:.2f}"


def _repair(directory: Path) -> str:
    title = "## Repair on TwoRoom"
    r = _diagnosis(directory, "repair")
    if r is None:
        return f"{title}\n\nNot run."
    s = r["settings"]
    rows = []
    for name, group in r["groups"].items():
        for arm in ("repaired", "control"):
            cell = group[arm]
            words = " | ".join(str(cell["words"][w]) for w in WORDS[:4])
            risks = " | ".join(
                "none" if cell[k] is None else f"{cell[k]:.2f}" for k in ("old_risk", "new_risk")
            )
            rows.append(
                f"| {name.replace('_', ' ')} | {group['inputs']} | {arm} | {risks} | {words} |"
            )
    success = _success(r["success"])
    return (
        f"{title}\n\n`{Path(r['model']).name}` was trained on for {s['steps']} predictor steps, "
        f"with {s['original']} episodes of its original data and, in the repaired arm only, "
        f"{s['around']} episodes around half of its confirmed failures in support. Risks in "
        f"{r['unit']}, on {s['seeds']} fresh seeds.\n\n"
        "| inputs | count | trained on | risk before | after | fixed | unchanged | worse | new |\n"
        f"|---|---|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n"
        + _verdict(r)
        + success
    )


def _verdict(r: Mapping[str, Any]) -> str:
    """The outcome in words, from the same numbers."""
    told = []
    for name in ("repaired_half", "other_half", "random"):
        group = r["groups"].get(name)
        values = [] if group is None else [group[a]["new_risk"] for a in ("repaired", "control")]
        if group is None or None in values or group["repaired"]["old_risk"] is None:
            continue
        before = group["repaired"]["old_risk"]
        mine, control = (100 * (v / before - 1) for v in values)
        told.append(f"{name.replace('_', ' ')} {mine:+.0f}% (control {control:+.0f}%)")
    return "Change of the mean risk: " + "; ".join(told) + "." if told else ""


def _success(success: Mapping[str, Mapping[str, Any]]) -> str:
    if not success:
        return " Planning success was not measured."
    protocol = next(iter(success.values()))["protocol"]
    told: Sequence[str] = [
        f"{name} {v['successes']:g} of {v['episodes']}" for name, v in success.items()
    ]
    return f"\n\nPlanning success ({protocol}): {'; '.join(told)}."
