"""From names to live parts: the model with its companions, the task, the policy."""

from __future__ import annotations

from pathlib import Path

import torch

from dreamcheck.errors import UsageError
from dreamcheck.imagination.readouts import in_lengths
from dreamcheck.imagination.support import Support
from dreamcheck.models.protocol import Readout, WorldModel
from dreamcheck.models.readout import CrossFitted, StateProbe, load_readout, readout_names
from dreamcheck.models.reference import load_support
from dreamcheck.models.registry import checkpoint_folder, load_model
from dreamcheck.study.config import StudyConfig
from dreamcheck.study.study import Bench
from dreamcheck.tasks import get_task
from dreamcheck.tasks.protocol import MakesPolicies, Policy, Task


def assemble(
    config: StudyConfig,
    *,
    device: str = "cpu",
    threads: int | None = None,
    task: Task | None = None,
) -> Bench:
    """The live parts that a protocol names.

    Args:
        threads: torch threads; part of the numerics profile, so keep it when resuming.
        task: one that is already made; default: the protocol's, by name.

    Raises:
        CheckpointError, UsageError: what cannot be found or used, named.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_model(config.model, device=device)
    task = get_task(config.task) if task is None else task
    if not isinstance(task, MakesPolicies):
        raise UsageError(
            f"task {task.name!r} makes no policies: give it `make_policy(name, **parameters)`."
        )
    policy = task.make_policy(config.policy.name, **config.policy.parameters)
    folder = checkpoint_folder(config.model)
    return Bench(
        model=model,
        task=task,
        policy=policy,
        readout=_readout_of(folder, model, task),
        support=load_companion_support(folder, model) if folder else None,
        siblings={
            name: _sibling(name, task, policy, device=device) for name in config.siblings or ()
        },
    )


def _sibling(name: str, task: Task, policy: Policy, *, device: str) -> Bench:
    """Another checkpoint on the same task and policy; where it was trained plays no part."""
    model = load_model(name, device=device)
    readout = _readout_of(checkpoint_folder(name), model, task)
    return Bench(model=model, task=task, policy=policy, readout=readout)


def _readout_of(folder: Path | None, model: WorldModel, task: Task) -> Readout | None:
    return None if folder is None else in_lengths(load_companion_readout(folder, model), task)


def companion_probes(folder: Path | None) -> tuple[StateProbe, StateProbe] | None:
    """The two cross-fitted state probes beside a checkpoint, not yet held against its model."""
    if folder is None or not {"a", "b"} <= set(readout_names(folder)):
        return None
    return load_readout(folder, "a"), load_readout(folder, "b")


def load_companion_readout(folder: Path, model: WorldModel) -> Readout | None:
    """The two cross-fitted state probes beside a checkpoint; None where there are none."""
    probes = companion_probes(folder)
    if probes is None:
        return None
    for probe in probes:
        probe.require(model)
    return CrossFitted(*probes)


def load_companion_support(folder: Path, model: WorldModel) -> Support | None:
    """The training distribution beside a checkpoint; None where there is none."""
    reference = load_support(folder)
    if reference is None:
        return None
    reference.require(model)
    return Support(
        states=reference.states, latents=reference.latents, constants=reference.constants
    )
