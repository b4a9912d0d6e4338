"""Guards that stand before a number (law 2): a failed one refuses, or stamps what was let through.

    stamps = require(guards_of("discover"), subject, allow=allow)

Guards are the cheap ones among the checks; a verdict is kept per model, task and data, so a second
command on the same subject asks nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dreamcheck.data.drawn import DrawnEpisodes
from dreamcheck.data.episodes import Episodes
from dreamcheck.doctor.contract import Check, Finding, Verdict
from dreamcheck.doctor.examination import run_check
from dreamcheck.doctor.registry import all_checks, chosen_checks
from dreamcheck.doctor.subject import Subject
from dreamcheck.errors import GuardRefused, UsageError
from dreamcheck.models.protocol import WorldModel
from dreamcheck.models.reference import load_support
from dreamcheck.models.registry import checkpoint_folder
from dreamcheck.planning.guarding import Guarded
from dreamcheck.tasks.protocol import Restartable, Task

GUARDS: dict[str, tuple[str, ...]] = {
    "discover": ("training_mode", "model_nan", "batch_mates", "collapse", "domain_guard"),
    "plan": ("training_mode", "model_nan", "batch_mates", "collapse", "domain_guard",
             "protocol_feasibility"),
    "score": ("training_mode", "model_nan", "batch_mates", "collapse"),
    "consistency": ("training_mode", "model_nan", "batch_mates", "collapse", "domain_guard"),
}  # fmt: skip
"""Which command depends on which checks."""

AUDIT_WINDOWS = 32
"""Windows of the normalisation audit before planning; the doctor looks at more."""

_KEPT: dict[tuple[str, ...], tuple[Finding, tuple[Any, ...]]] = {}


def guards_of(command: str) -> tuple[str, ...]:
    """Names of a command's guards."""
    return GUARDS[command]


def require(guards: Sequence[str], subject: Subject, *, allow: Sequence[str] = ()) -> list[str]:
    """Stamps for guards that failed and were allowed; empty when all passed.

    A guard that is skipped or cannot tell does not refuse: it has not failed.

    Args:
        allow: names of guards that may fail.

    Raises:
        GuardRefused: a guard failed that is not in ``allow``.
        UsageError: ``allow`` names no check.
    """
    known = {c.name for c in all_checks()}
    unknown = [a for a in allow if a not in known]
    if unknown:
        raise UsageError(
            f"--allow {unknown[0]!r} is no guard; they are {', '.join(sorted(guards))}."
        )
    stamps = []
    for check in chosen_checks(only=tuple(guards)):
        finding = _found(check, subject)
        if finding.verdict is not Verdict.WRONG:
            continue
        name, headline = next(iter(finding.measured.items()))
        said = f"{name} = {headline.value:.3g} {headline.unit}"
        if finding.threshold is not None:
            said += f" (threshold {finding.threshold.value:g}, {finding.threshold.source})"
        if check.name not in allow:
            raise GuardRefused(
                f"the guard {check.name!r} failed: {said}. {'; '.join(finding.evidence[:2])}. No "
                f"number is given. {finding.fix}. To run anyway: --allow {check.name}; every "
                "record then says so."
            )
        stamps.append(f"guard {check.name} failed and was allowed: {said}")
    return stamps


def stamps_of(
    command: str,
    name: str,
    model: WorldModel,
    *,
    allow: Sequence[str] | None = None,
    **parts: Any,
) -> list[str]:
    """``require`` for a command that was given a checkpoint by name.

    Args:
        name: of the checkpoint, whose folder may hold the training reference.
        parts: further parts of the ``Subject``.

    Raises:
        GuardRefused: a guard failed that was not allowed.
    """
    folder = checkpoint_folder(name)
    support = load_support(folder) if folder else None
    subject = Subject(model=model, support=support, **parts)
    return require(guards_of(command), subject, allow=tuple(allow or ()))


def guarded(
    command: str,
    name: str,
    model: WorldModel,
    *,
    task: Task,
    episodes: Episodes,
    allow: Sequence[str] | None = None,
    **parts: Any,
) -> Guarded:
    """``stamps_of``, with the two readings that every planned evaluation carries (P1).

    The normalisation audit is a reading and not a guard: stale statistics distort a rate, which the
    record then says. Where the episodes hold states only, it looks at the frames the task draws of
    them.

    Args:
        episodes: those that are planned on. parts: further parts of the ``Subject``.

    Raises:
        GuardRefused: a guard failed that was not allowed.
    """
    folder = checkpoint_folder(name)
    support = load_support(folder) if folder else None
    subject = Subject(model=model, support=support, task=task, episodes=episodes, **parts)
    stamps = require(guards_of(command), subject, allow=tuple(allow or ()))
    frames = episodes
    if not subject.has("frames") and isinstance(task, Restartable) and subject.has("state"):
        frames = DrawnEpisodes(episodes, task, image_size=model.conventions.image_size)
    normalised = Subject(model=model, task=task, episodes=frames, windows=AUDIT_WINDOWS)
    (guard,), (audit,) = chosen_checks(only=("domain_guard",)), chosen_checks(only=("batchnorm",))
    return Guarded(
        stamps=tuple(stamps),
        domain_guard=_reading(_found(guard, subject)),
        norm_audit=_reading(run_check(audit, normalised)),
    )


def _reading(finding: Finding) -> dict[str, Any]:
    """A finding's verdict and numbers, plain; its time is left out, since it never repeats."""
    said = finding.to_dict()
    return {
        "verdict": said["verdict"],
        "measured": said["measured"],
        "threshold": said["threshold"],
        "evidence": said["evidence"] or ([finding.needs] if finding.needs else []),
    }


def _found(check: Check, subject: Subject) -> Finding:
    """The check's finding, asked once per model, task and data."""
    key = _key(check.name, subject)
    if key is None:
        return run_check(check, subject)
    if key not in _KEPT:
        # The parts stay alive with the verdict: a key holds their ids, which must not be reused.
        parts = (subject.task, subject.episodes, subject.protocol)
        _KEPT[key] = (run_check(check, subject), parts)
    return _KEPT[key][0]


def _key(check: str, subject: Subject) -> tuple[str, ...] | None:
    """Under what a verdict is kept; None when a part has no digest of its own."""
    if subject.model is None:
        return None
    modes = ""
    module = getattr(subject.model, "module", None)
    if module is not None:
        modes = str(sum(m.training for m in module.modules()))
    # Tasks and protocols are told apart by object, for wrappers share the name of what they wrap.
    return (
        check, subject.model.identity, modes, subject.thresholds.name, str(subject.seed),
        str(id(subject.task)), str(id(subject.episodes)), str(id(subject.protocol)),
    )  # fmt: skip
