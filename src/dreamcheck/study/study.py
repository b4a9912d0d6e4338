"""One discovery study: its protocol, its store, and the parts that measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dreamcheck.discovery.graph import Graph
from dreamcheck.discovery.library import Library
from dreamcheck.discovery.specification import get_specification
from dreamcheck.errors import Abstention, GuardRefused, UsageError
from dreamcheck.evidence import Record, Statistic, Store, library_entry
from dreamcheck.imagination.futures import Horizons
from dreamcheck.imagination.risk import RiskProbe
from dreamcheck.imagination.runner import Runner
from dreamcheck.imagination.support import Support
from dreamcheck.imagination.targets import (
    LatentTarget,
    PixelTarget,
    StateTarget,
    Target,
    loss_unit,
)
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.progress import Progress
from dreamcheck.study.activity import ActivityFloors, ActivityRule, FixedFloors
from dreamcheck.study.comparing import sibling_probe
from dreamcheck.study.config import Search, StudyConfig
from dreamcheck.study.measuring import CONTROL, Aggregate, Asked, Measurer
from dreamcheck.tasks.protocol import Policy, Task


@dataclass(frozen=True)
class Bench:
    """The live parts of a study: everything that is not data.

    readout, support: None where the model brings none; what then cannot be measured says so.
    siblings: other checkpoints by name, on the same task and policy.
    """

    model: WorldModel
    task: Task
    policy: Policy
    readout: Readout | None = None
    support: Support | None = None
    siblings: Mapping[str, Bench] = field(default_factory=dict)


class Study:
    """A study opened for writing. Use it as a context manager."""

    def __init__(
        self,
        config: StudyConfig,
        bench: Bench,
        store: Store,
        *,
        progress: Progress,
        runner: Runner,
    ) -> None:
        self.config = config
        self.bench = bench
        self.store = store
        self.progress = progress
        self.probe = probe_of(config, bench, runner)
        siblings = {
            name: sibling_probe(
                self.probe, probe_of(config, b, Runner(b.model, tile=runner.tile)), name
            )
            for name, b in bench.siblings.items()
        }
        self.measurer = Measurer(store, self.probe)
        self.siblings = {name: Measurer(store, probe) for name, probe in siblings.items()}
        self.keep("subject", self.interface, self._subject(runner))
        self._libraries: dict[str, Library] = {}

    def _subject(self, runner: Runner) -> dict[str, Any]:
        """What is tested, how it is driven and read: for the report's protocol section."""
        model, task, readout = self.bench.model, self.bench.task, self.bench.readout
        horizons = self.probe.horizons
        return {
            "model": self.config.model,
            "identity": model.identity,
            "latent": {"kind": model.latent.kind, "shape": list(model.latent.shape)},
            "conventions": model.conventions.model_dump(),
            "task": task.name,
            "task_version": task.version,
            "package_version": task.package_version,
            "policy": self.config.policy.model_dump(),
            "history": horizons.history,
            "forecast": horizons.forecast,
            "frameskip": horizons.frameskip,
            "steps": horizons.steps,
            "target": self.probe.target.name,
            "unit": loss_unit(self.probe.target.unit, self.probe.discrepancy),
            "interface": self.interface,
            "readout": None
            if readout is None
            else {
                "columns": [[c.name, c.unit] for c in readout.columns],
                "heldout_mae": readout.heldout_mae,
                "mean_mae": float(np.mean(readout.heldout_mae)),
            },
            "support_rows": None if self.bench.support is None else len(self.bench.support.states),
            "deterministic": getattr(task, "deterministic", None),
            "numerics": runner.profile,
        }

    @classmethod
    def at(
        cls,
        directory: str | Path,
        config: StudyConfig,
        bench: Bench,
        *,
        progress: Progress | None = None,
        tile: int = 64,
        mixed_numerics: bool = False,
        stamps: Sequence[str] = (),
    ) -> Study:
        """Make the study there, or resume it.

        Raises:
            UsageError: the directory holds a study with another protocol.
            GuardRefused: it was begun under another numerics profile.
        """
        runner = Runner(bench.model, tile=tile)
        store = Store.ensure(
            directory,
            protocol=config.entries(),
            seeds=config.seeds,
            profile=runner.profile,
            mixed_numerics=mixed_numerics,
            stamps=stamps,
        )
        progress = progress or Progress(quiet=True)
        for notice in store.notices:
            progress.say(f"{directory}: {notice}")
        try:
            return cls(config, bench, store, progress=progress, runner=runner)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *exception: object) -> None:
        self.store.close()

    # -- libraries ---------------------------------------------------------------------------

    def library(self, search: Search) -> Library:
        """The search's library; recorded in the store the first time."""
        name = search.specification
        if name not in self._libraries:
            library = library_of(search, self.bench.task)
            if self.store.get("library", library.specification.identity) is None:
                self.store.commit([self._library_record(name, library)])
            self._libraries[name] = library
        return self._libraries[name]

    def _library_record(self, name: str, library: Library) -> Any:
        spec = library.specification
        every = range(len(library))
        scaled = library.digits / np.maximum(library.radices - 1, 1)
        return library_entry(
            self.store.artifacts,
            spec=name,
            spec_digest=spec.identity,
            names=library.names,
            ids=library.ids(),
            values=[tuple(library.values(i).values()) for i in every],
            scaled=scaled,
            num_tuples=library.num_tuples,
            removed=library.removed,
        )

    def graph(self, search: Search) -> Graph:
        """The library's graph."""
        return Graph(self.library(search))

    def asked(self, search: Search, ids: Sequence[str]) -> list[Asked]:
        """Inputs by id, with their values."""
        library = self.library(search)
        return [Asked(i, library.values(library.index(i))) for i in ids]

    # -- seeds and statistics ----------------------------------------------------------------

    @property
    def statistic(self) -> Statistic:
        """The declared aggregation; ``ceil`` tails in paper mode."""
        statistic = self.config.statistic
        if self.config.mode == "paper" and statistic.name == "cvar":
            return statistic.model_copy(update={"estimator": "ceil"})
        return statistic

    def seeds(self, partition: str) -> tuple[int, ...]:
        """Environment seeds of a partition."""
        return self.config.seeds[partition]

    def measured(
        self,
        asked: Sequence[Asked],
        seeds: Sequence[int],
        *,
        partition: str,
        stage: Any = None,
    ) -> dict[str, Aggregate]:
        """Inputs measured on seeds and aggregated, by id."""
        rows = self.measurer.measure(asked, seeds, partition=partition, stage=stage)
        return {i: Aggregate.of(ms, self.statistic) for i, ms in rows.items()}

    @cached_property
    def activity_rule(self) -> ActivityRule | None:
        """What a lack of task activity costs; None where activity plays no part.

        LeWM PushT's floors come from the default reset on the search seeds.

        Raises:
            GuardRefused: the default reset never touches the block.
        """
        if self.config.activity == "dino-pusht":
            return FixedFloors()
        if self.config.activity != "pusht":
            return None
        seeds = self.seeds("search")
        reset = self.measured([CONTROL], seeds, partition="search")[CONTROL.id]
        if reset.failure is not None:
            raise GuardRefused(f"no activity floor: the default reset failed ({reset.failure})")
        floors = ActivityFloors.of_reset(reset.activity, seeds=seeds)
        self.keep(
            "activity-floors",
            self.interface,
            {"floors": floors.to_dict(), "reset": dict(reset.activity), "seeds": list(seeds)},
        )
        return floors

    @cached_property
    def interface(self) -> str:
        """Digest of the prediction interface."""
        return self.measurer.interface.digest

    def keep(self, kind: str, key: str, payload: Mapping[str, Any]) -> None:
        """Commit a record of a kind without a type."""
        self.store.commit([Record.make(kind, key, payload)])


def library_of(search: Search, task: Task) -> Library:
    """The library of a search on its task.

    Raises:
        UsageError: the specification is made for another task.
    """
    spec = get_specification(search.specification)
    if spec.task != task.name:
        raise UsageError(
            f"specification {search.specification!r} is made for task {spec.task!r}, but the study "
            f"runs {task.name!r}; its specifications are {', '.join(task.spec_names)}."
        )
    return Library.build(spec, task_rules=task.rules())


def probe_of(config: StudyConfig, bench: Bench, runner: Runner) -> RiskProbe:
    """What turns (input, seed) into a loss under the protocol."""
    return RiskProbe(
        runner=runner,
        task=bench.task,
        policy=bench.policy,
        target=target_of(config, bench),
        horizons=horizons_of(config, bench.model),
        discrepancy=config.discrepancy,
        step_rule=config.step_rule,
        support=bench.support,
        readout=bench.readout,
        root_seed=config.root_seed,
        floor_samples=config.floor_samples,
    )


def horizons_of(config: StudyConfig, model: WorldModel) -> Horizons:
    """H, K and the frameskip; history 0 in the protocol means the model's own."""
    history = config.history or model.history_max
    if not model.history_min <= history:
        raise UsageError(
            f"history = {history} but this model needs at least {model.history_min} frames."
        )
    return Horizons(
        history=history, forecast=config.forecast, frameskip=model.conventions.frameskip
    )


def target_of(config: StudyConfig, bench: Bench) -> Target:
    """What the protocol compares, read from the bench's model.

    Raises:
        Abstention: the model lacks what the target needs.
    """
    if config.target == "latent":
        return LatentTarget(bench.model)
    if config.target == "pixels":
        return PixelTarget(bench.model)
    if bench.readout is None:
        raise Abstention(
            "target = 'state_probe' needs a state readout, and this model brings none. Fit one "
            "with `dreamcheck probe`, or choose target = 'latent'."
        )
    return StateTarget(bench.readout)
