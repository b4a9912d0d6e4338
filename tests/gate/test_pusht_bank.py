"""Banks of PushT that were made elsewhere: named and refused before a step is simulated."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_worldmodel.envs.pusht.env", reason="needs the [swm] extra")

from dreamcheck.errors import GuardRefused, InterfaceMismatch
from dreamcheck.gate import Bank, BankEntry, gate
from dreamcheck.gate.bank import Measured
from dreamcheck.gate.replay import _probe
from dreamcheck.imagination.targets import loss_unit
from dreamcheck.study import load_study
from dreamcheck.study.measuring import interface_of
from dreamcheck.tasks.pusht import PushT

pytestmark = pytest.mark.swm

MODEL = "pusht-small"
VALUES = dict(agent_x=96, agent_y=96, block_x=256, block_y=256, goal_x=416, goal_y=96)


@pytest.fixture(scope="module")
def task():
    return PushT(workers=0)


@pytest.fixture(scope="module")
def facts(task):
    """What a bank of this machine would hold."""
    probe = _probe(bank_of({}, task), MODEL, task)
    assert probe.readout is not None
    return {
        "policy_digest": interface_of(probe).policy,
        "unit": loss_unit(probe.target.unit, probe.discrepancy),
        "columns": tuple(c.name for c in probe.readout.columns),
    }


def bank_of(facts, task):
    here = dict(
        task="pusht", task_version=task.version, package_version=task.package_version,
        policy="weak", policy_digest="", target="state_probe", unit="", columns=(), history=3,
        forecast=3, frameskip=5, levels={"pusht-576": 1000.0},
    )  # fmt: skip
    entries = (
        BankEntry(id="a", role="failure", specification="pusht-576", values=VALUES, risk=2000.0),
        BankEntry(id="r", role="default-reset", specification="pusht-576", values=None, risk=900.0),
    )
    return Bank(
        title="hand-made",
        model="m",
        measured=Measured(**{**here, **facts}),
        protocol=load_study("pusht-576").entries(),
        used_seeds=tuple(range(56)),
        entries=entries,
    )


def other_version(task):
    return task.version.replace("1,", "0,", 1)


def other_appearance(task):
    return f"{task.version[:-4]}ffff"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda t: {"task_version": other_version(t)}, "made with task version '0, appearance"),
        (lambda t: {"task_version": other_appearance(t)}, "task appearance .* with those packages"),
        (lambda t: {"forecast": 5}, "forecast 5"),
        (lambda t: {"frameskip": 1}, "frameskip 1"),
        (lambda t: {"target": "latent"}, "target 'latent'"),
        (lambda t: {"columns": ("agent_x", "agent_y")}, "readout columns"),
        (lambda t: {"policy": "random", "policy_digest": "f" * 64}, "policy 'random ffffffffffff'"),
    ],
)
def test_a_bank_made_elsewhere_is_named_before_a_step_is_simulated(
    change, what, task, facts, monkeypatch
):
    def stepped(*_):
        raise AssertionError("a step was simulated")

    monkeypatch.setattr(task, "step", stepped)
    bank = bank_of({**facts, **change(task)}, task)
    with pytest.raises(InterfaceMismatch, match=what):
        gate(bank, new=MODEL, old=MODEL, num_seeds=2, task=task)


def test_the_shipped_probe_is_too_coarse_for_a_gate_unless_a_bound_is_stated(task, facts):
    bank = bank_of(facts, task)
    with pytest.raises(GuardRefused, match=r"more than the bound of 5\.00"):
        gate(bank, new=MODEL, old=MODEL, num_seeds=2, task=task)
    found = gate(bank, new=MODEL, old=MODEL, num_seeds=2, task=task, probe_bound=60.0)
    assert found.counts["unchanged"] == 2 and found.seeds == (56, 57)
    assert all(c.old_risk == c.new_risk for c in found.cases)
