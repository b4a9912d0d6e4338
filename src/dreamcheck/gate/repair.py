"""A first repair loop: data around half of the failures, more training, and the gate as judge.

Only the predictor is trained on, so that latents, probes and support stay what they are. The
control is trained on as long, on the original data alone: what more training does by itself.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.data.windows import Windows
from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import Abstention
from dreamcheck.evidence import Record
from dreamcheck.evidence.diagnoses import record_diagnosis
from dreamcheck.gate.bank import Bank, BankEntry
from dreamcheck.gate.judge import WORDS, GateResult
from dreamcheck.gate.replay import config_of, gate
from dreamcheck.models.checkpoint import save_checkpoint
from dreamcheck.models.lewm import LeWMNet
from dreamcheck.models.lewm_model import LeWM
from dreamcheck.models.readout import load_readout, readout_names
from dreamcheck.models.reference import load_support
from dreamcheck.models.registry import checkpoint_folder, load_model
from dreamcheck.progress import Progress as StageProgress
from dreamcheck.streams import stream
from dreamcheck.tasks import get_task
from dreamcheck.tasks.protocol import MakesPolicies
from dreamcheck.training.prepare import prepare
from dreamcheck.training.progress import LineProgress, Progress
from dreamcheck.training.recipe import Recipe, RefinementRecipe, load_recipe
from dreamcheck.training.record import record_episodes
from dreamcheck.training.refine import refine_predictor


@dataclass(frozen=True)
class Settings:
    """What a repair costs.

    original: episodes of the recipe's own data, recorded again (their seeds are the recipe's).
    around: episodes from the repaired half's inputs and their neighbours.
    steps, batch, learning_rate: of the predictor's further training, in both arms.
    seeds: of the gate. planning: episodes for planning success; 0 leaves it out.
    """

    original: int = 200
    around: int = 100
    steps: int = 600
    batch: int = 128
    learning_rate: float = 5e-4
    seeds: int = 16
    planning: int = 20
    root_seed: int = 0


@dataclass(frozen=True)
class Repair:
    """What the loop found. Gates are against the checkpoint that was repaired."""

    model: str
    repaired_half: tuple[str, ...]
    other_half: tuple[str, ...]
    repaired: GateResult
    control: GateResult
    success: dict[str, dict[str, Any]]
    settings: Settings

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Ids by what they stand for."""
        cases = self.repaired.cases
        return {
            "repaired half": self.repaired_half,
            "other half": self.other_half,
            "random": tuple(c.id for c in cases if c.role == "random"),
            "default reset": tuple(c.id for c in cases if c.role == "default-reset"),
        }

    def to_dict(self) -> dict[str, Any]:
        """Counts and mean risks per group and arm, both gates, and planning success."""
        out: dict[str, Any] = {"model": self.model, "settings": asdict(self.settings)}
        table = {}
        for name, ids in self.groups().items():
            row: dict[str, Any] = {"inputs": len(ids)}
            for arm, result in (("repaired", self.repaired), ("control", self.control)):
                cases = [c for c in result.cases if c.id in ids and c.new_risk is not None]
                row[arm] = {
                    "words": {w.replace(" ", "_"): sum(c.word == w for c in cases) for w in WORDS},
                    "old_risk": _mean([c.old_risk for c in cases]),
                    "new_risk": _mean([c.new_risk for c in cases]),
                }
            table[name.replace(" ", "_")] = row
        return {
            **out,
            "groups": table,
            "success": self.success,
            "unit": self.repaired.unit,
            "gates": {
                "repaired": self.repaired.to_dict(),
                "control": self.control.to_dict(),
            },
        }


def repair(
    bank: Bank,
    *,
    model: str,
    recipe: str | Recipe,
    out: str | Path,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Repair:
    """Collect around half of the bank's failures, train on, and gate the result and its control.

    Writes ``out/repaired`` and ``out/control`` (checkpoints) and records the outcome in ``out``.

    Args:
        model: the checkpoint to repair, of the recipe's family.
        recipe: what it was trained with: its data are the original data.

    Raises:
        Abstention: fewer than two failures in or at the edge of support.
    """
    settings, progress = settings or Settings(), progress or LineProgress()
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    out = Path(out)
    halves = split_failures(bank, root_seed=settings.root_seed)
    small = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"episodes": settings.original}),
            "measure": recipe.measure.model_copy(update={"more_heldout": 0}),
        }
    )
    prepared = prepare(small, progress=progress)
    loaded = load_model(model)
    if not isinstance(loaded, LeWM):
        raise Abstention(f"{model} is a {type(loaded).__name__}; only LeWM can be trained on here.")
    conventions = loaded.conventions
    task = get_task(bank.measured.task)
    assert isinstance(task, MakesPolicies)
    policy = config_of(bank, model).policy
    starts = _around(halves[0], bank, count=settings.around, root_seed=settings.root_seed)
    first = recipe.data.first_env_seed + 10 * recipe.data.episodes
    extra = record_episodes(
        task,
        task.make_policy(policy.name, **policy.parameters),
        env_seeds=first + np.arange(len(starts)),
        steps=min(recipe.data.steps, 60),
        image_size=conventions.image_size,
        root_seed=settings.root_seed,
        inputs=starts,
        progress=progress,
    )
    together = prepared.episodes.joined(extra)
    added = np.arange(len(prepared.episodes.lengths), len(together.lengths))
    folders = {}
    for arm, subset in (
        ("repaired", np.concatenate([prepared.split.train, added])),
        ("control", prepared.split.train),
    ):
        net = copy.deepcopy(loaded.module)
        assert isinstance(net, LeWMNet)
        refine_predictor(
            net,
            Windows(
                together,
                num_frames=recipe.model.history + 1,
                frameskip=conventions.frameskip,
                subset=subset,
            ),
            conventions,
            RefinementRecipe(
                steps=settings.steps, batch=settings.batch, learning_rate=settings.learning_rate
            ),
            seed=settings.root_seed,
            progress=progress,
        )
        folders[arm] = _save(out / arm, net, loaded, model, arm=arm, settings=settings)
    stage = StageProgress(quiet=True)
    results = {
        arm: gate(
            bank, new=str(folder), old=model, num_seeds=settings.seeds, progress=stage, task=task
        )
        for arm, folder in folders.items()
    }
    success = {}
    if settings.planning:
        for name, folder in (("original", model), *((a, str(f)) for a, f in folders.items())):
            success[name] = planning_success(folder, bank.measured.task, episodes=settings.planning)
    found = Repair(
        model=model,
        repaired_half=tuple(e.id for e in halves[0]),
        other_half=tuple(e.id for e in halves[1]),
        repaired=results["repaired"],
        control=results["control"],
        success=success,
        settings=settings,
    )
    record_repair(out / "record", found, bank)
    (out / "repair.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    return found


def split_failures(bank: Bank, *, root_seed: int) -> tuple[list[BankEntry], list[BankEntry]]:
    """The failures in or at the edge of support, in two halves drawn by the root seed.

    The first half, the one that is collected around, is the smaller one when they are odd.

    Raises:
        Abstention: fewer than two.
    """
    usable = [
        e
        for e in bank.entries
        if e.role == "failure" and e.values is not None and e.stratum in ("in", "edge")
    ]
    if len(usable) < 2:
        raise Abstention(
            f"{len(usable)} failure(s) of {bank.title!r} lie in or at the edge of support; a repair "
            "needs one to collect around and one to be judged by. Search with a larger budget."
        )
    order = stream(root_seed, "repair halves", bank.digest).permutation(len(usable))
    shuffled = [usable[int(i)] for i in order]
    half = len(shuffled) // 2
    return shuffled[:half], shuffled[half:]


def planning_success(model: str, task_name: str, *, episodes: int) -> dict[str, Any]:
    """Planning success under ``fresh-25-50`` with a smaller CEM (100 x 10), one planner stream.

    The same episodes and planner noise for every checkpoint.
    """
    from dreamcheck.planning import load_protocol, plan
    from dreamcheck.planning.protocol import SolverSettings

    base = load_protocol("fresh-25-50")
    solver = SolverSettings(name="cem", num_samples=100, num_elites=10, iterations=10)  # type: ignore[call-arg]
    protocol = base.replace(num_eval=episodes, streams=1, solver=solver)
    found = plan(load_model(model), get_task(task_name), protocol, controls=("random",), log=False)
    rate = found.planner.success
    chance = found.controls["random"].success if "random" in found.controls else None
    return {
        "protocol": "fresh-25-50, CEM 100 x 10, one planner stream",
        "successes": None if rate is None else rate.successes,
        "episodes": None if rate is None else rate.num_cases,
        "random_successes": None if chance is None else chance.successes,
    }


def record_repair(directory: str | Path, found: Repair, bank: Bank) -> Record:
    """Keep the outcome, for the report."""
    return record_diagnosis(
        directory,
        name="repair",
        subject={"model": found.repaired.old, "bank": bank.digest},
        inputs={"settings": asdict(found.settings)},
        result=found.to_dict(),
    )


def _around(
    half: Sequence[BankEntry], bank: Bank, *, count: int, root_seed: int
) -> list[dict[str, Any]]:
    """``count`` starts: each failure of the half and its neighbours in the library, in turn."""
    pools = []
    for e in half:
        library = Library.build(
            get_specification(e.specification), task_rules=get_task(bank.measured.task).rules()
        )
        ball = sorted(int(i) for i in Graph(library).within(library.index(e.id), 1))
        rng = stream(root_seed, "repair starts", e.id)
        # The failure itself is every other start of its pool.
        near = [library.values(int(i)) for i in rng.permutation(ball)]
        pools.append([v for n in near for v in (dict(e.values or {}), dict(n))])
    return [pools[i % len(pools)][(i // len(pools)) % len(pools[i % len(pools)])]
            for i in range(count)]  # fmt: skip


def _save(
    folder: Path, net: LeWMNet, before: LeWM, name: str, *, arm: str, settings: Settings
) -> Path:
    """The checkpoint with its companions: the encoder did not move, so they hold as they are."""
    model = LeWM(net, before.conventions)
    save_checkpoint(
        folder,
        net,
        before.conventions,
        training={"continued_from": before.identity, "arm": arm, "settings": asdict(settings)},
    )
    source = checkpoint_folder(name)
    assert source is not None
    for probe in readout_names(source):
        replace(load_readout(source, probe), model_identity=model.identity).save(folder)
    support = load_support(source)
    if support is not None:
        replace(support, model_identity=model.identity).save(folder)
    return folder


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
