"""When risks of two checkpoints may meet: in physical units, read well enough, driven alike."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from dreamcheck.errors import GuardRefused, InterfaceMismatch, UsageError
from dreamcheck.evidence import Interface
from dreamcheck.imagination.risk import RiskProbe
from dreamcheck.study.measuring import interface_of

TOLERANCE_SHARE = 0.25
"""A readout's error may be at most this share of the task's tolerance. Source: spec/evidence.md
section 6."""

OWN = ("model", "probe")
"""Fields of an interface that two checkpoints of one family do not share: their weights, and the
digest of the probe that reads each one."""


def require_physical(
    probe: RiskProbe, name: str, *, bound: float | None = None, way_out: str
) -> None:
    """Refuse a checkpoint whose risks mean nothing beside another's.

    Args:
        bound: largest held-out probe error, in the risk's unit; default: a quarter of the task's
            tolerance, where the task has one.
        way_out: what the user can do when the probe is too coarse.

    Raises:
        GuardRefused: a target in the model's own space, or a probe above the bound.

    Source: design.md law 7; spec/evidence.md section 9.
    """
    if probe.target.name != "state_probe" or probe.readout is None:
        raise GuardRefused(
            f"a {probe.target.name} risk lives in {name}'s own space; two checkpoints are compared "
            "in physical units, by state probes only"
        )
    tolerance = getattr(probe.task, "tolerance", None)
    if bound is None and tolerance is not None:
        bound = TOLERANCE_SHARE * float(tolerance)
    error = float(np.mean(probe.readout.heldout_mae))
    if bound is not None and error > bound:
        raise GuardRefused(
            f"not comparable: the probes of {name} are off by {error:.2f} {probe.target.unit} on "
            f"held-out frames, more than the bound of {bound:.2f}. {way_out}"
        )


def sibling_probe(main: RiskProbe, sibling: RiskProbe, name: str) -> RiskProbe:
    """A sibling's probe, if its risks may stand beside the tested checkpoint's.

    Raises:
        UsageError: it is the tested checkpoint itself.
        GuardRefused: either is not read in physical units, or not well enough.
        InterfaceMismatch: the sibling would be driven otherwise; what differs is named.
    """
    way_out = "Fit a better readout with `dreamcheck probe`, or leave this checkpoint out"
    mine, other = interface_of(main), interface_of(sibling)
    if mine.model == other.model:
        raise UsageError(
            f"sibling {name!r} has the same weights as the tested checkpoint: name another one."
        )
    require_physical(main, "the tested checkpoint", way_out=way_out)
    require_physical(sibling, f"sibling {name}", way_out=way_out)
    for f in fields(Interface):
        a, b = getattr(mine, f.name), getattr(other, f.name)
        if f.name not in OWN and a != b:
            raise InterfaceMismatch(
                f"sibling {name!r} has {f.name} = {b!r}, the tested checkpoint {a!r}: their risks "
                "cannot meet (law 7). Siblings share history, frameskip and what is compared."
            )
    # Its distance from training is its own affair; only its losses are asked for.
    return replace(sibling, support=None)
